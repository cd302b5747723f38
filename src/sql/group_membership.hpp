#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Whether a server of MySQL Group Replication is in its group. Its plugin refuses writes while it
/// runs and the server is cut off, but a server that was started again without it accepts them, and
/// the group never hears of them.
namespace rowlock::sql {

/// One row: this server's state, the members that it knows, those of them that it can reach. The
/// user needs the right to read the table.
constexpr std::string_view group_membership =
    "select coalesce(max(case when member_id = @@global.server_uuid then member_state end), "
    "'OFFLINE'), count(*), coalesce(sum(member_state in ('ONLINE', 'RECOVERING')), 0) "
    "from performance_schema.replication_group_members";

/// What to do if the server is not to be used; empty if it is ONLINE in a majority.
[[nodiscard]] inline std::string why_outside_group(std::string_view state, std::int64_t members,
                                                   std::int64_t reachable) {
    if (state != "ONLINE") {
        return "this server is meant for a MySQL group and is not ONLINE in it, but " +
               std::string{state} + ": wait until it has joined, or connect to another";
    }
    if (2 * reachable <= members) {
        return "this member of a MySQL group reaches no majority of it (" +
               std::to_string(reachable) + " of " + std::to_string(members) +
               "): connect to another";
    }
    return {};
}

}  // namespace rowlock::sql

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Whether a server of MySQL Group Replication is in its group. Its plugin refuses writes while it
/// runs and the server is cut off, but a server that was started again without it accepts them, and
/// the group never hears of them.
namespace rowlock::sql {

/// One row: this server's state, the members that it knows, those of them that it can reach, and
/// what was drawn when the group was founded (bootstrapped): a group that was founded anew may have
/// lost what the one of the same name before it had committed.
constexpr std::string_view group_membership =
    "select coalesce(max(case when m.member_id = @@global.server_uuid then m.member_state end), "
    "'OFFLINE'), count(*), coalesce(sum(m.member_state in ('ONLINE', 'RECOVERING')), 0), "
    "coalesce(max(substring_index(s.view_id, ':', 1)), '') "
    "from performance_schema.replication_group_members m "
    "left join performance_schema.replication_group_member_stats s on s.member_id = m.member_id";

/// Where a user has not the rights that group_membership needs.
constexpr std::string_view no_right_to_membership =
    "this server is meant for a MySQL group, and this user may not see whether it is in it: grant "
    "select on performance_schema.replication_group_members and "
    "performance_schema.replication_group_member_stats (as `rowlock migrate --print-grants` says)";

/// What to do if the server is not to be used; empty if it is ONLINE in a majority.
[[nodiscard]] inline std::string why_outside_group(std::string_view state, std::int64_t members,
                                                   std::int64_t reachable) {
    if (state != "ONLINE") {
        return "this server is meant for a MySQL group and is not ONLINE in it, but " +
               std::string{state} +
               ": wait until it has joined, or connect to another. (If it is to be alone, take "
               "group_replication_group_name out of its configuration.)";
    }
    if (2 * reachable <= members) {
        return "this member of a MySQL group reaches no majority of it (" +
               std::to_string(reachable) + " of " + std::to_string(members) +
               "): connect to another";
    }
    return {};
}

}  // namespace rowlock::sql

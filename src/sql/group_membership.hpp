#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Whether a server of MySQL Group Replication is in its group. While its plugin runs and the
/// server is cut off, the plugin refuses writes; a server that was restarted without it accepts
/// them, and they never reach the group.
namespace rowlock::sql {

/// One row: this server's state, how many members it knows, how many of them it can reach, and the
/// id drawn when the group was founded (bootstrapped): a group that was founded anew may have lost
/// commits of the previous group of the same name.
constexpr std::string_view group_membership =
    "select coalesce(max(case when m.member_id = @@global.server_uuid then m.member_state end), "
    "'OFFLINE'), count(*), coalesce(sum(m.member_state in ('ONLINE', 'RECOVERING')), 0), "
    "coalesce(max(substring_index(s.view_id, ':', 1)), '') "
    "from performance_schema.replication_group_members m "
    "left join performance_schema.replication_group_member_stats s on s.member_id = m.member_id";

/// For a user without the rights that group_membership needs.
constexpr std::string_view no_right_to_membership =
    "this server is meant for a MySQL group, and this user may not see whether it is in it: grant "
    "select on performance_schema.replication_group_members and "
    "performance_schema.replication_group_member_stats (as `rowlock migrate --print-grants` says)";

/// Advice if the server must not be used; empty if it is ONLINE in a majority.
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

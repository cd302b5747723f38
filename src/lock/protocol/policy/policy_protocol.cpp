#include "lock/protocol/policy/policy_protocol.hpp"

#include "sql/run_statement.hpp"

namespace rowlock::protocol {

using std::chrono::microseconds;

policy_protocol::policy_protocol(const sql::statement_set& statements)
    : max_hold_{statements("max_hold")},
      set_max_hold_{statements("set_max_hold")},
      remove_max_hold_{statements("remove_max_hold")},
      last_of_page_{statements("last_of_policies")},
      overdue_leases_{statements("overdue_leases")},
      overdue_permits_{statements("overdue_permits")} {}

void policy_protocol::set_max_hold(sql::connection& db, std::string_view name,
                                   std::optional<microseconds> limit, sql::deadline until) const {
    if (limit) {
        run(db, set_max_hold_, until, name, limit->count());
    } else {
        run(db, remove_max_hold_, until, name);
    }
}

std::optional<microseconds> policy_protocol::max_hold(sql::connection& db, std::string_view name,
                                                      sql::deadline until) const {
    const auto row = run(db, max_hold_, until, name);
    if (row.empty()) return std::nullopt;
    return microseconds{row.integer(0, 0)};
}

std::optional<std::string> policy_protocol::last_of_page(sql::connection& db,
                                                         std::string_view after, int limit,
                                                         sql::deadline until) const {
    const auto row = run(db, last_of_page_, until, after, limit);
    if (row.is_null(0, 0)) return std::nullopt;
    return std::string{row.text(0, 0)};
}

std::vector<overdue_hold> policy_protocol::overdue_leases(sql::connection& db,
                                                          const overdue_hold& after,
                                                          std::string_view last, int limit,
                                                          sql::deadline until) const {
    const auto rows = run(db, overdue_leases_, until, after.name, last, limit);
    std::vector<overdue_hold> found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.push_back({.name = std::string{rows.text(row, 0)}, .token = rows.integer(row, 1)});
    }
    return found;
}

std::vector<overdue_hold> policy_protocol::overdue_permits(sql::connection& db,
                                                           const overdue_hold& after,
                                                           std::string_view last, int limit,
                                                           sql::deadline until) const {
    const auto rows = run(db, overdue_permits_, until, after.name, last, after.grant_id, limit);
    std::vector<overdue_hold> found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.push_back({.name = std::string{rows.text(row, 0)},
                         .token = rows.integer(row, 1),
                         .grant_id = rows.integer<grant_id>(row, 2)});
    }
    return found;
}

}  // namespace rowlock::protocol

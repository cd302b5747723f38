#pragma once

#include "sql/statements.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What operators demand of the grants of a name, and which grants do not comply. Like
/// lease_protocol: no state, no retries; times are judged by the database's clock.
namespace rowlock::protocol {

/// A grant that is held for longer than the policy of its name allows, and was not asked for.
struct overdue_hold {
    std::string name{};
    std::int64_t token = 0;
    rowlock::grant_id grant_id{};  ///< of permits

    /// Before everything that follows this name.
    static overdue_hold past(std::string name) {
        return {.name = std::move(name),
                .grant_id = rowlock::grant_id{std::numeric_limits<std::int64_t>::max()}};
    }
};

/// Thread-safe. Each call is one round trip, and may be repeated after a lost reply.
class policy_protocol {
public:
    explicit policy_protocol(const sql::statement_set& statements);

    /// @param limit nullopt: none
    void set_max_hold(sql::connection& db, std::string_view name,
                      std::optional<std::chrono::microseconds> limit, sql::deadline until) const;
    [[nodiscard]] std::optional<std::chrono::microseconds> max_hold(sql::connection& db,
                                                                    std::string_view name,
                                                                    sql::deadline until) const;

    /// For the reaper, which goes over the policies by name: the last of at most so many that
    /// follow a name; nullopt if none does.
    [[nodiscard]] std::optional<std::string> last_of_page(sql::connection& db,
                                                          std::string_view after, int limit,
                                                          sql::deadline until) const;
    /// Overdue leases of the names up to `last`, by name.
    [[nodiscard]] std::vector<overdue_hold> overdue_leases(sql::connection& db,
                                                           const overdue_hold& after,
                                                           std::string_view last, int limit,
                                                           sql::deadline until) const;
    /// Overdue holds of semaphores and shared_mutexes, by name and grant id.
    [[nodiscard]] std::vector<overdue_hold> overdue_permits(sql::connection& db,
                                                            const overdue_hold& after,
                                                            std::string_view last, int limit,
                                                            sql::deadline until) const;

private:
    const sql::statement max_hold_, set_max_hold_, remove_max_hold_, last_of_page_, overdue_leases_,
        overdue_permits_;
};

}  // namespace rowlock::protocol

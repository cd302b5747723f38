#pragma once

#include "coordination/batch/batch_dialects.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace rowlock::strategy {

/// Optimistic paths for uncontended leases: leaner statements, and one commit for what several
/// threads of a client want at the same time. A negative result has no side effect: fall back to
/// lease_protocol or queue_protocol for that lease alone.
class batch_protocol {
public:
    explicit batch_protocol(const lease_protocol& leases) : leases_{leases} {}

    /// Most leases that acquire_all and release_all take.
    static constexpr std::size_t most = largest_group;

    /// Takes a lease that this client freed at the token `known`, if it is unchanged since, no
    /// client waits for it and our session lives. The new token is known + 1, durable like every
    /// grant. One round trip.
    [[nodiscard]] bool reacquire(sql::connection& db, const grant_request& request,
                                 std::int64_t known, sql::deadline until) const;

    /// Grants different names to one session by one commit. Returns a token for each, or nullopt. A
    /// row that another client has locked is skipped, not waited for. PostgreSQL: one round trip.
    [[nodiscard]] std::vector<std::optional<std::int64_t>> acquire_all(
        sql::connection& db, std::span<const grant_request> requests, sql::deadline until) const;

    /// Like acquire_all, for leases that this client freed at the tokens `known`: cheaper on
    /// PostgreSQL.
    [[nodiscard]] std::vector<std::optional<std::int64_t>> reacquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        std::span<const std::int64_t> known, sql::deadline until) const;

    /// Frees leases of one session that have no waiter, by one commit. Returns which were freed.
    /// Treats locked rows like acquire_all if the leases were never fenced: PostgreSQL waits for a
    /// row that a fenced transaction has locked. Look for waiters afterwards: a ticket may have
    /// been committed meanwhile.
    [[nodiscard]] std::vector<bool> release_all(sql::connection& db, std::int64_t session,
                                                std::span<const granted_name> grants,
                                                sql::deadline until) const;

    /// Returns which of these different names are certainly held by a live session now. Reads only,
    /// one round trip.
    [[nodiscard]] std::vector<bool> held(sql::connection& db,
                                         std::span<const std::string_view> names,
                                         sql::deadline until) const;

private:
    const lease_protocol& leases_;
};

}  // namespace rowlock::strategy

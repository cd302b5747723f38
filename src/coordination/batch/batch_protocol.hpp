#pragma once

#include "coordination/batch/batch_dialects.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace rowlock::strategy {

/// The short ways, which lead to the end when nobody else is interested: leaner statements, and one
/// commit for what several threads of a client want at the same moment. Each "no" changes nothing
/// and means: ask lease_protocol or queue_protocol, alone.
class batch_protocol {
public:
    explicit batch_protocol(const lease_protocol& leases) : leases_{leases} {}

    /// How many leases acquire_all and release_all take at most.
    static constexpr std::size_t most = largest_group;

    /// Takes a lease that this client freed with the token `known`, if nothing has happened to it
    /// since, nobody waits for it and our session lives. The new token is known + 1; durable like
    /// every grant. One round trip.
    [[nodiscard]] bool reacquire(sql::connection& db, const grant_request& request, std::int64_t known,
                              sql::deadline until) const;

    /// Grants of different names to one session by one commit; of each its token, or nothing. A row
    /// that is locked by another is left out, not waited for. PostgreSQL: one round trip.
    [[nodiscard]] std::vector<std::optional<std::int64_t>> acquire_all(
        sql::connection& db, std::span<const grant_request> requests, sql::deadline until) const;

    /// The same of leases that this client freed with the tokens `known`: on PostgreSQL for less.
    [[nodiscard]] std::vector<std::optional<std::int64_t>> reacquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        std::span<const std::int64_t> known, sql::deadline until) const;

    /// Frees leases of one session, for which nobody waits, by one commit; which of them were
    /// freed. As acquire_all, of leases that were never fenced: PostgreSQL waits for a row that a
    /// fenced transaction has. Look for waiters afterwards: a ticket may have been committed
    /// meanwhile.
    [[nodiscard]] std::vector<bool> release_all(sql::connection& db, std::int64_t session,
                                                std::span<const granted_name> grants,
                                                sql::deadline until) const;

    /// Of each of these different names whether it is surely held by a live session at this moment.
    /// Reads only, one round trip.
    [[nodiscard]] std::vector<bool> held(sql::connection& db,
                                         std::span<const std::string_view> names,
                                         sql::deadline until) const;

private:
    const lease_protocol& leases_;
};

}  // namespace rowlock::strategy

#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include <rowlock/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace rowlock::protocol {

/// Optimistic paths for uncontended leases: leaner statements, and one commit for what several
/// threads of a client want at the same time. A negative result has no side effect: fall back to
/// lease_protocol or queue_protocol for that lease alone, which finds out why.
///
/// Every operation
/// - waits for no row that another client has locked (a fenced transaction may hold it for long),
///   and so has no part in a deadlock. On SQLite, where all writers wait for each other, it waits
///   for the file as every other statement does;
/// - throws errc::outcome_unknown if a reply was lost: each grant is then looked up by its id, as
///   after acquire. After other errors nothing was done, or only the table knows what was done;
///   every name is retried alone.
///
/// One implementation a dialect (make_batch_protocol). Thread-safe.
class batch_protocol {
public:
    virtual ~batch_protocol() = default;
    batch_protocol(const batch_protocol&) = delete;
    batch_protocol& operator=(const batch_protocol&) = delete;

    /// Most leases that acquire_all and release_all take.
    static constexpr std::size_t most = 32;

    /// Takes a lease that this client freed at the token `known`, if it is unchanged since, no
    /// client waits for it, the floor has not risen past it and our session lives. The new token is
    /// known + 1, durable like every grant. One round trip; none on MySQL, which answers false.
    [[nodiscard]] virtual bool reacquire(sql::connection& db, const grant_request& request,
                                         std::int64_t known, sql::deadline until) const = 0;

    /// Grants different names to one session by one commit. Returns a token for each, or nullopt. A
    /// row that another client has locked is skipped, not waited for: call lease_protocol::acquire
    /// for a name that got no token. PostgreSQL: one round trip. MariaDB: two for up to 16 names if
    /// all were granted; four and a probe for each 16 names if there are more, on MySQL, or if a
    /// row is locked. In that case MariaDB before 10.6 grants nothing. MySQL grants no name without
    /// a row. Names without a row take a commit more on MariaDB.
    /// @param requests of one session, different names, at most `most`
    [[nodiscard]] virtual std::vector<std::optional<std::int64_t>> acquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const = 0;

    /// Like acquire_all, for leases that this client freed at the tokens `known`: cheaper on
    /// PostgreSQL.
    [[nodiscard]] virtual std::vector<std::optional<std::int64_t>> reacquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        std::span<const std::int64_t> known, sql::deadline until) const = 0;

    /// Whether reacquire_all is another statement than acquire_all, which cannot take its place.
    [[nodiscard]] virtual bool reacquires_apart() const noexcept { return false; }

    /// Frees leases of one session that have no waiter, by one commit. Returns which were freed.
    /// Treats locked rows like acquire_all if the leases were never fenced: PostgreSQL waits for a
    /// row that a fenced transaction has locked. Look for waiters afterwards: a ticket may have
    /// been committed meanwhile; not on SQLite, which has one writer. False: waited for, locked, or
    /// no longer this grant; call queue_protocol::release.
    ///
    /// One round trip on PostgreSQL. On MariaDB one for up to 16 names if all were freed, one more
    /// if not; else four and one more for each further 16 names.
    /// @param grants different names, at most `most`
    [[nodiscard]] virtual std::vector<bool> release_all(sql::connection& db, session_id session,
                                                        std::span<const granted_name> grants,
                                                        sql::deadline until) const = 0;

    /// Returns which of these different names are certainly held by a live session now. Reads only,
    /// one round trip.
    [[nodiscard]] virtual std::vector<bool> held(sql::connection& db,
                                                 std::span<const std::string_view> names,
                                                 sql::deadline until) const = 0;

protected:
    batch_protocol() = default;
};

/// The protocol of the dialect that `statements` are written in.
/// @param leases must outlive the protocol
[[nodiscard]] std::unique_ptr<const batch_protocol> make_batch_protocol(
    const sql::statement_set& statements, const lease_protocol& leases);

}  // namespace rowlock::protocol

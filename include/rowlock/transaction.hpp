#pragma once

#include <rowlock/advisory_lock.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

/// Locks of a transaction that the caller began, on the caller's own handle:
///
///     rowlock::postgresql::connection_ref db{my_pgconn};   // or mysql::, sqlite::, soci::
///     db.query("begin", until);
///     rowlock::fence(db, lease);                           // throws unless we are the holder
///     … the caller's own statements …
///     db.query("commit", until);                           // nobody else was the holder till here
///
/// Nothing here begins or ends a transaction. Called outside of one, each throws
/// errc::invalid_options and sends nothing that lasts; in one that PostgreSQL has aborted,
/// errc::invalid_options as well, and nothing is sent.
namespace rowlock {

/// Options of fence().
struct fence_options {
    /// For the fence's own statement, its wait for a take-over in progress included. As
    /// client_options::statement_deadline.
    std::chrono::milliseconds statement_deadline{std::chrono::seconds{5}};
    /// How long the server lets this transaction sit idle before it ends the connection, so that a
    /// process that was stopped inside the transaction does not keep the lock from its successor
    /// for ever. 0 = the session's ttl. PostgreSQL: for this transaction. MariaDB (MySQL:
    /// wait_timeout): whole seconds, rounded up, until the connection_ref is destroyed, which
    /// restores what was set. A shorter limit of the caller's stays. SQLite has none.
    std::chrono::milliseconds max_idle{0};
};

/// Makes the caller's transaction commit only while `held` is the current grant: from here to the
/// end of the transaction nobody can take the lock over or break it; our own heartbeats pass.
/// Heartbeats lock another row. See docs/guarantees.md for the isolation levels.
///
/// SQLite has one writer: the fence is a write that also renews the session in this transaction.
/// Heartbeats wait for it, so keep it shorter than ttl − margin; a second fence before the commit
/// checks that.
///
/// If it throws lock_lost, nothing was written by it. PostgreSQL has then aborted the transaction,
/// so that it cannot be committed by mistake; elsewhere roll it back.
/// @throws error errc::lock_lost if the lease is over, here or in the database; errc::conflict
/// (retryable: run the whole transaction again) if the transaction's snapshot is older than the
/// grant, so that what it reads would be stale; errc::invalid_options outside a transaction or on a
/// connection of another dialect; errc::timed_out.
/// One round trip (MySQL and MariaDB: one more per connection). The lease and the connection must
/// not be used by other threads during the call.
void fence(sql::connection& db, const lease& held, const fence_options& options = {});

/// Releases the lease as part of the caller's transaction: it is free at the moment of the commit,
/// not before. held() is false from here on. If the transaction is rolled back the row is still
/// ours: fence() and release_in() may be called again in the next attempt, and release() or the
/// destructor give it back. Fences, too: lock_lost if it is not the current grant.
/// Errors, round trips and threads as fence().
void release_in(sql::connection& db, lease& held, const fence_options& options = {});

/// Refused. A grant exists for others only once it is committed; until then every other acquirer
/// would wait for this transaction instead of being told, and the lease could not be believed in
/// before a commit that this library does not see. Acquire the lease first, then fence().
lease acquire_in(sql::connection& db, std::string_view name) = delete;

// --- advisory locks of the transaction -----------------------------------------------------------

/// Options of try_lock_in() and lock_in().
struct transaction_lock_options {
    /// As advisory_options::domain.
    std::string domain = "rowlock";
    /// For each statement, what it waits not counted. As client_options::statement_deadline.
    std::chrono::milliseconds statement_deadline{std::chrono::seconds{5}};
    /// Above READ COMMITTED the snapshot of the whole transaction is taken at the latest by the
    /// statement that locks, before the lock is ours: what the previous holder committed in between
    /// is not seen. That is refused; true if what you do under the lock rests on no read.
    bool any_isolation = false;
};

/// PostgreSQL: locks `key` until the caller's transaction ends, by commit or roll-back (to a
/// savepoint made before, too). The same keys as advisory_locks; each excludes the other. Works
/// behind a transaction pooler. False if another holds it; what the transaction did stays intact.
/// @throws error errc::unsupported on other databases (GET_LOCK survives a commit) and, unless
/// any_isolation is set, above READ COMMITTED; errc::read_only on a standby; errc::invalid_options
/// outside a transaction. In these cases nothing was locked and the transaction goes on.
/// One round trip. The connection must not be used by other threads during the call.
[[nodiscard]] bool try_lock_in(sql::connection& db, const advisory_key& key,
                               advisory_mode mode = advisory_mode::exclusive,
                               const transaction_lock_options& options = {});

/// The same, waiting up to `wait`, on the server, in slices of a quarter of a second: false if it
/// was held all that time. lock_timeout does not count meanwhile and is as before afterwards; the
/// server needs the language plpgsql, as every new database has it. The slices stay below
/// deadlock_timeout, so two transactions that wait for each other's keys end by `wait`, not by
/// errc::deadlock: lock several keys in one order.
[[nodiscard]] bool lock_in(sql::connection& db, const advisory_key& key,
                           std::chrono::milliseconds wait,
                           advisory_mode mode = advisory_mode::exclusive,
                           const transaction_lock_options& options = {});

}  // namespace rowlock

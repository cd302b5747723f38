#pragma once

#include <rowlock/lease.hpp>
#include <rowlock/row_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// --- rows
// ------------------------------------------------------------------------------------------

/// Options of lock_row().
struct lock_row_options {
    /// What to read from the row; empty: the key. A column name each, no expressions.
    std::vector<std::string> columns = {};
    /// 5 s is far beyond any healthy transaction that locks rows.
    row_wait wait = row_wait::bounded(std::chrono::seconds{5});
    /// For one statement, its wait for the row apart. As client_options::statement_deadline.
    std::chrono::milliseconds statement_deadline{std::chrono::seconds{5}};
    /// How long a look-up of the table's unique indexes is believed on this connection object.
    std::chrono::milliseconds trust_index_for{std::chrono::minutes{1}};
    /// As row_session_options::accept_double_grants_on_galera.
    bool accept_double_grants_on_galera = false;
};

/// Locks the row until the end of the caller's transaction, and reads it: row_session::lock() on
/// the caller's own handle. Empty if there is no such row (nothing is locked then), or with
/// skip_locked if another has it.
///
/// On SQLite there are no row locks: the file's write lock is taken by a DELETE that matches no
/// row, unless the transaction has it already.
///
/// What an error leaves behind is the database's: PostgreSQL has aborted the transaction (set a
/// savepoint first to go on after it); MySQL and MariaDB have undone the statement alone, after
/// errc::deadlock the whole transaction. The caller rolls back.
/// @throws error as row_session::lock(), and errc::invalid_options outside of a transaction or in
/// an aborted one.
/// Round trips: one, and one or two to look up the index (kept with the connection object); one
/// more where the library does not tell whether a transaction is open (Connector/C++; MySQL: up to
/// three); two more for a bounded wait on PostgreSQL, whose lock_timeout is restored.
[[nodiscard]] std::optional<locked_row> lock_row(sql::connection& db, std::string_view table,
                                                 const key_columns& columns,
                                                 const key_values& values,
                                                 const lock_row_options& options = {});

}  // namespace rowlock

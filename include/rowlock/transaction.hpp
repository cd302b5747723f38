#pragma once

#include <rowlock/advisory_lock.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/row_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Leases in a transaction that the caller began, on the caller's own handle:
///
///     rowlock::postgresql::connection_ref db{my_pgconn};   // or mysql::, sqlite::, soci::
///     db.query("begin", until);
///     rowlock::fence(db, lease);                           // throws unless we are the holder
///     … the caller's own statements …
///     db.query("commit", until);                           // nobody else was the holder till here
///
/// Nothing here begins or ends a transaction. Called outside of one, each throws
/// errc::invalid_options and does nothing that lasts; in one that PostgreSQL has aborted,
/// errc::invalid_options as well, and nothing is sent.
namespace rowlock {

class mutex;
class recursive_mutex;

/// Options of fence().
struct fence_options {
    /// For the whole call, its wait for a take-over in progress included. Kept on the server too,
    /// for drivers that cannot cancel. MySQL (not MariaDB) bounds only the fence itself; there
    /// release_on_commit() waits for a row as long as the caller's innodb_lock_wait_timeout. As
    /// client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// How long the server lets this transaction sit idle before it ends the connection, so that a
    /// process that was stopped inside the transaction does not keep the lock from its successor
    /// for ever. 0 = the session's ttl, which is what the successor had to wait for anyway.
    /// PostgreSQL: for this transaction. MariaDB (MySQL: wait_timeout): whole seconds, rounded up,
    /// until the connection_ref is destroyed, which restores what was set: keep it until the
    /// commit, and destroy several of one handle in reverse order. A shorter limit of the caller's
    /// stays. Only time between statements counts: a process that stops in the middle of a COPY, or
    /// of a result that it has not read, is not idle. SQLite has none: whoever stops inside a write
    /// transaction stops all writers.
    std::chrono::milliseconds max_idle{0};
};

/// Makes the caller's transaction commit only while `held` is the current grant: from here to the
/// end of the transaction nobody can take the lock over or break it; our own heartbeats pass, which
/// write another row. Any number of leases may be fenced in one transaction, and one lease in
/// several at a time. On PostgreSQL transactions that are fenced with one lease and overlap without
/// a gap keep a forced release and a reclaim waiting; a take-over of an ended session not.
///
/// Going back to a savepoint from before the fence undoes it: fence again. So does what commits by
/// itself, as most DDL on MySQL and MariaDB.
///
/// Call it first in the transaction. Where the transaction has one snapshot (REPEATABLE READ and
/// above on PostgreSQL, REPEATABLE READ on MySQL and MariaDB, SQLite) and that is older than the
/// grant, it is refused, because what it reads is stale. At READ COMMITTED each statement has its
/// own: what was read before the fence may be stale, and nothing can tell.
///
/// SQLite has one writer: the fence is a write that also renews the session in this transaction.
/// Heartbeats wait for it, so keep it shorter than ttl − margin, or the client gives its leases up
/// (the commit is safe even then); a second fence before the commit checks the ttl. The same goes
/// for SERIALIZABLE on MySQL and MariaDB, where every read locks.
///
/// If it throws lock_lost, it has written nothing: roll the transaction back. Where PostgreSQL
/// found that out, it has aborted the transaction (up to the last savepoint), so that it cannot be
/// committed by mistake; what is known here already is thrown without a round trip and aborts
/// nothing.
/// @throws error errc::lock_lost if the lease is over, here (no round trip) or in the database
/// (then lost() fires, too); errc::conflict (retryable: run the whole transaction again) if the
/// transaction's snapshot is older than the grant, and on MariaDB from 11.6 on if the lease's row
/// changed meanwhile (the server has then rolled the transaction back); errc::not_owner for a
/// released or empty lease; errc::invalid_options outside a transaction and on a connection to
/// another database; errc::schema_outdated if it does not find the tables; errc::timed_out;
/// errc::deadlock. One round trip. MySQL and MariaDB: three more once per connection, and one
/// (MySQL: two) where the driver does not tell whether a transaction is open (Connector/C++). The
/// lease may be used by other threads meanwhile, the connection not.
void fence(sql::connection& db, const lease& held, const fence_options& options = {});

/// The same with a mutex that the calling thread has locked.
/// @throws error errc::not_owner if it has not
void fence(sql::connection& db, const mutex& locked, const fence_options& options = {});
void fence(sql::connection& db, const recursive_mutex& locked, const fence_options& options = {});

/// Releases the lease as part of the caller's transaction: it is free at the moment of the commit,
/// not before. held() is false from here on and lost() stays silent. If the transaction is rolled
/// back the row is still ours: fence() (which makes it held again) and release_on_commit() may be called
/// in the next attempt, and release() or the destructor give it back. They send that in any case,
/// and would wait for a transaction that is still open, up to a statement deadline: let the lease
/// outlive the transaction.
///
/// Who waits for the lock learns of the commit at the next look (client_options::poll_interval).
///
/// It fences, too: lock_lost if it is not the current grant. Errors, threads and round trips as
/// fence(); MariaDB: one more, MySQL: two.
void release_on_commit(sql::connection& db, lease& held, const fence_options& options = {});

/// Refused. A grant exists for others only once it is committed; until then every other acquirer
/// would wait for this transaction instead of being told, and the lease could not be believed in
/// before a commit that this library does not see. Acquire the lease first, then fence().
lease acquire_in(sql::connection& db, std::string_view name) = delete;

// --- rows ---------------------------------------------------------------------------------------

/// Options of lock_row().
struct lock_row_options {
    /// What to read from the row; empty: the key. A column name each, no expressions.
    std::vector<std::string> columns = {};
    /// 5 s is far beyond any healthy transaction that locks rows.
    row_wait wait = row_wait::bounded(std::chrono::seconds{5});
    /// For one statement, its wait for the row apart. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// How long a look-up of the table's unique indexes is believed on this connection object.
    std::chrono::milliseconds index_cache_ttl{std::chrono::minutes{1}};
    /// As row_session_options::accept_double_grants_in_cluster.
    bool accept_double_grants_in_cluster = false;
};

/// Locks the row until the end of the caller's transaction, and reads it: row_session::lock() on
/// the caller's own handle. Empty if there is no such row, or with skip_locked if another has it.
/// Nothing is locked then, but above READ COMMITTED InnoDB keeps others from inserting into the
/// gap: two transactions that both find nothing and both insert end in errc::deadlock.
///
/// What is known of a table is kept by the name it is given here: say `schema.table` on a
/// connection whose current database or search_path changes.
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
[[nodiscard]] std::optional<table_row> lock_row(sql::connection& db, std::string_view table,
                                                const key_columns& columns, const row_key& values,
                                                const lock_row_options& options = {});
// --- advisory locks of the transaction -----------------------------------------------------------

/// Options of try_transaction_lock() and transaction_lock().
struct transaction_lock_options {
    /// As advisory_options::domain.
    std::string domain = "rowlock";
    /// For each statement, what it waits not counted. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// Above READ COMMITTED the snapshot of the whole transaction is taken at the latest by the
    /// statement that locks, before the lock is ours: what the previous holder committed in between
    /// is not seen. That is refused; true if what you do under the lock rests on no read.
    bool any_isolation = false;
};

/// PostgreSQL: locks `key` until the caller's transaction ends, by commit or roll-back (to a
/// savepoint made before, too). The same keys as advisory_client; each excludes the other. Works
/// behind a transaction pooler. False if another holds it; what the transaction did stays intact.
/// @throws error errc::unsupported on other databases (GET_LOCK survives a commit) and, unless
/// any_isolation is set, above READ COMMITTED; errc::read_only on a standby; errc::invalid_options
/// outside a transaction. In these cases nothing was locked and the transaction goes on.
/// One round trip. The connection must not be used by other threads during the call.
[[nodiscard]] bool try_transaction_lock(sql::connection& db, const advisory_key& key,
                               advisory_mode mode = advisory_mode::exclusive,
                               const transaction_lock_options& options = {});

/// The same, waiting up to `wait`, on the server, in slices of a quarter of a second: false if it
/// was held all that time. lock_timeout does not count meanwhile and is as before afterwards; the
/// server needs the language plpgsql, as every new database has it. The slices stay below
/// deadlock_timeout, so two transactions that wait for each other's keys end by `wait`, not by
/// errc::deadlock: lock several keys in one order.
[[nodiscard]] bool transaction_lock(sql::connection& db, const advisory_key& key,
                           std::chrono::milliseconds wait,
                           advisory_mode mode = advisory_mode::exclusive,
                           const transaction_lock_options& options = {});

}  // namespace rowlock

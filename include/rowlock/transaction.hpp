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

namespace rowlock {

class lease;
class mode_lease;
class multi_lease;
class mutex;
class permits;
class recursive_mutex;
class shared_mutex;

/// @addtogroup fences
/// Leases in a transaction that the caller began, on the caller's own handle:
///
///     rowlock::postgresql::connection_ref db{my_pgconn};   // or mysql::, sqlite::, soci::
///     db.query("begin", until);
///     rowlock::fence(db, lease);                           // throws unless we are the holder
///     … the caller's own statements …
///     db.query("commit", until);                           // no other holder until here
///
/// No function here begins or ends a transaction. Outside of one, each throws errc::invalid_options
/// and leaves no lasting effect; in one that PostgreSQL has aborted, it throws
/// errc::invalid_options as well, and sends nothing.
///
/// @{

/// Options of fence().
struct fence_options {
    /// For the whole call, including its wait for a take-over in progress. Enforced on the server
    /// too, for drivers that cannot cancel. On MySQL release_on_commit() locks the row by a read
    /// with this limit first. Up to one minute; the default is that of
    /// client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// How long the server lets this transaction sit idle before it ends the connection, so that a
    /// process stopped inside the transaction does not keep the lock from its successor forever. 0
    /// = the session's ttl, which is what the successor had to wait for anyway. PostgreSQL: for
    /// this transaction. MariaDB (MySQL: wait_timeout): whole seconds, rounded up, until the
    /// connection_ref is destroyed, which restores the previous setting: keep it until the commit,
    /// and destroy several of one handle in reverse order. A shorter limit of the caller's stays.
    /// Only time between statements counts: a process that stops in the middle of a COPY, or of a
    /// result that it has not read, is not idle. SQLite has no such limit: a process that stops
    /// inside a write transaction stops all writers.
    std::chrono::milliseconds max_idle{0};
    /// Set it if the transaction will be prepared for a two-phase commit by `xa prepare` (MySQL,
    /// MariaDB). Both drop locks at that moment that stand for no write: MariaDB shared ones, MySQL
    /// all of a transaction that has written nothing there. Without it another client may then get
    /// the lock before the commit, and nothing notices. With it the fence writes the lease's row:
    /// transactions that are fenced with one lease wait for each other, and a fence costs one round
    /// trip more (MySQL: two). No effect on PostgreSQL, which keeps the lock of a prepared
    /// transaction, and on SQLite. Not beside a quorum lock: errc::invalid_options.
    bool two_phase = false;
};

/// Makes the caller's transaction commit only while `held` is the current grant: from here to the
/// end of the transaction no client can take the lock over or break it; our own heartbeats pass,
/// because they write another row. Any number of leases may be fenced in one transaction, and one
/// lease in several at a time. On PostgreSQL, transactions that are fenced with one lease and
/// overlap without a gap block a forced release and a reclaim, but not a take-over of an ended
/// session.
///
/// Rolling back to a savepoint from before the fence undoes it: fence again. So does a statement
/// that commits by itself, as most DDL on MySQL and MariaDB, and, unless fence_options::two_phase
/// is set, `xa prepare` there.
///
/// Call it first in the transaction. If the transaction has one snapshot (REPEATABLE READ and above
/// on PostgreSQL, REPEATABLE READ on MySQL and MariaDB, SQLite) that is older than the grant, the
/// fence is refused, because the transaction's reads are stale. At READ COMMITTED each statement
/// has its own snapshot: reads before the fence may be stale, and that cannot be detected.
///
/// SQLite has one writer: the fence is a write that also renews the session in this transaction.
/// Heartbeats wait for the transaction, so keep it shorter than ttl − margin, or the client gives
/// its leases up (the commit is safe even then); a second fence before the commit checks the ttl.
/// The same applies to SERIALIZABLE on MySQL and MariaDB, where every read locks.
///
/// If it throws lock_lost, it has written nothing: roll the transaction back. If PostgreSQL
/// detected the loss, it has aborted the transaction (up to the last savepoint), so that it cannot
/// be committed by mistake; a loss already known to the client is thrown without a round trip and
/// aborts nothing.
/// @throws error errc::lock_lost if the lease is over, as known here (no round trip) or in the
/// database (then lost() fires, too); errc::conflict (retryable: run the whole transaction again)
/// if the transaction's snapshot is older than the grant, and on MariaDB from 11.6 on if the
/// lease's row changed meanwhile (the server has then rolled the transaction back); errc::not_owner
/// for a released, offered or empty lease; errc::invalid_options outside a transaction and on a
/// connection to another database; errc::schema_outdated if it does not find the tables;
/// errc::timed_out; errc::deadlock. One round trip. MySQL and MariaDB: three more once a
/// connection, one (MySQL: two) if the driver tells of no open transaction (Connector/C++). Other
/// threads may use the lease meanwhile.
void fence(sql::connection& db, const lease& held, const fence_options& options = {});

/// The same with a mutex that the calling thread has locked.
/// @throws error errc::not_owner if the thread has not locked it
void fence(sql::connection& db, const mutex& locked, const fence_options& options = {});
/// The same with a recursive_mutex.
void fence(sql::connection& db, const recursive_mutex& locked, const fence_options& options = {});

/// All of several leases, one after the other. One round trip for each.
void fence(sql::connection& db, const multi_lease& held, const fence_options& options = {});

/// Permits of a semaphore: until the end of the transaction they count as used, so that no client
/// gets them in addition to the capacity.
/// MySQL and MariaDB at REPEATABLE READ: a fence of permits that were given back may keep other
/// clients from grants until the caller's rollback.
void fence(sql::connection& db, const permits& held, const fence_options& options = {});

/// A shared_mutex, in any mode: until the end of the transaction no other client holds it in a mode
/// that this one excludes. Any number of shared holders may be fenced at a time.
void fence(sql::connection& db, const mode_lease& held, const fence_options& options = {});
/// The calling thread's hold.
/// @throws error errc::not_owner if the thread has not locked it
void fence(sql::connection& db, const shared_mutex& locked, const fence_options& options = {});

/// Releases the lease as part of the caller's transaction: the lock is free at the moment of the
/// commit, not before. held() is false from here on and lost() stays silent. If the transaction is
/// rolled back the row is still ours: fence() (which makes the lease held again) and
/// release_on_commit() may be called in the next attempt, and release() or the destructor release
/// it. Both always send the release, and would wait for a transaction that is still open, up to
/// statement_timeout: let the lease outlive the transaction.
///
/// Waiters learn of the commit at their next poll (client_options::poll_interval).
///
/// It also fences: lock_lost if the lease is not the current grant. Errors, threads and round trips
/// as fence(); MariaDB: one more, MySQL: two.
void release_on_commit(sql::connection& db, lease& held, const fence_options& options = {});

/// Deleted. Other clients see a grant only once it is committed; until then every other acquirer
/// would wait for this transaction instead of getting an answer, and the lease could not be trusted
/// before a commit that this library does not see. Acquire the lease first, then fence().
lease acquire_in(sql::connection& db, std::string_view name) = delete;

/// @}

// --- rows ---------------------------------------------------------------------------------------

/// @addtogroup rows
/// @{

/// Options of lock_row().
struct lock_row_options {
    /// What to read from the row; empty: the key. One column name each, no expressions.
    std::vector<std::string> columns = {};
    /// 5 s is far beyond any healthy transaction that locks rows.
    row_wait wait = row_wait::bounded(std::chrono::seconds{5});
    /// For one statement, except its wait for the row. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// How long the table's unique indexes, once read, are trusted on this connection object.
    std::chrono::milliseconds index_cache_ttl{std::chrono::minutes{1}};
    /// As row_session_options::accept_double_grants_in_cluster.
    bool accept_double_grants_in_cluster = false;
};

/// Locks the row until the end of the caller's transaction, and reads it: row_session::lock() on
/// the caller's own handle. Empty if there is no such row, or with skip_locked if another
/// transaction has it. In that case nothing is locked, but above READ COMMITTED InnoDB keeps others
/// from inserting into the gap: two transactions that both find nothing and both insert end in
/// errc::deadlock.
///
/// Knowledge of a table is cached under the name given here: write `schema.table` on a connection
/// whose current database or search_path changes.
///
/// SQLite has no row locks: a DELETE that matches no row takes the file's write lock, unless the
/// transaction has it already.
///
/// After an error the database decides what remains: PostgreSQL has aborted the transaction (set a
/// savepoint first to continue after it); MySQL and MariaDB have undone the statement alone, after
/// errc::deadlock the whole transaction. The caller rolls back.
/// @throws error as row_session::lock(), and errc::invalid_options outside of a transaction or in
/// an aborted one.
/// Round trips: one, and one or two to look up the index (kept with the connection object); one
/// more where the library does not tell whether a transaction is open (Connector/C++; MySQL: up to
/// three); two more for a bounded wait on PostgreSQL, whose lock_timeout is restored.
[[nodiscard]] std::optional<table_row> lock_row(sql::connection& db, std::string_view table,
                                                const key_columns& columns, const row_key& values,
                                                const lock_row_options& options = {});

/// @}

// --- advisory locks of the transaction -----------------------------------------------------------

/// @addtogroup advisory
/// @{

/// Options of try_transaction_lock() and transaction_lock().
struct transaction_lock_options {
    /// As advisory_options::domain.
    std::string domain = "rowlock";
    /// For each statement, not counting its wait. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// Above READ COMMITTED the snapshot of the whole transaction is taken at the latest by the
    /// locking statement, before the lock is granted: commits of the previous holder in between are
    /// not seen. That is refused unless this is true; set it if your work under the lock depends on
    /// no read.
    bool any_isolation = false;
};

/// PostgreSQL: locks `key` until the caller's transaction ends, by commit or roll-back (also to a
/// savepoint made before). The same keys as advisory_client; each excludes the other. Works behind
/// a transaction pooler. Returns false if the lock is held elsewhere; the transaction stays intact.
/// @throws error errc::unsupported on other databases (GET_LOCK survives a commit) and, unless
/// any_isolation is set, above READ COMMITTED; errc::read_only on a standby; errc::invalid_options
/// outside a transaction. In these cases nothing was locked and the transaction goes on.
/// One round trip. The connection must not be used by other threads during the call.
[[nodiscard]] bool try_transaction_lock(sql::connection& db, const advisory_key& key,
                                        advisory_mode mode = advisory_mode::exclusive,
                                        const transaction_lock_options& options = {});

/// The same, waiting up to `wait`, on the server, in slices of a quarter of a second: false if the
/// lock was held all that time. lock_timeout has no effect meanwhile and is restored afterwards;
/// the server needs the language plpgsql, which every new database has. The slices stay below
/// deadlock_timeout, so two transactions that wait for each other's keys end by `wait`, not by
/// errc::deadlock: lock several keys in one order.
[[nodiscard]] bool transaction_lock(sql::connection& db, const advisory_key& key,
                                    std::chrono::milliseconds wait,
                                    advisory_mode mode = advisory_mode::exclusive,
                                    const transaction_lock_options& options = {});

/// @}

}  // namespace rowlock

#pragma once

#include <rowlock/lease.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <string_view>

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
    /// release_in() waits for a row as long as the caller's innodb_lock_wait_timeout. As
    /// client_options::statement_deadline.
    std::chrono::milliseconds statement_deadline{std::chrono::seconds{5}};
    /// How long the server lets this transaction sit idle before it ends the connection, so that a
    /// process that was stopped inside the transaction does not keep the lock from its successor
    /// for ever. 0 = the session's ttl, which is what the successor had to wait for anyway.
    /// PostgreSQL: for this transaction. MariaDB (MySQL: wait_timeout): whole seconds, rounded up,
    /// until the connection_ref is destroyed, which restores what was set: keep it until the
    /// commit, and destroy several of one handle in reverse order. A shorter limit of the caller's
    /// stays. Only time between statements counts: a process that stops in the middle of a COPY, or
    /// of a result that it has not read, is not idle. SQLite has none: whoever stops inside a write transaction stops all writers.
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
/// transaction's snapshot is older than the grant; errc::not_owner for a released or empty lease;
/// errc::invalid_options outside a transaction and on a connection to another database;
/// errc::schema_outdated if it does not find the tables; errc::timed_out; errc::deadlock.
/// One round trip. MySQL and MariaDB: three more once per connection, and one (MySQL: two) where
/// the driver does not tell whether a transaction is open (Connector/C++). The lease may be used by
/// other threads meanwhile, the connection not.
void fence(sql::connection& db, const lease& held, const fence_options& options = {});

/// The same with a mutex that the calling thread has locked.
/// @throws error errc::not_owner if it has not
void fence(sql::connection& db, const mutex& locked, const fence_options& options = {});
void fence(sql::connection& db, const recursive_mutex& locked, const fence_options& options = {});

/// Releases the lease as part of the caller's transaction: it is free at the moment of the commit,
/// not before. held() is false from here on and lost() stays silent. If the transaction is rolled
/// back the row is still ours: fence() (which makes it held again) and release_in() may be called
/// in the next attempt, and release() or the destructor give it back. They send that in any case,
/// and would wait for a transaction that is still open, up to a statement deadline: let the lease
/// outlive the transaction.
///
/// Who waits for the lock learns of the commit at the next look (client_options::poll_interval).
///
/// It fences, too: lock_lost if it is not the current grant. Errors, threads and round trips as
/// fence(); MySQL and MariaDB: one more.
void release_in(sql::connection& db, lease& held, const fence_options& options = {});

/// Refused. A grant exists for others only once it is committed; until then every other acquirer
/// would wait for this transaction instead of being told, and the lease could not be believed in
/// before a commit that this library does not see. Acquire the lease first, then fence().
lease acquire_in(sql::connection& db, std::string_view name) = delete;

}  // namespace rowlock

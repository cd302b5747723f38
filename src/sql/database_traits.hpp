#pragma once

#include <rowlock/sql/connection.hpp>

namespace rowlock::sql {

/// What features need to know about a database besides its SQL. Code outside the implementations
/// asks for one of these properties, not for the dialect, so that a new database is one more entry
/// here. What differs between servers of one dialect is in server_facts.
struct database_traits {
    /// One connection writes at a time and locks the whole file: no commit comes between two
    /// statements of a transaction that writes, more connections only compete for the lock, and no
    /// single row is locked (SQLite).
    bool one_writer;
    /// A server in another process answers: a link can be slow or break, and a second connection
    /// can help. SQLite runs in this process.
    bool has_server;
    /// A connection can listen for notifications of its own session (PostgreSQL). MySQL has none,
    /// and SQLite's watch of the file needs no connection.
    bool notifies;
    /// A transaction pooler may stand before the server and change the process behind a connection
    /// (PostgreSQL: PgBouncer and its like).
    bool may_be_pooled;
    /// Several servers may accept writes, and one may show later what was committed on another
    /// (MySQL: Galera, Group Replication). server_facts::member_of says whether this one is a
    /// member.
    bool may_be_clustered;
    /// A setting of the session limits how long a statement waits for a lock. SQLite's has only the
    /// deadline of the call.
    bool limits_lock_waits;
    /// The time in statements comes from this process, so that a testing clock can replace it
    /// (SQLite).
    bool testable_clock;
    /// A datagram that proves the secret of our session is believed before the lease's row is read,
    /// since the database gives that secret only to users who may change the row. A user who may
    /// read an SQLite file need not be allowed to write it.
    bool secrets_prove_writers;
    /// INSERT and UPDATE return the rows that they wrote (RETURNING). In MySQL neither does, in
    /// MariaDB UPDATE does not.
    bool returns_rows;
    /// UPDATE counts the rows that it changed, without those that were as wanted already (MySQL).
    bool counts_changes_only;
    /// A procedure may end the caller's transaction and begin another (MySQL). PostgreSQL refuses
    /// that, and SQLite has no procedures.
    bool procedures_may_commit;
    /// A text and a number are compared as floating point, by a scan of the table (MySQL).
    bool compares_as_floating_point;
};

[[nodiscard]] const database_traits& traits_of(dialect which) noexcept;

}  // namespace rowlock::sql

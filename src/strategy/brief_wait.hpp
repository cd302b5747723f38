#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

/// For who comes back to a row that somebody has locked: a fenced transaction may hold a lease's
/// row for long, also after the lease has expired, and other names must not wait for it.
namespace rowlock::strategy {

/// From now on this connection waits 100 ms for a lock, on MySQL 1 s, the least it knows; not
/// behind a transaction pooler, where a setting would be others'. One round trip, none on SQLite.
void wait_briefly_for_rows(sql::connection& db, sql::deadline until);

/// SQLite has no time limit of its own for locks, and who holds the file now will not for ever: the
/// earlier of `until` and 250 ms from now. Elsewhere `until`.
[[nodiscard]] sql::deadline soon_for_a_row(const sql::connection& db, sql::deadline until);

/// Whether a failure says that somebody has a row locked, and no more.
[[nodiscard]] bool is_locked(const sql::connection& db, const error& failure);

}  // namespace rowlock::strategy

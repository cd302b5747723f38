#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>

/// For who comes back to a row that somebody has locked: a fenced transaction may hold a lease's
/// row for long, also after the lease has expired, and other names must not wait for it.
namespace rowlock::strategy {

/// From now on this connection waits 100 ms for a lock, on MySQL 1 s, the least it knows; not
/// behind a transaction pooler, where a setting would be others'. One round trip, none on SQLite.
void set_short_lock_timeout(sql::connection& db, sql::deadline until);

/// How long a task may take on SQLite before the others get their turn.
constexpr std::chrono::milliseconds brief{250};

/// SQLite has no time limit of its own for locks: the earlier of `until` and `patience` from now.
/// Elsewhere `until`. A task whose statements are slow never fits into a fixed time: its caller
/// doubles the patience each time that the task did not fit.
[[nodiscard]] sql::deadline row_lock_deadline(const sql::connection& db, sql::deadline until,
                                           std::chrono::nanoseconds patience = brief);

/// Whether a failure says that somebody has a row locked, and no more.
[[nodiscard]] bool is_locked(const sql::connection& db, const error& failure);

}  // namespace rowlock::strategy

#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>

/// For tasks that retry a locked row: a fenced transaction may hold a lease's row for long, also
/// after the lease has expired, and other names must not wait for it.
namespace rowlock::sql {

/// Limits this connection's lock waits to 100 ms, on MySQL to 1 s, its minimum. Does nothing behind
/// a transaction pooler, where the setting would affect others. One round trip, none on SQLite.
void set_short_lock_timeout(sql::connection& db, sql::deadline until);

/// How long a task may take on SQLite before the other tasks run.
constexpr std::chrono::milliseconds brief{250};

/// SQLite has no time limit of its own for locks: the earlier of `until` and `patience` from now.
/// Elsewhere `until`. A task whose statements are slow never fits into a fixed time: its caller
/// doubles the patience each time the task did not fit.
[[nodiscard]] sql::deadline row_lock_deadline(const sql::connection& db, sql::deadline until,
                                              std::chrono::nanoseconds patience = brief);

/// Whether a failure means only that a row is locked.
[[nodiscard]] bool is_locked(const sql::connection& db, const error& failure);

}  // namespace rowlock::sql

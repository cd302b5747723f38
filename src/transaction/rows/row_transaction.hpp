#pragma once

#include "sql/connection_pool.hpp"
#include <rowlock/row_session.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>

/// The beginning of a row session's transaction, which is different on each database.
namespace rowlock::detail {

/// The lock timeout of the caller's own statements.
[[nodiscard]] std::chrono::milliseconds lock_timeout_of(const row_session_options& options);

/// Begins a transaction with the limits that the options set. PostgreSQL: two round trips;
/// MySQL: one, and two more where the connection's last session had other options; SQLite: none, or
/// two statements for a new connection.
/// @returns whether the transaction is open; SQLite's begins with the first lock or statement
/// @throws error of the statements
[[nodiscard]] bool begin_row_transaction(sql::connection_pool::borrowed& place,
                                         const row_session_options& options, sql::deadline until);

}  // namespace rowlock::detail

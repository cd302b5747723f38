#pragma once

#include <rowlock/error.hpp>

#include <string_view>

namespace rowlock::sql {

/// @addtogroup connections
/// Maps server errors to errc: one table per dialect, shared by every driver that speaks it.
///
/// @{

/// By SQLSTATE. Source: PostgreSQL documentation, appendix A, "PostgreSQL Error Codes".
[[nodiscard]] errc classify_postgresql(std::string_view sqlstate) noexcept;

/// By error number, which is finer than the SQLSTATE there. Covers server (1xxx, 3xxx, 4xxx) and
/// client (2xxx) numbers. The message tells a trigger that MariaDB failed to read, because a KILL
/// met it, from another syntax error. Source: MySQL and MariaDB error references.
[[nodiscard]] errc classify_mysql(int error_number, std::string_view message = {}) noexcept;

/// By (extended) result code; the message tells a missing table from other SQL errors, which
/// SQLite's codes do not. Source: sqlite.org/rescode.html.
[[nodiscard]] errc classify_sqlite(int result_code, std::string_view message) noexcept;

/// @}

}  // namespace rowlock::sql

#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>

namespace rowlock {

/// @addtogroup connections
/// @{

/// A connection source from a URL, over the drivers that were built (component `drivers`):
/// `postgresql://…` or `postgres://…` (libpq), `mysql://…` or `mariadb://…` (Connector/C++),
/// `sqlite:path` (SQLite3), and a `key=value` conninfo (libpq). For SOCI see driver/soci.hpp. The
/// parameters `rowlock_schema` (PostgreSQL) and `rowlock_prefix` say where rowlock's tables are:
/// `postgresql://localhost/shop?rowlock_schema=locks`.
/// @throws error errc::invalid_url for an unknown scheme, errc::unsupported for a driver that was
/// not built. Connects to nothing.
[[nodiscard]] sql::connection_source open(const std::string& url);

/// @}

}  // namespace rowlock

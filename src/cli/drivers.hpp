#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>

namespace rowlock::cli {

/// As rowlock::open(), with drivers that are loaded on demand. Connects to nothing.
/// @throws failure if the module of a driver is missing, or of another version; error
[[nodiscard]] sql::connection_source open_url(const std::string& url);

}  // namespace rowlock::cli

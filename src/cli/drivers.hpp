#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>

namespace rowlock::cli {

/// What rowlock::open() does, with drivers that are loaded at need. Connects to nothing.
/// @throws failure if the module of a driver is not there, or of another version; error
[[nodiscard]] sql::connection_source open_url(const std::string& url);

}  // namespace rowlock::cli

#pragma once

#include "database.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>

namespace rowlock::sim {

/// The client's side of a connection: a request travels, runs at one moment, and its answer
/// travels back, as the weather has it. From a simulated thread.
/// @throws error errc::database_unreachable
[[nodiscard]] std::unique_ptr<sql::connection> connect(database& to, sql::deadline until);

}  // namespace rowlock::sim

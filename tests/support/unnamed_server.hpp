#pragma once

#include <rowlock/sql/connection.hpp>

namespace support {

/// The same connections, of a server that does not tell which one it is: what a client does without
/// that knowledge.
[[nodiscard]] rowlock::sql::connection_source unnamed(const rowlock::sql::connection_source& inner);

}  // namespace support

#pragma once

#include <rowlock/sql/connection.hpp>

namespace support {

/// The same connections, without the server's identity, for tests of a client without that
/// knowledge.
[[nodiscard]] rowlock::sql::connection_source unnamed(const rowlock::sql::connection_source& inner);

}  // namespace support

#pragma once

#include <rowlock/sql/connection.hpp>

#include <string_view>

namespace support {

/// Whether this asks MySQL or MariaDB for the variables of sql::server_facts: rows of a name and a
/// value.
inline bool asks_for_facts(std::string_view text) {
    return text.find("global_variables where variable_name in ('version'") !=
           std::string_view::npos;
}

/// The same connections, without the server's identity, for tests of a client without that
/// knowledge.
[[nodiscard]] rowlock::sql::connection_source unnamed(const rowlock::sql::connection_source& inner);

}  // namespace support

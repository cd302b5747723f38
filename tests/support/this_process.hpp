#pragma once

#include <string>

/// The connections of this process, counted by itself, since a server that several test programs
/// share shows the connections of all of them.
namespace support {

[[nodiscard]] int threads_of_this_process();

/// The number of connected sockets, unix or TCP.
[[nodiscard]] int connections_of_this_process();

/// An SQL list, `(40112, 40114)`, of the local ports of this process's TCP connections: PostgreSQL
/// shows them as client_port, MariaDB after the colon of a process's host (processlist.hpp).
[[nodiscard]] std::string ports_of_this_process();

}  // namespace support

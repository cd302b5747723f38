#pragma once

#include <string>

/// What this process has, counted by itself: a server that several test programs share shows the
/// connections of all of them.
namespace support {

[[nodiscard]] int threads_of_this_process();

/// Connected sockets, unix or TCP.
[[nodiscard]] int connections_of_this_process();

/// An SQL list, `(40112, 40114)`, of the ports from which this process is connected over TCP:
/// PostgreSQL shows them as client_port, MariaDB behind the colon of a process's host.
[[nodiscard]] std::string ports_of_this_process();

}  // namespace support

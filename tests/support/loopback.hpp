#pragma once

#include <netinet/in.h>

#include <cstdint>

/// Sockets of this machine, for simulated networks.
namespace support {

/// @throws std::system_error by errno, about the call of that name
[[noreturn]] void fail_by_errno(const char* call);

/// 127.0.0.1
[[nodiscard]] sockaddr_in loopback(std::uint16_t port);
/// A socket on a free port. @param flags for socket(), besides SOCK_CLOEXEC
[[nodiscard]] int bound_socket(int flags = 0);
[[nodiscard]] int listening_socket(int backlog, int flags = 0);
[[nodiscard]] std::uint16_t port_of(int socket);

}  // namespace support

#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace contract {

/// The limits of a TCP connection: seconds until the first probe and between two, how many may stay
/// unanswered, and milliseconds for which sent data may.
inline std::array<int, 4> tcp_limits_of(int socket) {
    std::array<int, 4> found{};
    constexpr std::array names{TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT};
    for (std::size_t i = 0; i < names.size(); ++i) {
        socklen_t size = sizeof(int);
        if (getsockopt(socket, IPPROTO_TCP, names.at(i), &found.at(i), &size) != 0) return {};
    }
    return found;
}

/// This process's TCP connections over IPv4 to a port.
inline std::vector<int> sockets_to(std::uint16_t port) {
    constexpr int most = 1024;
    std::vector<int> found;
    for (int socket = 0; socket < most; ++socket) {
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
        if (peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) found.push_back(socket);
    }
    return found;
}

}  // namespace contract

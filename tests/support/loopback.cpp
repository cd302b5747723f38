#include "support/loopback.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace support {

void fail_by_errno(const char* call) {
    throw std::system_error{errno, std::generic_category(), call};
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int bound_socket(int flags) {
    const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (made < 0) fail_by_errno("socket");
    const sockaddr_in address = loopback(0);
    if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        fail_by_errno("bind");
    }
    return made;
}

int listening_socket(int backlog, int flags) {
    const int made = bound_socket(flags);
    if (::listen(made, backlog) != 0) fail_by_errno("listen");
    return made;
}

std::uint16_t port_of(int socket) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        fail_by_errno("getsockname");
    }
    return ntohs(address.sin_port);
}

}  // namespace support

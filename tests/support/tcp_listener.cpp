#include "support/tcp_listener.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace support {
namespace {

[[noreturn]] void fail(const char* what) {
    throw std::system_error{errno, std::generic_category(), what};
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int bound_socket() {
    const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) fail("socket");
    const sockaddr_in address = loopback(0);
    if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        fail("bind");
    return made;
}

int listening_socket() {
    const int made = bound_socket();
    if (::listen(made, 64) != 0) fail("listen");
    return made;
}

std::uint16_t port_of(int socket) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        fail("getsockname");
    }
    return ntohs(address.sin_port);
}

}  // namespace

silent_listener::silent_listener() : socket_{listening_socket()}, port_{port_of(socket_)} {}
silent_listener::~silent_listener() {
    ::close(socket_);
}

closed_port::closed_port() : socket_{bound_socket()}, port_{port_of(socket_)} {}
closed_port::~closed_port() {
    ::close(socket_);
}

}  // namespace support

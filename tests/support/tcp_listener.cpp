#include "support/tcp_listener.hpp"

#include "support/loopback.hpp"

#include <unistd.h>

namespace support {

silent_listener::silent_listener() : socket_{listening_socket(64)}, port_{port_of(socket_)} {}
silent_listener::~silent_listener() {
    ::close(socket_);
}

closed_port::closed_port() : socket_{bound_socket()}, port_{port_of(socket_)} {}
closed_port::~closed_port() {
    ::close(socket_);
}

}  // namespace support

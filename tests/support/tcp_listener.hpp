#pragma once

#include <cstdint>

namespace support {

/// A TCP server on 127.0.0.1 that completes the handshake (the kernel does) and sends nothing, as a
/// stopped database or a firewall appears to a client.
class silent_listener {
public:
    silent_listener();
    silent_listener(const silent_listener&) = delete;
    silent_listener& operator=(const silent_listener&) = delete;
    ~silent_listener();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

private:
    int socket_;
    std::uint16_t port_;
};

/// A port of 127.0.0.1 at which no program listens. It is bound, so that no other program takes it.
class closed_port {
public:
    closed_port();
    closed_port(const closed_port&) = delete;
    closed_port& operator=(const closed_port&) = delete;
    ~closed_port();

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

private:
    int socket_;
    std::uint16_t port_;
};

}  // namespace support

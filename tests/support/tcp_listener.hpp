#pragma once

#include <cstdint>
#include <memory>

namespace support {

/// A TCP server on 127.0.0.1 that completes the handshake (the kernel does) and never says a word:
/// what a stopped database or a firewall in between looks like to a client.
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

/// A port of 127.0.0.1 at which nobody listens: bound, so that nobody else takes it meanwhile.
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

/// Stands between a client and the server at 127.0.0.1:`target` (or a unix socket path) and passes
/// bytes on, until told to swallow them: a connection that breaks, or falls silent, at the moment a
/// test wants.
class tcp_relay {
public:
    explicit tcp_relay(std::uint16_t target);
    tcp_relay(const tcp_relay&) = delete;
    tcp_relay& operator=(const tcp_relay&) = delete;
    ~tcp_relay();

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// Passes nothing on from now on, in either direction. New connections are accepted and
    /// ignored.
    void fall_silent();
    /// Passes requests on and swallows what the server answers.
    void swallow_answers();
    /// Passes everything on again, what was held back first.
    void resume();
    /// Closes every connection.
    void cut();

private:
    class state;
    std::unique_ptr<state> state_;
};

}  // namespace support

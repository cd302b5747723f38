#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// A proxy between clients and the server at 127.0.0.1:`target`, which forwards bytes and can
/// inject faults. Settings apply to every connection, also later ones, or to one of them. It has
/// one thread, which never blocks: a client that reads nothing stops only itself.
class tcp_relay {
public:
    enum class direction : unsigned char { requests, answers, both };

    explicit tcp_relay(std::uint16_t target);
    tcp_relay(const tcp_relay&) = delete;
    tcp_relay& operator=(const tcp_relay&) = delete;
    ~tcp_relay();

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// Leads new connections to another server.
    void lead_to(std::uint16_t target);

    /// Holds all bytes back. New connections are accepted and ignored.
    void fall_silent() { hold(direction::both); }
    /// Forwards requests and holds the server's answers back.
    void swallow_answers() { hold(direction::answers); }
    /// Forwards everything again, first what was held back.
    void resume();
    /// Closes every connection. Bytes that were held back are lost.
    void cut();

    void hold(direction which);
    /// Drops all bytes, also after resume(), since a connection that lost bytes is useless.
    void drop(direction which);
    /// Delays each piece by `time`; 0 ends it.
    void delay(direction which, std::chrono::milliseconds time);
    /// A slow link: each piece takes half a round trip, and a new connection a whole one before its
    /// first. With the probability `loss` a piece is lost: it is sent again after `resend`, and
    /// after twice that if it is lost again, and later pieces wait for it. Applies to new
    /// connections and to bytes that arrive from now on.
    struct link {
        std::chrono::milliseconds round_trip{0};
        double loss = 0;
        std::chrono::milliseconds resend{0};
        unsigned seed = 1;
    };
    void become(const link& how);
    /// Changes the first bytes on each new connection, in the relay's thread.
    void alter_first(std::function<void(std::string&)> how);
    /// Closes new connections at once.
    void refuse(bool new_ones);

    /// Forwards the request of the n-th exchange from now on, of any connection, and holds back its
    /// answer and all later bytes of the server. An exchange starts with a client's bytes after an
    /// answer, or with its first. 0 ends it.
    void hold_answer(int n);
    /// Waits until that answer has arrived, so that the server has executed the request. False
    /// after `limit`.
    [[nodiscard]] bool holds_answer(std::chrono::milliseconds limit = std::chrono::seconds{20});

    /// The numbers of the open connections, in the order of their arrival.
    [[nodiscard]] std::vector<int> connections() const;
    void hold(int connection, direction which);
    void resume(int connection);
    void cut(int connection);

    struct counts {
        std::uint64_t connections = 0;  ///< accepted
        std::uint64_t refused = 0;      ///< closed at once
        std::uint64_t exchanges = 0;    ///< see hold_answer()
        std::uint64_t request_bytes = 0;
        std::uint64_t answer_bytes = 0;
    };
    [[nodiscard]] counts counted() const;

private:
    class state;
    std::unique_ptr<state> state_;
};

}  // namespace support

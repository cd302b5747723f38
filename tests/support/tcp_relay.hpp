#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// A proxy between clients and the server at 127.0.0.1:`target`: passes bytes on, until it is told
/// to do harm. What is set applies to every connection, also later ones, or to one of them. One
/// thread, which waits for nobody: a client that reads nothing stops only itself.
class tcp_relay {
public:
    enum class direction : unsigned char { requests, answers, both };

    explicit tcp_relay(std::uint16_t target);
    tcp_relay(const tcp_relay&) = delete;
    tcp_relay& operator=(const tcp_relay&) = delete;
    ~tcp_relay();

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// New connections go to another server from now on.
    void lead_to(std::uint16_t target);

    /// Keeps what arrives and passes nothing on. New connections are accepted and ignored.
    void fall_silent() { hold(direction::both); }
    /// Passes requests on and keeps what the server answers.
    void swallow_answers() { hold(direction::answers); }
    /// Passes everything on again, what was kept first.
    void resume();
    /// Closes every connection; what was kept for it is gone.
    void cut();

    void hold(direction which);
    /// Reads and throws away, also after resume(): a connection that lost bytes is of no use.
    void drop(direction which);
    /// Each piece arrives so much later; 0 ends it.
    void delay(direction which, std::chrono::milliseconds time);
    /// A slow link: each piece takes half a round trip, and a new connection a whole one before its
    /// first. With the chance `loss` a piece is lost: it is sent again after `resend`, and after
    /// twice that if it is lost again; what follows it waits behind it. Applies to new connections
    /// and to what arrives from now on.
    struct link {
        std::chrono::milliseconds round_trip{0};
        double loss = 0;
        std::chrono::milliseconds resend{0};
        unsigned seed = 1;
    };
    void become(const link& how);
    /// Changes what a client says first on each new connection, on the relay's thread.
    void alter_first(std::function<void(std::string&)> how);
    /// Closes new connections at once.
    void refuse(bool new_ones);

    /// The n-th exchange from now on, whichever connection has it, is the last whose request is
    /// passed on as usual: its answer, and all that the server says later, is kept. An exchange
    /// begins with what a client says after an answer, or first of all. 0 ends it.
    void hold_answer(int n);
    /// Waits until that answer lies here: the server has done what it was asked. False after
    /// `limit`.
    [[nodiscard]] bool holds_answer(std::chrono::milliseconds limit = std::chrono::seconds{20});

    /// Numbers of the connections that are open, in the order in which they came.
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

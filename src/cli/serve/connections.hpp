#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

namespace rowlock::cli::serving {

/// An open connection of the server. Members without a word belong to `connections`.
struct connection_state {
    using clock = std::chrono::steady_clock;

    const int socket;
    const std::string
        client;  ///< its address; of IPv6 the network, which one client has as a whole
    const clock::time_point accepted;
    short awaited = POLLIN;  ///< POLLIN or POLLOUT if its client must act next; 0: we must
    clock::time_point since = accepted;
    clock::duration waited{};  ///< before
    bool taken = false;        ///< by a thread, which closes it
    bool ended = false;
};

/// Which connections are open, and which of them go when threads or descriptors are short: those
/// whose clients let the server wait, never one that the server works for. Of those the longest
/// silent one of the address that has the most. Thread-safe.
class connections {
public:
    using pointer = std::shared_ptr<connection_state>;

    /// @param threads that serve them
    explicit connections(std::size_t threads);

    /// Begins with a socket that was just accepted. Returns null if it was closed: too many are
    /// open, and none is silent.
    [[nodiscard]] pointer admit(int socket);
    /// For a thread that takes it up. False if it has ended, and is closed.
    [[nodiscard]] bool take(const pointer& one);
    /// Its thread waits for its client to send (POLLIN) or to take what was sent (POLLOUT).
    void begin_wait(const pointer& one, short what);
    void end_wait(const pointer& one);
    /// Closes it: its thread has finished.
    void close(const pointer& one);
    /// Ends all, and those that come.
    void end_all();

private:
    [[nodiscard]] std::size_t living() const;
    [[nodiscard]] std::size_t living_of(const std::string& client) const;
    /// Until each that lives has a thread, as far as some are silent.
    void make_room();
    /// @param client an empty one: any
    bool end_longest_silent(const std::string& client);
    void end(const pointer& one);

    const std::size_t threads_, most_;
    std::mutex mutex_;
    std::list<pointer> open_;
    bool ending_ = false;
};

}  // namespace rowlock::cli::serving

#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

namespace rowlock::sql {

/// One connection on which several users take turns: a statement at a time, or a transaction from
/// query("begin") to the end of query("commit") or query("rollback"). Each user has a connection
/// object of its own, which one thread at a time uses, as any. Thread-safe.
///
/// Nothing else that belongs to a connection is kept apart: its settings are those of all, and
/// temporary tables must not be used, nor user-level locks but the one of wake_up::wake(). When it
/// breaks, it is broken for all; each joins again, and the first of them connects. Nothing is
/// posted.
class shared_connection {
public:
    enum class rank : unsigned char {
        usual,
        first,  ///< has the next turn, before all that wait and are not
    };
    struct settings {
        /// Connects and sets up, for all users.
        std::function<std::unique_ptr<connection>(deadline)> connect;
        /// Called after a turn on a connection with a listener, unless the listener is of usual
        /// rank and the turn was its own: it may have read what the listener's descriptor was to
        /// show. Also called when the connection turned out to be broken, or renew() replaced it.
        /// It must not use the connection.
        std::function<void()> on_used = {};
    };

    explicit shared_connection(settings how);
    shared_connection(const shared_connection&) = delete;
    shared_connection& operator=(const shared_connection&) = delete;
    ~shared_connection();

    /// The connection that exists, or a new one if there is none or it is broken. It is closed with
    /// the last of its users. No round trip but for connecting.
    /// @throws error errc::timed_out if another thread is still connecting; those of connecting
    [[nodiscard]] std::unique_ptr<connection> join(rank who, deadline until);
    /// The next that joins gets a new connection. A statement or transaction that runs on the one
    /// before goes on to its end; then, and for all other users at once, alive() is false and each
    /// joins again.
    void renew() noexcept;
    [[nodiscard]] bool connected() const;
    /// How long the turn that runs has lasted; 0 if none does.
    [[nodiscard]] std::chrono::nanoseconds busy_for() const;
    /// How many users wait for their turns.
    [[nodiscard]] std::size_t waiting() const;

private:
    class wire;
    class user;

    const settings how_;
    mutable std::mutex mutex_;
    std::condition_variable made_;
    bool connecting_ = false;
    std::weak_ptr<wire> current_;
};

}  // namespace rowlock::sql

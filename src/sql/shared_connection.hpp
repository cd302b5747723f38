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
/// object of its own, which, like any, one thread at a time uses. Thread-safe.
///
/// Nothing else is kept apart: the users share the connection's settings, and must not use
/// temporary tables, nor user-level locks except that of mysql_wait::wake(). When the connection
/// breaks, it is broken for all users; each joins again, and the first of them connects. No
/// statement is posted.
class shared_connection {
public:
    enum class rank : unsigned char {
        usual,
        first,  ///< gets the next turn, before all waiting users of usual rank
    };
    struct settings {
        /// Connects and sets up, for all users.
        std::function<std::unique_ptr<connection>(deadline)> connect;
        /// Called after a turn on a connection with a listener, unless the listener is of usual
        /// rank and the turn was its own: the turn may have read what the listener's descriptor was
        /// to show. Also called when the connection is found broken or renew() replaced it. Must
        /// not use the connection.
        std::function<void()> on_used = {};
    };

    explicit shared_connection(settings how);
    shared_connection(const shared_connection&) = delete;
    shared_connection& operator=(const shared_connection&) = delete;
    ~shared_connection();

    /// Joins the existing connection, or a new one if there is none or it is broken. It is closed
    /// with its last user. No round trip except for connecting.
    /// @throws error errc::timed_out if another thread is still connecting; those of connecting
    [[nodiscard]] std::unique_ptr<connection> join(rank who, deadline until);
    /// The next user to join gets a new connection. A statement or transaction on the old one runs
    /// to its end; then, and at once for all other users, alive() is false and each joins again.
    void renew() noexcept;
    [[nodiscard]] bool connected() const;
    /// How long the current turn has lasted; 0 if there is none.
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

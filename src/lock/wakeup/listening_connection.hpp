#pragma once

#include "base/clock.hpp"
#include "lock/wakeup/before_listen.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rowlock::wakeup {

using std::chrono::nanoseconds;

/// PostgreSQL: the connection on which a client listens for its session. Nothing else is sent on
/// it, and LISTEN runs on a thread that nothing waits for: no heartbeat, grant or release stands
/// behind one that the server does not answer (before_listen.hpp says why it may not). Where all of
/// the client shares one connection, it is that one.
///
/// One attempt at a time. While the queue of notifications is long none is made; after one that was
/// not answered in time, and while the server still runs that, none for minutes. Until then the
/// client polls, as it does behind a pooler. Thread-safe.
class listening_connection {
public:
    struct parts {
        /// Makes a connection, or joins the shared one; on the attempt's thread.
        std::function<std::unique_ptr<sql::connection>(sql::deadline)> connect;
        const sql::connection_source& source;  ///< outlives this object
        std::function<nanoseconds()> now;
        std::chrono::milliseconds statement_timeout;
        /// Called by the attempt's thread once it listens: what was sent earlier was missed.
        std::function<void()> on_listening;
        /// Called by the reader that finds it broken: the server may have gone, and what was sent
        /// to it on other connections with it.
        std::function<void()> on_broken;
    };

    explicit listening_connection(parts with) : with_{std::move(with)} {}
    listening_connection(const listening_connection&) = delete;
    listening_connection& operator=(const listening_connection&) = delete;
    ~listening_connection() { close(); }

    /// Has the client listen for this session, unless it does, or an attempt runs or is not due.
    /// Never waits.
    /// @param like any connection of the client
    void want(session_id session, const std::string& channel, sql::connection& like) noexcept;
    /// Whether an attempt runs, and close() was not called.
    [[nodiscard]] bool is_attempting() const noexcept;
    /// The session that it listens for, 0 if none.
    [[nodiscard]] session_id listening_for() const noexcept { return listening_for_; }
    /// To be polled, not read; -1 if it does not listen.
    [[nodiscard]] int descriptor() const noexcept;
    /// What has arrived. Never waits. Closes the connection if it turns out to be broken.
    [[nodiscard]] std::vector<sql::notification> take() noexcept;
    /// False once it is known that the driver cannot listen, or that a pooler is in between.
    [[nodiscard]] bool is_possible() const noexcept { return !impossible_; }
    /// Whether it has a connection, which an attempt may still be making.
    [[nodiscard]] bool is_connected() const noexcept { return connected_; }

    /// Makes no further attempt, and waits for the running one: a statement deadline at most.
    void close() noexcept;

private:
    void attempt(session_id session, const std::string& channel) noexcept;
    [[nodiscard]] std::unique_ptr<sql::connection> listen(const std::string& channel,
                                                          nanoseconds& pause);
    [[nodiscard]] std::optional<std::vector<sql::notification>> take_or_drop() noexcept;
    void drop(nanoseconds pause) noexcept;
    [[nodiscard]] nanoseconds pause_after_failure() noexcept;

    const parts with_;
    std::atomic<session_id> listening_for_{session_id{}};
    std::atomic<bool> impossible_{false};
    std::atomic<bool> connected_{false};
    mutable std::mutex mutex_;
    bool closed_ = false;
    bool attempting_ = false;
    nanoseconds next_{0};   ///< when an attempt may be made
    nanoseconds since_{0};  ///< it listens
    int failures_ = 0;      ///< in a row
    std::unique_ptr<sql::connection> db_;
    std::thread thread_;
    std::optional<server_process> abandoned_;  ///< the attempt's thread only
};

}  // namespace rowlock::wakeup

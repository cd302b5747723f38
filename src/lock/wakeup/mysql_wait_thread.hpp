#pragma once

#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rowlock::detail {

/// For databases that cannot notify (MySQL, MariaDB): a thread that sleeps in the server for a
/// session, as long as a thread waits in it; the client that serves the session wakes it there.
///
/// Its connection reads no table. A KILL QUERY that comes late ends what the connection runs next,
/// and MariaDB takes a trigger whose parsing was cut off, while a table was opened, for one with an
/// error in its body: statements of all clients fail with error 1064 until that table is reopened.
class mysql_wait_thread {
public:
    struct surroundings {
        std::function<std::unique_ptr<sql::connection>(sql::deadline)> connect;
        /// The sleep is about to begin: wake-ups until it has begun are missed. `again`: a sleep
        /// for the same session and wait lock has just come to its end.
        std::function<void(bool again)> on_sleep;
        /// Reads what was served, on another connection. Must not throw.
        std::function<void()> on_woken;
        /// The session cannot be woken now.
        std::function<void()> on_doubt;
        /// The connection is gone, and with it perhaps the server, and what that had committed.
        std::function<void()> on_broken;
        /// For connecting, and for the server to answer when a sleep is over.
        std::chrono::milliseconds statement_timeout;
    };

    /// @throws std::system_error if no thread can be started
    explicit mysql_wait_thread(surroundings around);
    mysql_wait_thread(const mysql_wait_thread&) = delete;
    mysql_wait_thread& operator=(const mysql_wait_thread&) = delete;
    /// Waits for the sleep that is under way: two seconds at most while the server answers, no time
    /// if its wait lock was released.
    ~mysql_wait_thread();

    /// Sleeps in the wait for a wait lock that is held. A sleep under way goes on to its end.
    void sleep_for(session_id session, std::int64_t wait_lock) noexcept;
    void pause() noexcept;  ///< no thread waits: no further sleep for now
    /// The session of the latest sleep_for(), 0 after pause().
    [[nodiscard]] session_id sleeps_for() const noexcept;
    /// The session whose sleep is under way or about to be, so that it can be woken, or 0.
    [[nodiscard]] session_id asleep_for() const noexcept { return asleep_for_; }
    [[nodiscard]] bool connected() const noexcept { return connected_; }
    void stop() noexcept;  ///< no further sleep ever

private:
    struct place {
        session_id session{};  ///< 0: none
        std::int64_t wait_lock = 0;
        bool operator==(const place&) const = default;
    };

    void run() noexcept;
    bool sleep(const place& where) noexcept;
    void connect(const place& where);
    void disconnect() noexcept;
    void doubt() noexcept;

    const surroundings around_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    place wanted_;
    bool stopping_ = false;
    std::atomic<session_id> asleep_for_{session_id{}};
    std::atomic<bool> connected_{false};

    // Used by the thread alone.
    std::unique_ptr<sql::connection> db_;
    place connected_for_;
    bool slept_to_its_end_ = false;  ///< of the latest sleep, on this connection
    std::int64_t opened_ = 0;        ///< the last wait lock that was found free

    std::thread thread_;
};

}  // namespace rowlock::detail

#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rowlock::detail {

/// Where the database cannot notify (MySQL, MariaDB): a thread that sleeps in the server for the
/// sake of a session, as long as somebody waits in it, and is woken there by whoever serves it.
class sleeper {
public:
    struct surroundings {
        std::function<std::unique_ptr<sql::connection>(sql::deadline)> connect;
        /// The sleep is about to begin: what was said until it has begun is not heard.
        std::function<void()> on_sleep;
        std::function<void()> on_woken;
        /// For connecting, and for the server to answer when a sleep is over.
        std::chrono::milliseconds statement_deadline;
    };

    /// @throws std::system_error if no thread can be started
    explicit sleeper(surroundings around);
    sleeper(const sleeper&) = delete;
    sleeper& operator=(const sleeper&) = delete;
    ~sleeper();

    /// 0: nobody waits. What is slept already is slept to its end.
    void sleep_for(std::int64_t session) noexcept;
    /// Whether a sleep is under way or about to be, so that one can be woken.
    [[nodiscard]] bool asleep() const noexcept { return asleep_; }
    [[nodiscard]] bool connected() const noexcept { return connected_; }
    /// No further sleep. The one that is under way is woken on `db`, or ends within two seconds.
    void stop(sql::connection* db, sql::deadline until) noexcept;

private:
    void run() noexcept;
    bool sleep(std::int64_t session) noexcept;

    const surroundings around_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t session_ = 0;       ///< to sleep for
    std::int64_t sleeping_for_ = 0;  ///< slept for now
    bool stopping_ = false;
    bool over_ = false;
    std::atomic<bool> asleep_{false};
    std::atomic<bool> connected_{false};
    std::unique_ptr<sql::connection> db_;  ///< of the thread alone
    std::thread thread_;
};

}  // namespace rowlock::detail

#pragma once

#include "lock/wakeup/mysql_wait_thread.hpp"
#include "lock/wakeup/wakeup_source.hpp"
#include <rowlock/ids.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace rowlock::wakeup {

/// MySQL and MariaDB: a second thread sleeps in the server for the session of the waiters, before a
/// wait lock that the connection of listen() holds. One wait lock for each session and each
/// connection: a sleep for another session, or before the wait lock of a connection that is gone,
/// ends at once.
class mysql_wait_source final : public wakeup_source {
public:
    explicit mysql_wait_source(source_parts with);
    /// Waits for the sleep that is under way: no time if detach() was called.
    ~mysql_wait_source() override;

    bool listen(sql::connection& db, const recipient& current, session_id waiting,
                sql::deadline until) override;
    void detach() noexcept override { wait_lock_ = 0; }
    void rest() noexcept override;
    void stop() noexcept override;
    [[nodiscard]] kind wakes(session_id session) const noexcept override;
    [[nodiscard]] bool must_listen_for(session_id waiting) const noexcept override;
    [[nodiscard]] std::size_t connections() const noexcept override;

private:
    [[nodiscard]] bool take_wait_lock_for(session_id session, sql::connection& db,
                                          sql::deadline until);
    void start();

    const source_parts parts_;
    std::atomic<bool> may_sleep_;
    std::int64_t wait_lock_ = 0;  ///< that the connection has, 0: none …
    session_id lock_session_{};   ///< … for a sleep of this session
    mutable std::mutex mutex_;    ///< guards the pointer, while the thread is made
    std::unique_ptr<detail::mysql_wait_thread> thread_;
};

}  // namespace rowlock::wakeup

#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace rowlock::detail {

/// Which connection has sent releases whose answers nobody has read. One at most: whoever uses
/// another one reads them first, so that whatever this client sends comes after its releases.
/// Thread-safe.
class posted_releases {
public:
    /// One is about to be posted. False if another connection has some.
    bool begin(const sql::connection& on) {
        const std::lock_guard lock{mutex_};
        if (on_ != nullptr && on_ != &on) return false;
        on_ = &on;
        ++count_;
        return true;
    }

    /// Its answer was read, or it was not posted after all.
    void end() {
        const std::lock_guard lock{mutex_};
        if (--count_ > 0) return;
        on_ = nullptr;
        ended_.notify_all();
    }

    [[nodiscard]] const sql::connection* on() const noexcept { return on_; }

    /// Until none is left. False if `until` passed first.
    bool wait(sql::deadline until) {
        std::unique_lock lock{mutex_};
        return ended_.wait_until(lock, until, [&] { return on_ == nullptr; });
    }

private:
    std::mutex mutex_;
    std::condition_variable ended_;
    std::atomic<const sql::connection*> on_{nullptr};
    std::size_t count_ = 0;
};

}  // namespace rowlock::detail

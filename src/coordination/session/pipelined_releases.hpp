#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace rowlock::detail {

/// The connection that carries releases whose answers are not read yet; at most one. Before a call
/// uses another connection of the pool the client reads these answers, so that the call comes after
/// the releases. Thread-safe.
class pipelined_releases {
public:
    /// Counts a release that is about to be posted. Returns false if another connection has some.
    bool begin(const sql::connection& on) {
        const std::lock_guard lock{mutex_};
        if (on_ != nullptr && on_ != &on) return false;
        on_ = &on;
        ++count_;
        return true;
    }

    /// Uncounts one: its answer was read, or it was not posted after all.
    void end() {
        const std::lock_guard lock{mutex_};
        if (--count_ > 0) return;
        on_ = nullptr;
        ended_.notify_all();
    }

    [[nodiscard]] const sql::connection* on() const noexcept { return on_; }

    /// Waits until none is left. Returns false if `until` passed first.
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

#pragma once

#include "base/clock.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// Notifications, outside the tables, that another client has changed the rows of a session. A
/// hint: it moves the next heartbeat forward, at most once a second, since any client that can read
/// the session's secret can send anything. Thread-safe.
class change_news {
public:
    /// As last read. Atomic: a late heartbeat is also sent on a second connection.
    std::atomic<std::int64_t> revision{0};
    /// How often a heartbeat was refused, and has led to a look at our rows: what was said of them
    /// before may have changed.
    std::atomic<std::int64_t> looks{0};

    /// Whether this revision is later than the known one and any notified one.
    [[nodiscard]] bool is_news(std::int64_t of) const;
    /// Records a proved notification. True if the next heartbeat is now due at news_at() and was
    /// not before.
    bool tell(std::int64_t of, nanoseconds now);
    /// When to send the heartbeat that reads the news; base::alarm::never if there is none.
    [[nodiscard]] nanoseconds news_at() const;
    /// The greatest revision notified.
    [[nodiscard]] std::int64_t announced() const;
    /// A heartbeat that was sent when announced() was `before` has confirmed the revision that we
    /// know.
    void confirm(std::int64_t before, nanoseconds now);

private:
    void plan(nanoseconds now);

    mutable std::mutex mutex_;
    std::int64_t announced_ = 0;
    nanoseconds news_at_{0};
    nanoseconds no_news_before_{0};
};

}  // namespace rowlock::detail

#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// The server's processes on whose connections a statement of this client met its deadline and no
/// cancel was answered: the client has dropped those connections, the server may still run the
/// statements. Limits them, so that a server which answers nothing is not filled with connections.
/// No clock: the times are the caller's. Thread-safe.
class abandoned_connections {
public:
    /// A connection was dropped without an answer.
    void add(std::int64_t process, nanoseconds now);
    /// Those to be asked about before another connection is used, if there are `most` or more;
    /// else none. One that was dropped ten minutes ago counts no more: its number may be another's.
    [[nodiscard]] std::vector<std::int64_t> if_too_many(std::size_t most, nanoseconds now);
    /// The server still runs a statement in these; all others are forgotten. Returns whether there
    /// are fewer than `most`; if not, none is to be asked about for a while.
    bool keep(std::span<const std::int64_t> running, std::size_t most, nanoseconds now);
    /// Whether another connection would be one too many, as the server said a moment ago.
    [[nodiscard]] bool refuses(std::size_t most, nanoseconds now) const;

private:
    mutable std::mutex mutex_;
    std::map<std::int64_t, nanoseconds> since_;
    nanoseconds refused_until_{0};
    nanoseconds pause_{0};
};

}  // namespace rowlock::detail

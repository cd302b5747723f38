#pragma once

#include <rowlock/client.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace support {

/// Keeps the events that a client reports, from any thread. It must outlive that client.
class event_log {
public:
    [[nodiscard]] rowlock::event_callback callback() {
        return [this](const rowlock::event& what) {
            const std::lock_guard lock{mutex_};
            events_.push_back(what);
        };
    }
    [[nodiscard]] bool has(rowlock::event_kind kind) const {
        return count([&](const rowlock::event& each) { return each.kind == kind; }) > 0;
    }
    [[nodiscard]] bool has(rowlock::event_kind kind, rowlock::loss_reason reason) const {
        return count(kind, reason) > 0;
    }
    [[nodiscard]] std::int64_t count(rowlock::event_kind kind, rowlock::loss_reason reason) const {
        return count(
            [&](const rowlock::event& each) { return each.kind == kind && each.reason == reason; });
    }

private:
    template <typename Matches>
    std::int64_t count(Matches matches) const {
        const std::lock_guard lock{mutex_};
        return std::ranges::count_if(events_, matches);
    }

    mutable std::mutex mutex_;
    std::vector<rowlock::event> events_;
};

}  // namespace support

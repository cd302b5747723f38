#include "lock/session/abandoned_connections.hpp"

#include <algorithm>

namespace rowlock::detail {

using namespace std::chrono_literals;

void abandoned_connections::add(std::int64_t process, nanoseconds now) {
    const std::lock_guard lock{mutex_};
    since_[process] = now;
}

std::vector<std::int64_t> abandoned_connections::if_too_many(std::size_t most, nanoseconds now) {
    constexpr auto longest = 10min;
    const std::lock_guard lock{mutex_};
    std::erase_if(since_, [&](const auto& each) { return now - each.second > longest; });
    std::vector<std::int64_t> all;
    if (since_.size() < most) return all;
    for (const auto& [process, since] : since_) all.push_back(process);
    return all;
}

bool abandoned_connections::keep(std::span<const std::int64_t> running, std::size_t most,
                                 nanoseconds now) {
    constexpr nanoseconds shortest = 500ms;
    constexpr nanoseconds longest = 2s;  // a heartbeat may have to wait as long
    const std::lock_guard lock{mutex_};
    std::erase_if(since_, [&](const auto& each) {
        return std::ranges::find(running, each.first) == running.end();
    });
    if (since_.size() < most) {
        pause_ = nanoseconds{0};
        return true;
    }
    pause_ = std::clamp(2 * pause_, shortest, longest);
    refused_until_ = now + pause_;
    return false;
}

bool abandoned_connections::refuses(std::size_t most, nanoseconds now) const {
    const std::lock_guard lock{mutex_};
    return since_.size() >= most && now < refused_until_;
}

}  // namespace rowlock::detail

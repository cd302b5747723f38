#include "lock/queue/contended_names.hpp"

namespace rowlock::detail {

void contended_names::note(const std::string& name, time now) {
    constexpr auto memory = std::chrono::seconds{1};
    constexpr std::size_t many = 1024;
    const std::lock_guard lock{mutex_};
    if (until_.size() >= many) {
        std::erase_if(until_, [&](const auto& each) { return each.second < now; });
    }
    until_[name] = now + memory;
}

void contended_names::forget(const std::string& name) {
    const std::lock_guard lock{mutex_};
    until_.erase(name);
}

bool contended_names::has(const std::string& name, time now) const {
    const std::lock_guard lock{mutex_};
    return has_locked(name, now);
}

bool contended_names::has(const std::string& name) const {
    const std::lock_guard lock{mutex_};
    return !until_.empty() && has_locked(name, steady::now());
}

/// With the mutex held.
bool contended_names::has_locked(const std::string& name, time now) const {
    const auto found = until_.find(name);
    return found != until_.end() && now < found->second;
}

std::size_t contended_names::size() const {
    const std::lock_guard lock{mutex_};
    return until_.size();
}

}  // namespace rowlock::detail

#include "coordination/queue/contended_names.hpp"

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

bool contended_names::has(const std::string& name, time now) const {
    const std::lock_guard lock{mutex_};
    const auto found = until_.find(name);
    return found != until_.end() && now < found->second;
}

std::size_t contended_names::size() const {
    const std::lock_guard lock{mutex_};
    return until_.size();
}

}  // namespace rowlock::detail

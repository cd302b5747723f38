#include "coordination/lease/name_memory.hpp"

namespace rowlock::detail {

void name_memory::note_free(const std::string& name, std::int64_t token) {
    note(name, token);
}

void name_memory::note_held(const std::string& name) {
    note(name, held);
}

void name_memory::forget(const std::string& name) {
    const std::lock_guard lock{mutex_};
    seen_.erase(name);
}

void name_memory::forget_all() {
    const std::lock_guard lock{mutex_};
    seen_.clear();
}

std::optional<std::int64_t> name_memory::take_free(const std::string& name) {
    const std::lock_guard lock{mutex_};
    const auto found = seen_.find(name);
    if (found == seen_.end() || found->second == held) return std::nullopt;
    const auto token = found->second;
    seen_.erase(found);
    return token;
}

bool name_memory::was_held(const std::string& name) const {
    const std::lock_guard lock{mutex_};
    const auto found = seen_.find(name);
    return found != seen_.end() && found->second == held;
}

void name_memory::note(const std::string& name, std::int64_t what) {
    const std::lock_guard lock{mutex_};
    // Cheaper than to know which of them is the oldest: what is used is soon there again.
    if (seen_.size() >= most && !seen_.contains(name)) seen_.clear();
    seen_.insert_or_assign(name, what);
}

}  // namespace rowlock::detail

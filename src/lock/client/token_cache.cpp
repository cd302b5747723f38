#include "lock/client/token_cache.hpp"

namespace rowlock::detail {

void token_cache::remember_free(const std::string& name, std::int64_t token) {
    note(name, token);
}

void token_cache::remember_held(const std::string& name) {
    note(name, held);
}

void token_cache::forget(const std::string& name) {
    const std::lock_guard lock{mutex_};
    seen_.erase(name);
}

void token_cache::forget_all() {
    const std::lock_guard lock{mutex_};
    seen_.clear();
}

std::optional<std::int64_t> token_cache::take_free(const std::string& name) {
    const std::lock_guard lock{mutex_};
    const auto found = seen_.find(name);
    if (found == seen_.end() || found->second == held) return std::nullopt;
    const auto token = found->second;
    seen_.erase(found);
    return token;
}

bool token_cache::was_held(const std::string& name) const {
    const std::lock_guard lock{mutex_};
    const auto found = seen_.find(name);
    return found != seen_.end() && found->second == held;
}

void token_cache::note(const std::string& name, std::int64_t what) {
    const std::lock_guard lock{mutex_};
    // Cheaper than tracking the oldest entry: names in use are soon back.
    if (seen_.size() >= most && !seen_.contains(name)) seen_.clear();
    seen_.insert_or_assign(name, what);
}

}  // namespace rowlock::detail

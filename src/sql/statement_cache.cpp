#include "sql/statement_cache.hpp"

namespace rowlock::sql {

statement statement_cache::of(const std::string& text) {
    const std::lock_guard lock{mutex_};
    if (const auto known = statements_.find(text); known != statements_.end()) return known->second;
    if (statements_.size() >= most_) statements_.clear();
    return statements_.emplace(text, statement{text}).first->second;
}

void statement_cache::forget(const std::string& text) {
    const std::lock_guard lock{mutex_};
    statements_.erase(text);
}

}  // namespace rowlock::sql

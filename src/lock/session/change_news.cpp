#include "lock/session/change_news.hpp"

#include <algorithm>

namespace rowlock::detail {
namespace {

constexpr nanoseconds between_news = std::chrono::seconds{1};

}  // namespace

bool change_news::is_news(std::int64_t of) const {
    const std::lock_guard lock{mutex_};
    return of > std::max(announced_, revision.load());
}

bool change_news::tell(std::int64_t of, nanoseconds now) {
    const std::lock_guard lock{mutex_};
    const bool known = announced_ > revision;
    announced_ = std::max(announced_, of);
    if (known || announced_ <= revision) return false;
    plan(now);
    return true;
}

nanoseconds change_news::news_at() const {
    const std::lock_guard lock{mutex_};
    return announced_ > revision ? news_at_ : base::alarm::never;
}

std::int64_t change_news::announced() const {
    const std::lock_guard lock{mutex_};
    return announced_;
}

void change_news::confirm(std::int64_t before, nanoseconds now) {
    const std::lock_guard lock{mutex_};
    if (before <= revision) return;  // a later notification has its own time
    if (announced_ == before) {
        announced_ = 0;  // the notification was false
        return;
    }
    plan(now);
}

/// With the mutex held.
void change_news::plan(nanoseconds now) {
    news_at_ = std::max(now, no_news_before_);
    no_news_before_ = news_at_ + between_news;
}

}  // namespace rowlock::detail

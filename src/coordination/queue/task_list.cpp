#include "coordination/queue/task_list.hpp"

#include <algorithm>

namespace rowlock::detail {

using namespace std::chrono_literals;

task task::postponed(nanoseconds now) const noexcept {
    const auto longer = std::clamp<nanoseconds>(2 * pause, 100ms, 1s);
    return {now + longer, longer, again};
}

void task_list::plan(std::string name, task when) {
    const auto [entry, added] = tasks_.try_emplace(std::move(name), when);
    if (added) return;
    auto& planned = entry->second;
    planned.at = std::min(planned.at, when.at);
    planned.again = std::max(planned.again, when.again);
    if (when.again > 0) planned.pause = when.pause;
}

void task_list::repeat(std::string name, const task& done, nanoseconds now) {
    if (done.again == 0) return;
    plan(std::move(name), {now + 2 * done.pause, 2 * done.pause, done.again - 1});
}

std::vector<std::pair<std::string, task>> task_list::take_due(nanoseconds now) {
    std::vector<std::pair<std::string, task>> taken;
    for (auto entry = tasks_.begin(); entry != tasks_.end();) {
        if (entry->second.at > now) {
            ++entry;
            continue;
        }
        taken.emplace_back(*entry);
        entry = tasks_.erase(entry);
    }
    return taken;
}

bool task_list::take(const std::string& name) {
    const auto planned = tasks_.find(name);
    if (planned == tasks_.end() || planned->second.again > 0) return false;
    tasks_.erase(planned);
    return true;
}

nanoseconds task_list::next_due() const noexcept {
    nanoseconds next = base::alarm::never;
    for (const auto& [name, when] : tasks_) next = std::min(next, when.at);
    return next;
}

}  // namespace rowlock::detail

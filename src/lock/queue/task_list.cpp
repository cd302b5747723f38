#include "lock/queue/task_list.hpp"

#include <algorithm>

namespace rowlock::detail {

using namespace std::chrono_literals;

task task::postponed(nanoseconds now) const noexcept {
    const auto longer = std::clamp<nanoseconds>(2 * pause, 100ms, 1s);
    return {.at = now + longer, .pause = longer, .again = again, .counted = counted};
}

void task_list::plan(std::string name, task when) {
    const auto [entry, added] = tasks_.try_emplace(std::move(name), when);
    auto& planned = entry->second;
    planned.number = ++numbers_;
    planned.deferred = false;
    if (added) return;
    planned.lasting = planned.lasting || when.lasting;
    planned.counted = planned.counted || when.counted;
    planned.at = std::min(planned.at, when.at);
    planned.again = std::max(planned.again, when.again);
    if (when.again > 0) planned.pause = when.pause;
}

void task_list::repeat(std::string name, const task& done, nanoseconds now) {
    if (done.again == 0) return;
    plan(std::move(name), {.at = now + 2 * done.pause,
                           .pause = 2 * done.pause,
                           .again = done.again - 1,
                           .lasting = done.lasting});
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

task* task_list::find(const std::string& name, std::uint64_t number) {
    const auto planned = tasks_.find(name);
    return planned != tasks_.end() && planned->second.number == number ? &planned->second : nullptr;
}

std::optional<std::uint64_t> task_list::defer(const std::string& name, nanoseconds until) {
    const auto planned = tasks_.find(name);
    if (planned == tasks_.end()) return std::nullopt;
    auto& which = planned->second;
    if (which.deferred || which.lasting) return std::nullopt;
    which.deferred = true;
    which.at = std::max(which.at, until);
    return which.number;
}

bool task_list::withdraw(const std::string& name, std::uint64_t number) {
    if (find(name, number) == nullptr) return false;
    tasks_.erase(name);
    return true;
}

bool task_list::hasten(const std::string& name, std::uint64_t number, nanoseconds at) {
    auto* const which = find(name, number);
    if (which == nullptr) return false;
    which->at = std::min(which->at, at);
    return true;
}

nanoseconds task_list::next_due() const noexcept {
    nanoseconds next = base::alarm::never;
    for (const auto& [name, when] : tasks_) next = std::min(next, when.at);
    return next;
}

}  // namespace rowlock::detail

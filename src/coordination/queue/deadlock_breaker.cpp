#include "coordination/queue/deadlock_breaker.hpp"

#include <algorithm>
#include <array>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// A cycle must persist this long before a victim is chosen: in-flight cancels settle by then,
/// unless the database is much slower than usual.
constexpr nanoseconds cycle_stands = 100ms;

}  // namespace

void deadlock_breaker::check(session& ours, const std::vector<std::shared_ptr<waiter>>& queued,
                             nanoseconds began, poll_result& found) {
    if (parts_.context.options.deadlock_detection == deadlock_detection::off) return;
    // Only a thread that holds a lease while it waits for another can be part of a cycle.
    const bool possible = std::ranges::any_of(
        queued, [&](const auto& each) { return ours.grants().holds_for(each->thread); });
    if (!possible) return;
    const auto cycles = parts_.queues().deadlocks(*link_, ours.id(), link_.soon());
    for (const auto& each : queued) {
        if (std::ranges::find(cycles, each->grant_id, &protocol::deadlock_found::grant_id) ==
            cycles.end()) {
            each->cycle.clear();
        }
    }
    for (const auto& cycle : cycles) give_way(cycle, ours, began, found);
}

/// The entry is cancelled before its thread is notified: were it served meanwhile there would be no
/// deadlock.
void deadlock_breaker::give_way(const protocol::deadlock_found& cycle, session& ours,
                                nanoseconds began, poll_result& found) {
    const auto which = parts_.registry.find(cycle.grant_id);
    if (!which || parts_.registry.is_giving_up(*which)) return;
    if (!ours.grants().holds_for(which->thread)) return;
    if (which->cycle != cycle.tickets) {
        which->cycle = cycle.tickets;
        which->cycle_since = began;
    }
    const nanoseconds sure_at = which->cycle_since + cycle_stands;
    if (began < sure_at) return found.recheck_by(sure_at);
    const std::array<grant_id, 1> id{cycle.grant_id};
    if (parts_.queues().cancel(*link_, id, link_.write_deadline()).empty()) return;
    ours.grants().forget(cycle.grant_id);
    parts_.context.count(counter::deadlocks);
    parts_.tasks.serve_next(which->name, parts_.now());
    parts_.registry.fail(
        *which, error{errc::deadlock, "a cycle of waiters: " + cycle.description +
                                          "; release what this thread holds, then start over"});
}

}  // namespace rowlock::detail

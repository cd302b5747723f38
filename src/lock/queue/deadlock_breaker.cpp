#include "lock/queue/deadlock_breaker.hpp"

#include "lock/protocol/queue/party_labels.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <vector>

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
    // One that was served meanwhile holds the lease itself.
    const bool possible = std::ranges::any_of(queued, [&](const auto& each) {
        return !parts_.registry.is_over(*each) && blocks(*each, ours);
    });
    if (!possible) return;
    const auto cycles = parts_.queues().deadlocks(*link_, ours.id(), link_.soon());
    for (const auto& each : queued) {
        bool in_cycle = false;
        each->for_each_entry([&](const protocol::hold_key& entry) {
            in_cycle =
                in_cycle || std::ranges::find(cycles, entry.grant_id,
                                              &protocol::deadlock_found::grant_id) != cycles.end();
        });
        if (!in_cycle) each->cycle.clear();
    }
    std::vector<const waiter*> done;
    for (const auto& cycle : cycles) {
        // One that waits for several locks may close several cycles: the first is as good as any.
        const auto which = parts_.registry.find(cycle.grant_id);
        if (!which || std::ranges::find(done, which.get()) != done.end()) continue;
        done.push_back(which.get());
        give_way(cycle, which, ours, began, found);
    }
}

/// Only a thread that holds something while it waits can be part of a cycle.
bool deadlock_breaker::blocks(const waiter& which, const session& ours) {
    if (which.permits.is_upgrade() || ours.grants().holds_for(which.thread)) return true;
    return std::ranges::any_of(protocol::labels_in(which.blocks), [&](std::string_view label) {
        return ours.grants().holds_for(std::string{label});
    });
}

/// The entry is cancelled before its thread is notified: were it served meanwhile there would be no
/// deadlock.
void deadlock_breaker::give_way(const protocol::deadlock_found& cycle,
                                const std::shared_ptr<waiter>& which, session& ours,
                                nanoseconds began, poll_result& found) {
    if (parts_.registry.is_giving_up(*which)) return;
    if (parts_.registry.is_taking(*which)) return;  // it is no deadlock if that succeeds
    if (!blocks(*which, ours)) return;
    if (which->cycle != cycle.entries) {
        which->cycle = cycle.entries;
        which->cycle_since = began;
    }
    const nanoseconds sure_at = which->cycle_since + cycle_stands;
    if (began < sure_at) return found.recheck_by(sure_at);
    std::vector<grant_id> ids;
    which->append_entries_to(ids);
    std::vector<grant_id> deleted;
    const bool done = link_.write(
        [&](sql::deadline until) { deleted = parts_.queues().cancel(*link_, ids, until); });
    if (!done) return found.recheck_soon(parts_.now());
    if (deleted.empty()) return;
    parts_.context.count(counter::deadlocks);
    settle_cancelled(parts_.grants, *which, deleted);
    which->for_each_entry([&](const protocol::hold_key& entry) {
        parts_.tasks.serve(std::string{entry.name}, parts_.now(), protocol::head_of(entry));
    });
    parts_.registry.fail(
        *which, error{errc::deadlock, "a cycle of waiters: " + cycle.description +
                                          "; release what this thread holds, then start over"});
}

}  // namespace rowlock::detail

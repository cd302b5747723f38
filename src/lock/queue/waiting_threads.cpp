#include "lock/queue/waiting_threads.hpp"

#include <rowlock/timeout.hpp>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// How long a thread that gives up waits to learn what became of its entry.
constexpr auto patience = 40ms;

}  // namespace

waiting_threads::waiting_threads(const surroundings& with)
    : clock_{with.clock},
      alarm_{clock_},
      registry_{registry_hooks()},
      tasks_{[this] { alarm_.poke(); }},
      pacing_{with.context.options.poll_interval},
      parts_{with.context,   with.sessions, with.connections, with.grants, with.keeper,
             with.contended, with.owner,    registry_,        tasks_,      pacing_,
             clock_},
      subscription_{with.context.options.time
                        ? with.context.options.time->on_advance([this] { poll_soon(); })
                        : nullptr},
      loop_{parts_, alarm_} {}

waiting_threads::~waiting_threads() {
    subscription_.reset();
}

waiter_registry::hooks waiting_threads::registry_hooks() {
    return {.make_grant =
                [this](const waiter& which, const waiter_registry::served_entry& found) {
                    std::optional<std::chrono::microseconds> deadline;
                    if (found.deadline_us) deadline.emplace(*found.deadline_us);
                    // A caller that set no limit has one by a request for the release.
                    const std::chrono::microseconds whole = which.max_duration.value_or(
                        std::chrono::floor<std::chrono::milliseconds>(nanoseconds::max()));
                    auto made = parts_.grants.make(*which.ours, which.name, which.grant_id,
                                                   found.token, found.sent, deadline, which.thread,
                                                   which.permits, whole);
                    made->queued = true;
                    return made;
                },
            .give_back = [this](grant& unwanted) { parts_.grants.give_back(unwanted); },
            .on_work = [this] { alarm_.poke(); }};
}

void waiting_threads::enqueued(waiter& which) {
    if (!registry_.enqueued(which) || which.contended) return;  // wait() orders the poll
    poll_soon();
}

bool waiting_threads::wait(const std::shared_ptr<waiter>& which, steady::time_point until,
                           const std::stop_token& stop) {
    const auto now = steady::now();
    const auto end = std::min(until, now + longest_wait);
    if (which->contended) {
        const auto first = which->holds_others ? rush : loop_.rounds().first_poll_after(*which);
        if (first > rush) report_position(parts_.context, *which, 0);
        if (loop_.rounds().must_listen()) alarm_.poke();
        // A call with a time limit polls before it gives up: it notes whether wake-ups fail.
        const auto over_soon = std::min<steady::time_point>(now + (end - now) / 2, now + first);
        if (registry_.wait(*which, over_soon, stop)) return true;
        poll_soon();
    }
    if (registry_.wait(*which, end, stop)) return true;
    registry_.give_up(which);
    return registry_.wait_for_answer(*which, patience);
}

bool waiting_threads::wait_for_turn(const std::shared_ptr<waiter>& which, steady::time_point until,
                                    const std::stop_token& stop) {
    const auto end = std::min(until, steady::now() + longest_wait);
    if (registry_.wait_for_turn(*which, end, stop)) return true;
    registry_.give_up(which);
    return registry_.wait_for_answer(*which, patience);
}

void waiting_threads::handed_over(const protocol::handed_over& next) {
    if (loop_.rounds().verifier().handed_over(next)) alarm_.poke();
}

void waiting_threads::session_lost(session_id id, loss_reason why) noexcept {
    std::optional<error> over;
    try {
        over.emplace(errc::lock_lost, "the session ended while waiting (" +
                                          std::string{to_string(why)} +
                                          "): the place in the queue is gone; ask again");
    } catch (...) {
        // No memory for the message.
    }
    registry_.session_lost(id, over ? &*over : nullptr);
}

void waiting_threads::holder_expires_in(nanoseconds left) noexcept {
    if (left >= latest_first_poll) return;
    pacing_.holder_expires(parts_.now() + left);
    alarm_.poke();
}

void waiting_threads::poll_soon() noexcept {
    pacing_.want();
    alarm_.poke();
}

waiting_threads::leftovers waiting_threads::close() noexcept {
    subscription_.reset();
    loop_.close();
    auto [names, queues, sessions] = tasks_.close();
    return {registry_.close(), std::move(names), std::move(queues), std::move(sessions)};
}

void report_position(client_context& context, const waiter& which, std::int64_t position) {
    if (!context.options.on_event) return;
    context.report(
        {.kind = event_kind::waiting,
         .name = which.name,
         .session = which.ours->id(),
         .position = position,
         .waited = std::chrono::duration_cast<std::chrono::microseconds>(which.waited())});
}

}  // namespace rowlock::detail

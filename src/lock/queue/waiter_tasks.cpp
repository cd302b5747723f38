#include "lock/queue/waiter_tasks.hpp"

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// Delays of the check for waiters after a release: it costs the releasing thread nothing, and
/// checks at about the same time share a statement. Where the release has checked as well
/// (PostgreSQL) a waiter is hardly ever left. Where it has not, a client that releases one lease
/// after the other spends a tenth of the machine on checks that find no waiter, so the one after an
/// empty check waits longer.
constexpr nanoseconds check_delay = 1ms;
constexpr nanoseconds delay_after_empty_check = 5ms;
constexpr nanoseconds delay_after_look = 10ms;
/// An attempt to acquire has most often been answered by then, also where many clients ask.
constexpr nanoseconds attempt_takes = 20ms;

void add(std::vector<session_id>& sessions, session_id id) noexcept {
    try {
        sessions.push_back(id);
    } catch (...) {
        // No memory: the reaper deletes its entries.
    }
}

}  // namespace

void waiter_tasks::check_for_waiters(std::string_view name, bool looked, nanoseconds now) {
    const guard lock{mutex_};
    const nanoseconds delay = looked                                  ? delay_after_look
                              : now < empty_check_ + delay_after_look ? delay_after_empty_check
                                                                      : check_delay;
    const nanoseconds at = now + delay;
    checks_.plan(std::string{name}, {at});
    // Most often another name has just been released, or this one before: then the loop wakes
    // anyway.
    if (at >= wakes_at_) return;
    wakes_at_ = at;
    on_work_();
}

std::optional<std::uint64_t> waiter_tasks::defer_check(const std::string& name, nanoseconds now) {
    const guard lock{mutex_};
    return checks_.defer(name, now + attempt_takes);
}

void waiter_tasks::withdraw_check(const std::string& name, std::uint64_t number, nanoseconds now) {
    const guard lock{mutex_};
    if (checks_.withdraw(name, number)) empty_check_ = now;
}

bool waiter_tasks::hasten_check(const std::string& name, std::uint64_t number, nanoseconds now) {
    const guard lock{mutex_};
    return checks_.hasten(name, number, now);
}

void waiter_tasks::check_now(const std::string& name, nanoseconds now) {
    const guard lock{mutex_};
    checks_.plan(name, {now});
}

void waiter_tasks::check_for_a_while(std::string_view name, nanoseconds now) {
    constexpr int times = 9;  // repetitions; the last one after two seconds
    const guard lock{mutex_};
    checks_.plan(std::string{name},
                 {.at = now + 2ms, .pause = 2ms, .again = times, .lasting = true});
    on_work_();
}

void waiter_tasks::serve(std::string name, nanoseconds now, protocol::queue_head expected) {
    const guard lock{mutex_};
    to_serve_.plan(std::move(name),
                   {.at = now, .counted = expected == protocol::queue_head::counted});
}

void waiter_tasks::session_ended(session_id id) {
    const guard lock{mutex_};
    ended_.push_back(id);
    on_work_();
}

void waiter_tasks::verify(unverified grant) {
    const guard lock{mutex_};
    unverified_.push_back(std::move(grant));
}

void waiter_tasks::read_served() noexcept {
    const guard lock{mutex_};
    read_served_ = true;
    on_work_();
}

nanoseconds waiter_tasks::next_due() noexcept {
    const guard lock{mutex_};
    if (read_served_ || !ended_.empty() || !with_entries_.empty()) return nanoseconds{0};
    nanoseconds next = std::min(to_serve_.next_due(), checks_.next_due());
    for (const auto& each : unverified_) next = std::min(next, each.at);
    wakes_at_ = next;
    return next;
}

bool waiter_tasks::take_read_served() noexcept {
    const guard lock{mutex_};
    return std::exchange(read_served_, false);
}

waiter_tasks::due_names waiter_tasks::take_checks(nanoseconds now) {
    const guard lock{mutex_};
    return checks_.take_due(now);
}

void waiter_tasks::checked(const due_names& done, bool found, nanoseconds now) {
    const guard lock{mutex_};
    if (!found) empty_check_ = now;
    for (const auto& [name, when] : done) checks_.repeat(name, when, now);
}

void waiter_tasks::retry_checks(const due_names& failed) {
    const guard lock{mutex_};
    for (const auto& [name, when] : failed) checks_.plan(name, when);
}

void waiter_tasks::forget_checks() noexcept {
    const guard lock{mutex_};
    checks_.clear();
}

waiter_tasks::due_names waiter_tasks::take_names_to_serve(nanoseconds now) {
    const guard lock{mutex_};
    return to_serve_.take_due(now);
}

void waiter_tasks::retry_serving(const std::string& name, const task& when) {
    const guard lock{mutex_};
    to_serve_.plan(name, when);
}

std::optional<session_id> waiter_tasks::next_ended_session() const noexcept {
    const guard lock{mutex_};
    return ended_.empty() ? std::nullopt : std::optional{ended_.back()};
}

void waiter_tasks::session_done(session_id id) noexcept {
    const guard lock{mutex_};
    std::erase(ended_, id);
    add(with_entries_, id);
}

std::optional<session_id> waiter_tasks::next_session_with_entries() const noexcept {
    const guard lock{mutex_};
    return with_entries_.empty() ? std::nullopt : std::optional{with_entries_.back()};
}

void waiter_tasks::entries_deleted(session_id id) noexcept {
    const guard lock{mutex_};
    std::erase(with_entries_, id);
}

std::optional<waiter_tasks::unverified> waiter_tasks::next_unverified(nanoseconds now) const {
    const guard lock{mutex_};
    const auto next =
        std::ranges::find_if(unverified_, [&](const auto& each) { return each.at <= now; });
    return next == unverified_.end() ? std::nullopt : std::optional{*next};
}

void waiter_tasks::verified(const unverified& done) noexcept {
    const guard lock{mutex_};
    std::erase_if(unverified_, [&](const auto& each) { return each.which == done.which; });
}

waiter_tasks::leftovers waiter_tasks::close() noexcept {
    leftovers rest;
    const guard lock{mutex_};
    try {
        for (const auto& [name, when] : to_serve_) rest.queues.push_back(name);
        for (const auto& [name, when] : checks_) rest.names.push_back(name);
        rest.sessions = std::move(ended_);
        rest.sessions.insert(rest.sessions.end(), with_entries_.begin(), with_entries_.end());
    } catch (...) {
        // No memory: other clients' polls find what is left.
    }
    return rest;
}

}  // namespace rowlock::detail

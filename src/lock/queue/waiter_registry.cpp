#include "lock/queue/waiter_registry.hpp"

#include <algorithm>
#include <new>

namespace rowlock::detail {

using guard = std::unique_lock<std::mutex>;

std::shared_ptr<waiter> waiter_registry::expect(
    std::string name, grant_id grant_id, std::shared_ptr<session> ours, std::string thread,
    std::optional<std::chrono::milliseconds> max_duration, const protocol::wanted_permits& permits,
    std::string blocks, std::vector<waiter::place> also) {
    auto made =
        std::make_shared<waiter>(std::move(name), grant_id, std::move(ours), std::move(thread),
                                 max_duration, permits, std::move(blocks), std::move(also));
    const guard lock{mutex_};
    try {
        made->for_each_entry(
            [&](const protocol::hold_key& entry) { waiters_.emplace(entry.grant_id, made); });
    } catch (...) {
        erase_locked(*made);
        throw;
    }
    if (closed_) {
        const error closed{errc::lock_lost, "the client is closed"};
        end_locked(*made, waiter::state::failed, &closed);
    }
    return made;
}

bool waiter_registry::enqueued(waiter& which) noexcept {
    const guard lock{mutex_};
    if (which.over()) return false;
    which.now = waiter::state::waiting;
    return true;
}

bool waiter_registry::withdraw(waiter& which) noexcept {
    const guard lock{mutex_};
    erase_locked(which);
    if (which.now == waiter::state::served) return false;
    which.now = waiter::state::cancelled;
    return true;
}

bool waiter_registry::wait(waiter& which, steady::time_point until, const std::stop_token& stop) {
    guard lock{mutex_};
    return which.changed.wait_until(lock, stop, until, [&] { return which.over(); });
}

bool waiter_registry::wait_for_turn(waiter& which, steady::time_point until,
                                    const std::stop_token& stop) {
    guard lock{mutex_};
    const bool awake =
        which.changed.wait_until(lock, stop, until, [&] { return which.over() || which.turn; });
    which.turn = false;
    return awake;
}

void waiter_registry::call(waiter& which) noexcept {
    const guard lock{mutex_};
    which.turn = true;
    which.changed.notify_all();
}

void waiter_registry::set_taking(waiter& which, bool takes) noexcept {
    const guard lock{mutex_};
    which.taking = takes;
}

bool waiter_registry::is_taking(const waiter& which) const noexcept {
    const guard lock{mutex_};
    return which.taking;
}

void waiter_registry::give_up(const std::shared_ptr<waiter>& which) {
    const guard lock{mutex_};
    if (which->over()) return;
    which->giving_up = true;
    given_up_.push_back(which);
    if (given_up_.size() == 1) hooks_.on_work();
}

bool waiter_registry::wait_for_answer(waiter& which, std::chrono::nanoseconds patience) {
    guard lock{mutex_};
    if (which.changed.wait_for(lock, patience, [&] { return which.over(); })) return true;
    which.left = true;
    return false;
}

void waiter_registry::leave(waiter& which) noexcept {
    {
        const guard lock{mutex_};
        which.giving_up = which.left = true;
        if (!which.over()) {
            all_given_up_ = true;
            return hooks_.on_work();
        }
        if (which.now != waiter::state::served || !which.granted) return;
    }
    hooks_.give_back(*which.granted);
}

/// The loop gives an unwanted grant back in its next step: the heartbeat would take several more
/// round trips.
void waiter_registry::serve(waiter& which, const served_entry& found) {
    {
        const guard lock{mutex_};
        if (which.over()) return;
        which.granted = hooks_.make_grant(which, found);
        end_locked(which, waiter::state::served);
        if (!which.left) return;
        try {
            unwanted_.push_back(which.granted);
            return hooks_.on_work();
        } catch (const std::bad_alloc&) {
            // The heartbeat gives it back.
        }
    }
    hooks_.give_back(*which.granted);
}

void waiter_registry::fail(waiter& which, const error& failure) noexcept {
    const guard lock{mutex_};
    if (!which.over()) end_locked(which, waiter::state::failed, &failure);
}

std::vector<std::shared_ptr<waiter>> waiter_registry::fail_all(
    const error& failure, std::optional<std::string_view> only) {
    std::vector<std::shared_ptr<waiter>> all;
    const guard lock{mutex_};
    for_each_once([&](const auto& each) {
        bool concerned = !only;
        each->for_each_entry(
            [&](const protocol::hold_key& entry) { concerned = concerned || entry.name == only; });
        if (concerned) all.push_back(each);
    });
    for (const auto& each : all) end_locked(*each, waiter::state::failed, &failure);
    return all;
}

void waiter_registry::session_lost(session_id id, const error* why) noexcept {
    const guard lock{mutex_};
    const auto in_session = [&](const auto& each) { return each.second->ours->id() == id; };
    for (;;) {
        const auto next = std::ranges::find_if(waiters_, in_session);
        if (next == waiters_.end()) return;
        const auto which = next->second;
        which->for_each_entry(
            [&](const protocol::hold_key& entry) { which->ours->grants().forget(entry.grant_id); });
        end_locked(*which, waiter::state::failed, why);
    }
}

bool waiter_registry::moved(waiter& which, std::int64_t position) noexcept {
    const guard lock{mutex_};
    if (which.over() || which.position == position) return false;
    which.position = position;
    return true;
}

bool waiter_registry::has_work() const noexcept {
    const guard lock{mutex_};
    return !given_up_.empty() || all_given_up_ || !unwanted_.empty();
}

std::vector<std::shared_ptr<waiter>> waiter_registry::take_given_up() {
    const guard lock{mutex_};
    std::vector<std::shared_ptr<waiter>> taken;
    if (all_given_up_) {
        for_each_once([&](const auto& each) {
            if (each->giving_up) taken.push_back(each);
        });
        all_given_up_ = false;
        given_up_.clear();
    } else {
        taken.swap(given_up_);
        std::erase_if(taken, [](const auto& each) { return each->over(); });
    }
    return taken;
}

void waiter_registry::retry_given_up() noexcept {
    const guard lock{mutex_};
    all_given_up_ = true;
}

std::vector<std::shared_ptr<grant>> waiter_registry::take_unwanted() noexcept {
    const guard lock{mutex_};
    return std::exchange(unwanted_, {});
}

bool waiter_registry::erase_unwanted(const waiter& which) noexcept {
    const guard lock{mutex_};
    return std::erase(unwanted_, which.granted) > 0;
}

std::shared_ptr<waiter> waiter_registry::find(grant_id grant_id) const {
    const guard lock{mutex_};
    const auto found = waiters_.find(grant_id);
    return found == waiters_.end() ? nullptr : found->second;
}

std::shared_ptr<grant> waiter_registry::granted(const waiter& which) const noexcept {
    const guard lock{mutex_};
    return which.granted;
}

bool waiter_registry::is_over(const waiter& which) const noexcept {
    const guard lock{mutex_};
    return which.over();
}

bool waiter_registry::has_left(const waiter& which) const noexcept {
    const guard lock{mutex_};
    return which.left;
}

bool waiter_registry::is_giving_up(const waiter& which) const noexcept {
    const guard lock{mutex_};
    return which.giving_up;
}

bool waiter_registry::empty() const noexcept {
    const guard lock{mutex_};
    return waiters_.empty();
}

std::size_t waiter_registry::waiting() const {
    const guard lock{mutex_};
    std::size_t count = 0;
    for_each_once([&](const auto& each) {
        if (!each->left) ++count;
    });
    return count;
}

session_id waiter_registry::waiting_session() const noexcept {
    const guard lock{mutex_};
    return waiters_.empty() ? session_id{} : waiters_.begin()->second->ours->id();
}

std::vector<std::shared_ptr<waiter>> waiter_registry::queued() const {
    std::vector<std::shared_ptr<waiter>> found;
    const guard lock{mutex_};
    for_each_once([&](const auto& each) {
        if (each->now == waiter::state::waiting && !each->giving_up) found.push_back(each);
    });
    return found;
}

std::vector<std::shared_ptr<waiter>> waiter_registry::of_session(session_id id) const {
    std::vector<std::shared_ptr<waiter>> found;
    const guard lock{mutex_};
    for_each_once([&](const auto& each) {
        if (each->ours->id() == id) found.push_back(each);
    });
    return found;
}

bool waiter_registry::close() noexcept {
    std::optional<error> over;
    const guard lock{mutex_};
    closed_ = true;
    const bool waited = !waiters_.empty();
    try {
        over.emplace(errc::lock_lost, "the client was destroyed while waiting");
    } catch (...) {
        // No memory for the message.
    }
    while (!waiters_.empty()) {
        const auto which = waiters_.begin()->second;
        end_locked(*which, waiter::state::failed, over ? &*over : nullptr);
    }
    given_up_.clear();
    unwanted_.clear();  // they end with the session
    return waited;
}

/// With the mutex held.
void waiter_registry::end_locked(waiter& which, waiter::state how, const error* why) noexcept {
    which.now = how;
    try {
        if (why != nullptr) which.failure.emplace(*why);
    } catch (...) {
        // No memory: the wait ends without the reason.
    }
    erase_locked(which);
    which.changed.notify_all();
}

/// With the mutex held.
void waiter_registry::erase_locked(const waiter& which) noexcept {
    which.for_each_entry([&](const protocol::hold_key& entry) { waiters_.erase(entry.grant_id); });
}

}  // namespace rowlock::detail

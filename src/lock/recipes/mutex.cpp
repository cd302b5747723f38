#include "lock/client/engine.hpp"
#include "lock/recipes/hold.hpp"
#include "lock/recipes/shared_by_name.hpp"
#include <rowlock/error.hpp>
#include <rowlock/mutex.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace rowlock {
namespace detail {
namespace {

/// The locks this thread holds, through any object, so that it does not wait for itself. An entry
/// may be stale: another thread took over a lost lock, or its mutex was destroyed.
thread_local std::vector<std::weak_ptr<hold>> locked_here;

/// Removes stale entries and `ended`.
void forget_locked(const hold* ended) {
    std::erase_if(locked_here, [&](const auto& each) {
        const auto other = each.lock();
        return !other || other.get() == ended;
    });
}

/// Whether this thread holds the lock through another object of the same client and name. A lost
/// lock does not count: it keeps its thread from nothing.
bool holds_elsewhere(const hold& wanted) {
    return std::ranges::any_of(locked_here, [&](const auto& each) {
        const auto other = each.lock();
        return other && other.get() != &wanted && &other->locks == &wanted.locks &&
               other->name == wanted.name && other->held();
    });
}

[[noreturn]] void refuse_own() {
    throw error{errc::would_deadlock,
                "this thread has this mutex locked: unlock it, or use recursive_mutex"};
}

/// Calls `acquire` and puts the lease into `wanted`. Returns false if there is none in time.
template <typename Acquire>
bool take_into(const std::shared_ptr<hold>& wanted, Acquire acquire) {
    forget_locked(nullptr);
    locked_here.reserve(locked_here.size() + 1);  // recording an acquired lock must not fail
    auto granted = acquire();
    if (!granted) return false;
    wanted->take(*std::move(granted));
    locked_here.push_back(wanted);
    return true;
}

}  // namespace

bool hold::is_mine() const {
    return depth > 0 && owner == std::this_thread::get_id();
}

void hold::take(lease granted) {
    // The lease of a thread that lost its lock without unlocking may still be here. It is destroyed
    // after the guard is released: that may take a round trip.
    std::optional<lease> abandoned;
    const std::lock_guard lock{guard};
    abandoned.swap(current);
    owner = std::this_thread::get_id();
    depth = 1;
    current.emplace(std::move(granted));
}

std::optional<lease> hold::give_back() {
    fork.require_same_process();
    const std::lock_guard lock{guard};
    if (!is_mine()) {
        throw error{errc::not_owner, "unlocked by a thread that has not locked it"};
    }
    if (--depth > 0) return std::nullopt;
    owner = {};
    return std::exchange(current, std::nullopt);
}

fencing_token hold::token() const noexcept {
    return of_mine(fencing_token{}, [&] { return current->token(); });
}

bool hold::held() const noexcept {
    return of_mine(false, [&] { return current->held(); });
}

std::chrono::milliseconds hold::remaining() const noexcept {
    return of_mine(std::chrono::milliseconds{0}, [&] { return current->remaining(); });
}

std::stop_token hold::lost() const {
    return of_mine(std::stop_token{}, [&] { return current->lost(); });
}

namespace {

void release(hold& held) {
    auto last = held.give_back();
    if (!last) return;
    forget_locked(&held);
    last->release();
}

void unlock(hold& held, engine& engine) noexcept {
    const fencing_token token = held.token();
    try {
        release(held);
    } catch (const std::exception& failure) {
        engine.context().report([&] {
            return event{.kind = event_kind::unlock_failed,
                         .name = held.name.str(),
                         .token = token,
                         .message = failure.what()};
        });
    }
}

}  // namespace
}  // namespace detail

using detail::hold;

mutex::mutex(client& locks, const lock_name& name, acquire_options options)
    : hold_{std::make_shared<hold>(locks, name, std::move(options))} {}

mutex::~mutex() = default;

void mutex::lock() {
    static_cast<void>(lock_until(client::time_point::max(), {}));
}

bool mutex::lock(const std::stop_token& stop) {
    return lock_until(client::time_point::max(), stop);
}

bool mutex::try_lock() {
    hold_->fork.require_same_process();
    {
        const std::lock_guard lock{hold_->guard};
        if (hold_->is_mine()) return false;
    }
    if (detail::holds_elsewhere(*hold_)) return false;
    return lock_until(client::time_point::min(), {});
}

void mutex::unlock() noexcept {
    detail::unlock(*hold_, *hold_->locks.engine_);
}

void mutex::release() {
    detail::release(*hold_);
}

const std::string& mutex::name() const noexcept {
    return hold_->name.str();
}

fencing_token mutex::token() const noexcept {
    return hold_->token();
}

bool mutex::held() const noexcept {
    return hold_->held();
}

std::chrono::milliseconds mutex::remaining() const noexcept {
    return hold_->remaining();
}

std::stop_token mutex::lost() const {
    return hold_->lost();
}

bool mutex::lock_until(client::time_point until, const std::stop_token& stop) {
    hold_->fork.require_same_process();
    {
        const std::lock_guard lock{hold_->guard};
        if (hold_->is_mine()) detail::refuse_own();
    }
    if (detail::holds_elsewhere(*hold_)) detail::refuse_own();
    return detail::take_into(hold_, [&] {
        return hold_->locks.acquire_until(hold_->name, until, stop, hold_->options);
    });
}

recursive_mutex::recursive_mutex(client& locks, const lock_name& name, acquire_options options)
    : hold_{locks.engine_->part<detail::shared_by_name<hold>>().of(
          name.str(), [&] { return std::make_shared<hold>(locks, name, std::move(options)); })} {}

recursive_mutex::~recursive_mutex() = default;

void recursive_mutex::lock() {
    static_cast<void>(lock_until(client::time_point::max(), {}));
}

bool recursive_mutex::lock(const std::stop_token& stop) {
    return lock_until(client::time_point::max(), stop);
}

bool recursive_mutex::try_lock() {
    if (detail::holds_elsewhere(*hold_)) return false;
    return lock_until(client::time_point::min(), {});
}

void recursive_mutex::unlock() noexcept {
    detail::unlock(*hold_, *hold_->locks.engine_);
}

void recursive_mutex::release() {
    detail::release(*hold_);
}

const std::string& recursive_mutex::name() const noexcept {
    return hold_->name.str();
}

fencing_token recursive_mutex::token() const noexcept {
    return hold_->token();
}

bool recursive_mutex::held() const noexcept {
    return hold_->held();
}

std::chrono::milliseconds recursive_mutex::remaining() const noexcept {
    return hold_->remaining();
}

std::stop_token recursive_mutex::lost() const {
    return hold_->lost();
}

int recursive_mutex::depth() const noexcept {
    return hold_->of_mine(0, [&] { return hold_->depth; });
}

bool recursive_mutex::lock_until(client::time_point until, const std::stop_token& stop) {
    hold_->fork.require_same_process();
    {
        const std::lock_guard lock{hold_->guard};
        if (hold_->is_mine()) {
            if (!hold_->current->held()) {
                throw error{errc::lock_lost,
                            "the lease was lost meanwhile: unlock as often as locked, start over"};
            }
            ++hold_->depth;
            return true;
        }
    }
    if (detail::holds_elsewhere(*hold_)) detail::refuse_own();
    return detail::take_into(hold_, [&] {
        return hold_->locks.acquire_until(hold_->name, until, stop, hold_->options);
    });
}

}  // namespace rowlock

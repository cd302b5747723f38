#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "lock/recipes/mode_holds.hpp"
#include "lock/recipes/shared_by_name.hpp"
#include <rowlock/error.hpp>
#include <rowlock/shared_mutex.hpp>

#include <algorithm>
#include <utility>

namespace rowlock {

using detail::mode_holds;
using protocol::mode_for;
using protocol::permits_for;

constexpr auto of_modes = protocol::counter_kind::shared_mutex;

namespace detail {

namespace {

[[noreturn]] void refuse_own_shared() {
    throw error{errc::would_deadlock,
                "this thread has this shared_mutex locked: unlock it first, or use lock_upgrade() "
                "and upgrade()"};
}

/// What the permits in use say of the modes.
shared_mutex_info modes_of(const semaphore_info& seen) {
    shared_mutex_info found{.name = seen.name, .waiting = seen.waiting};
    found.exclusive = seen.used == permits_for(lock_mode::exclusive);
    if (found.exclusive) return found;
    found.upgradeable = seen.used >= permits_for(lock_mode::upgradeable);
    found.shared = seen.used - (found.upgradeable ? permits_for(lock_mode::upgradeable) : 0);
    return found;
}

}  // namespace
}  // namespace detail

shared_mutex::shared_mutex(client& locks, const lock_name& name, mode_options options)
    : holds_{locks.engine_->part<detail::shared_by_name<mode_holds>>().of(name.str(), [&] {
          require(options.reader_linger >= std::chrono::milliseconds{0} &&
                      options.reader_linger <= std::chrono::hours{1},
                  "reader_linger must be from 0 to an hour");
          return std::make_shared<mode_holds>(locks, name, std::move(options));
      })} {}

shared_mutex::~shared_mutex() {
    mode_holds::let_go(std::move(holds_));
}

mode_lease shared_mutex::acquire(lock_mode mode, const mode_options& options) {
    return *acquire_until(mode, time_point::max(), {}, options);
}

std::optional<mode_lease> shared_mutex::try_acquire(lock_mode mode, const mode_options& options) {
    return acquire_until(mode, time_point::min(), {}, options);
}

std::optional<mode_lease> shared_mutex::acquire_until(lock_mode mode, time_point until,
                                                      std::stop_token stop,
                                                      const mode_options& options,
                                                      const std::string& shared_label) {
    // Until the call learns of the client's destruction.
    const auto alive = holds_->locks.engine_;
    const acquire_options how{.note = options.note, .max_duration = options.max_duration};
    auto granted = alive->acquires().acquire(holds_->name, until, stop, how,
                                             protocol::wanted_for(mode), shared_label);
    if (!granted) return std::nullopt;
    return mode_lease{std::move(granted)};
}

bool shared_mutex::lock_until(lock_mode mode, time_point until, const std::stop_token& stop) {
    if (auto* const held = holds_->mine()) {
        if (mode != lock_mode::shared) detail::refuse_own_shared();
        if (!held->used->lease.held()) {
            throw error{errc::lock_lost,
                        "the lock was lost meanwhile: unlock as often as locked, start over"};
        }
        ++held->shared;
        return true;
    }
    const auto acquire = [&](const std::string& label) {
        return acquire_until(mode, until, stop, holds_->options, label);
    };
    if (mode == lock_mode::shared) return holds_->lock_shared(until, stop, acquire);
    return holds_->lock(mode, acquire);
}

bool shared_mutex::try_lock_in(lock_mode mode) {
    if (mode != lock_mode::shared && holds_->mine() != nullptr) return false;
    return lock_until(mode, time_point::min(), {});
}

bool shared_mutex::upgrade_until(time_point until, const std::stop_token& stop) {
    auto& held = holds_->require_mine();
    // With several users it has not the only permit; the attempt would wait for this client.
    if (!holds_->is_alone(held)) {
        if (until <= std::chrono::steady_clock::now()) return false;
        throw error{errc::would_deadlock,
                    "a shared hold cannot wait for an upgrade: lock_upgrade() instead"};
    }
    if (!held.used->lease.upgrade_until(until, stop)) return false;
    // A thread that had it shared alone now has it locked once, and shared not at all.
    if (!std::exchange(held.locked, true)) --held.shared;
    return true;
}

void shared_mutex::downgrade(lock_mode to) {
    auto& held = holds_->require_mine();
    // Also after a failure behind which the hold is one of the weaker mode.
    const auto count_as_shared = [&] {
        if (held.used->lease.mode() != lock_mode::shared) return;
        if (std::exchange(held.locked, false)) ++held.shared;
    };
    try {
        held.used->lease.downgrade(to);
    } catch (...) {
        count_as_shared();
        throw;
    }
    count_as_shared();
}

void shared_mutex::unlock_from(lock_mode mode) noexcept {
    const auto token = this->token();
    try {
        holds_->unlock(mode);
    } catch (const std::exception& failure) {
        holds_->locks.engine_->context().report([&] {
            return event{.kind = event_kind::unlock_failed,
                         .name = holds_->name.str(),
                         .token = token,
                         .message = failure.what()};
        });
    }
}

const std::string& shared_mutex::name() const noexcept {
    return holds_->name.str();
}

std::optional<lock_mode> shared_mutex::mode() const noexcept {
    const auto* const held = holds_->mine();
    return held == nullptr ? std::nullopt : std::optional{held->used->lease.mode()};
}

fencing_token shared_mutex::token() const noexcept {
    const auto* const held = holds_->mine();
    return held == nullptr ? fencing_token{} : held->used->lease.token();
}

bool shared_mutex::held() const noexcept {
    const auto* const held = holds_->mine();
    return held != nullptr && held->used->lease.held();
}

std::chrono::milliseconds shared_mutex::remaining() const noexcept {
    const auto* const held = holds_->mine();
    return held == nullptr ? std::chrono::milliseconds{0} : held->used->lease.remaining();
}

std::stop_token shared_mutex::lost() const {
    const auto* const held = holds_->mine();
    return held == nullptr ? std::stop_token{} : held->used->lease.lost();
}

bool shared_mutex::exists() {
    return holds_->locks.engine_->semaphores().exists(holds_->name, of_modes);
}

std::optional<shared_mutex_info> shared_mutex::inspect() {
    const auto seen = holds_->locks.engine_->semaphores().inspect(holds_->name, of_modes);
    if (!seen) return std::nullopt;
    return detail::modes_of(*seen);
}

std::vector<mode_holder> shared_mutex::holders(int limit) {
    if (!exists()) return {};
    std::vector<mode_holder> all;
    for (auto& [shown, first_token] :
         holds_->locks.engine_->semaphores().holders(holds_->name, limit)) {
        const auto mode = mode_for(shown.permits).value_or(lock_mode::exclusive);
        all.push_back({std::move(shown.who), shown.token, mode, first_token});
    }
    return all;
}

std::vector<mode_waiter> shared_mutex::waiters() {
    std::vector<mode_waiter> all;
    for (auto& each : holds_->locks.engine_->semaphores().waiters(holds_->name)) {
        const auto mode = mode_for(each.permits);
        all.push_back({std::move(each.who), mode.value_or(lock_mode::exclusive), !mode});
    }
    return all;
}

std::optional<std::chrono::milliseconds> shared_mutex::request_release(
    fencing_token holder, const request_options& options) {
    // In this order: a downgrade makes a part of what was the whole lock, not the reverse.
    auto& engine = *holds_->locks.engine_;
    const auto asked = engine.admin().request_release(holds_->name, holder, options);
    return asked ? asked : engine.semaphores().request_release(holds_->name, holder, options);
}

bool shared_mutex::force_release(fencing_token holder) {
    auto& engine = *holds_->locks.engine_;
    return engine.admin().force_release(holds_->name, holder) ||
           engine.semaphores().force_release(holds_->name, holder);
}

std::vector<shared_mutex_info> list_shared_mutexes(client& locks, std::string_view prefix,
                                                   const page& page) {
    std::vector<shared_mutex_info> all;
    for (const auto& each : locks.engine_->semaphores().list(prefix, of_modes, page)) {
        all.push_back(detail::modes_of(each));
    }
    return all;
}

}  // namespace rowlock

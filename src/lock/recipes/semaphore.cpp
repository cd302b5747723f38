#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include <rowlock/error.hpp>
#include <rowlock/semaphore.hpp>

namespace rowlock {
namespace {

constexpr auto of_permits = protocol::counter_kind::semaphore;

}  // namespace

void permits::release(std::int64_t count) {
    const auto* const held = hold_.grant_.get();
    if (held == nullptr) throw error{errc::not_owner, "this holds no permits"};
    require(count >= 1 && count <= count_,
            "release at least one permit, and no more than are held: see count()");
    const auto engine = held->owner.lock();
    if (!engine) throw detail::client_destroyed();
    if (count == count_) {
        engine->releases().require_held(*hold_.grant_);
        return release();
    }
    // Before the statement: one that fails may take effect all the same, now or later.
    count_ -= count;
    engine->releases().shrink(*hold_.grant_, count_);
}

void semaphore::set_capacity(std::int64_t permits) {
    locks_.engine_->semaphores().set_capacity(name_, permits);
}

bool semaphore::create(std::int64_t permits) {
    return locks_.engine_->semaphores().create(name_, permits);
}

permits semaphore::acquire(std::int64_t count, const permit_options& options) {
    return *acquire_until(count, time_point::max(), {}, options);
}

std::optional<permits> semaphore::try_acquire(std::int64_t count, const permit_options& options) {
    return acquire_until(count, time_point::min(), {}, options);
}

std::int64_t semaphore::available() {
    const auto seen = inspect();
    return seen ? seen->available() : 0;
}

std::optional<semaphore_info> semaphore::inspect() {
    return locks_.engine_->semaphores().inspect(name_, of_permits);
}

std::vector<permit_holder> semaphore::holders(int limit) {
    std::vector<permit_holder> all;
    for (auto& each : locks_.engine_->semaphores().holders(name_, limit)) {
        all.push_back(std::move(each.shown));
    }
    return all;
}

std::vector<permit_waiter> semaphore::waiters() {
    return locks_.engine_->semaphores().waiters(name_);
}

std::optional<std::chrono::milliseconds> semaphore::request_release(
    fencing_token holder, const request_options& options) {
    return locks_.engine_->semaphores().request_release(name_, holder, options);
}

bool semaphore::force_release(fencing_token holder) {
    return locks_.engine_->semaphores().force_release(name_, holder);
}

std::optional<permits> semaphore::acquire_until(std::int64_t count, time_point until,
                                                std::stop_token stop,
                                                const permit_options& options) {
    require(count >= 1, "ask a semaphore for one permit or more");
    const auto alive = locks_.engine_;  // until the call learns of the client's destruction
    const acquire_options how{.note = options.note, .max_duration = options.max_duration};
    auto granted = alive->acquires().acquire(name_, until, stop, how, {.count = count});
    if (!granted) return std::nullopt;
    return permits{lease{std::move(granted)}, count};
}

std::vector<semaphore_info> list_semaphores(client& locks, std::string_view prefix,
                                            const page& page) {
    return locks.engine_->semaphores().list(prefix, of_permits, page);
}

}  // namespace rowlock

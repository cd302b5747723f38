#include "lock/recipes/mode_holds.hpp"

#include "lock/client/shared_labels.hpp"
#include "lock/protocol/queue/party_labels.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

namespace rowlock::detail {

using namespace std::chrono_literals;

namespace {

/// No two grants of a process have the same.
std::string new_label() {
    static std::atomic<std::uint64_t> last{0};
    return std::string{protocol::label_of_readers} + std::to_string(++last);
}

}  // namespace

void mode_holds::let_go(std::shared_ptr<mode_holds> last) noexcept {
    if (!last || !last->fork_.in_child()) return;
    static_cast<void>(new (std::nothrow) std::shared_ptr<mode_holds>{std::move(last)});
}

mode_holds::hold* mode_holds::mine() const {
    if (fork_.in_child()) return nullptr;
    const std::lock_guard lock{guard_};
    const auto found = of_threads_.find(std::this_thread::get_id());
    return found == of_threads_.end() ? nullptr : &found->second;
}

mode_holds::hold& mode_holds::require_mine() const {
    fork_.require_same_process();
    if (auto* const held = mine()) return *held;
    throw error{errc::not_owner, "this thread has not locked this shared_mutex"};
}

bool mode_holds::lock(lock_mode mode, const acquire_call& acquire) {
    fork_.require_same_process();
    const bool shared = mode == lock_mode::shared;
    const std::string label = shared && may_join() ? new_label() : std::string{};
    auto granted = acquire(label);
    if (!granted) return false;
    const auto used = std::make_shared<used_lease>(used_lease{*std::move(granted), label});
    const std::lock_guard lock{guard_};
    if (!label.empty()) shared_labels().push_back(label);
    of_threads_.emplace(std::this_thread::get_id(), hold{used, !shared, shared ? 1 : 0});
    if (!label.empty()) {
        young_ = used;
        young_until_ = steady::now() + options.reader_linger;
    }
    return true;
}

/// A grant with a deadline of its own is not for readers that come later.
bool mode_holds::may_join() const {
    return options.reader_linger > 0ms && !options.max_duration;
}

bool mode_holds::lock_shared(steady::time_point until, const std::stop_token& stop,
                             const acquire_call& acquire) {
    if (!may_join()) return lock(lock_mode::shared, acquire);
    fork_.require_same_process();
    bool asks_for_others = false;
    {
        std::unique_lock lock{guard_};
        for (;;) {
            if (join()) return true;
            // One that may give up before us is not waited for: its entry would go with it.
            if (!asking_ || asks_until_ < until) break;
            if (steady::now() >= until || stop.stop_requested()) break;
            answered_.wait_until(lock, stop, std::min(until, steady::now() + 24h),
                                 [&] { return !asking_; });
        }
        if (!asking_) {
            asks_for_others = asking_ = true;
            asks_until_ = stop.stop_possible() ? steady::time_point::min() : until;
        }
    }
    const auto answered = [&] {
        if (!asks_for_others) return;
        const std::lock_guard lock{guard_};
        asking_ = false;
        answered_.notify_all();
    };
    try {
        const bool locked = lock(lock_mode::shared, acquire);
        answered();
        return locked;
    } catch (...) {
        answered();
        throw;
    }
}

/// With the guard held.
bool mode_holds::join() {
    const auto used = young_.lock();
    if (!used || used->users == 0 || steady::now() >= young_until_ || !used->lease.held()) {
        return false;
    }
    shared_labels().push_back(used->label);
    of_threads_.emplace(std::this_thread::get_id(), hold{used, false, 1});
    ++used->users;
    return true;
}

bool mode_holds::is_alone(const hold& mine) {
    const std::lock_guard lock{guard_};
    if (mine.used->users > 1) return false;
    if (young_.lock() == mine.used) young_.reset();
    return true;
}

void mode_holds::unlock(lock_mode mode) {
    auto& held = require_mine();
    if (mode == lock_mode::shared) {
        if (held.shared == 0) throw error{errc::not_owner, "this thread has not locked it shared"};
        if (--held.shared > 0 || held.locked) return;
    } else {
        if (!held.locked || held.used->lease.mode() != mode) {
            throw error{errc::not_owner, std::string{"this thread has not locked it in the mode "} +
                                             to_string(mode)};
        }
        held.locked = false;
        if (held.shared > 0) return held.used->lease.downgrade(lock_mode::shared);
    }
    const auto last = held.used;
    std::erase(shared_labels(), last->label);
    {
        const std::lock_guard lock{guard_};
        of_threads_.erase(std::this_thread::get_id());
        if (--last->users > 0) return;
    }
    last->lease.release();
}

}  // namespace rowlock::detail

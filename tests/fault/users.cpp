#include "fault/users.hpp"

#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/lease.hpp>

#include <unistd.h>

#include <algorithm>
#include <optional>

namespace fault {

using namespace std::chrono_literals;
using stress::boot_time;

users::users(settings how) : how_{std::move(how)} {
    auto options = how_.options;
    options.on_event = [this](const rowlock::event& what) {
        if (what.kind != rowlock::event_kind::session_ended) return;
        const std::lock_guard lock{mutex_};
        ++losses_[what.reason];
    };
    for (const auto& source : how_.sources) {
        clients_.push_back(std::make_unique<rowlock::client>(source, options));
    }
    for (std::size_t client = 0; client < clients_.size(); ++client) {
        for (int thread = 0; thread < how_.threads; ++thread) {
            threads_.emplace_back([this, client, thread] { use(client, thread); });
        }
    }
}

users::~users() {
    stop();
    clients_.clear();  // before the objects that their events use
}

bool users::go_on(int more, std::chrono::milliseconds limit) const {
    const int wanted = grants_ + more;
    return support::eventually([&] { return grants_ >= wanted; }, limit);
}

stress::micros users::first_since(stress::micros from) const {
    const std::lock_guard lock{mutex_};
    stress::micros first = 0;
    for (const auto& each : past_.holds) {
        if (each.acquired >= from && (first == 0 || each.acquired < first)) first = each.acquired;
    }
    return first;
}

std::map<std::string, users::failures_of_a_kind> users::failures() const {
    const std::lock_guard lock{mutex_};
    return failures_;
}

int users::losses(rowlock::loss_reason why) const {
    const std::lock_guard lock{mutex_};
    const auto found = losses_.find(why);
    return found == losses_.end() ? 0 : found->second;
}

void users::stop() {
    over_.request_stop();
    threads_.clear();
}

stress::history users::past() const {
    const std::lock_guard lock{mutex_};
    return past_;
}

void users::use(std::size_t client, int thread) {
    auto& locks = *clients_[client];
    const auto over = over_.get_token();
    for (int turn = 0; !over.stop_requested(); ++turn) {
        stress::observed_hold one;
        one.name = "lock-" + std::to_string((turn + thread) % how_.names);
        one.process = static_cast<pid_t>(client + 1);
        one.thread = thread;
        const auto called = boot_time();
        try {
            hold(locks, std::move(one), over);
        } catch (const rowlock::error& failure) {
            failed("acquisition", called, failure);
            std::this_thread::sleep_for(5ms);
        }
    }
}

void users::hold(rowlock::client& locks, stress::observed_hold one, const std::stop_token& over) {
    one.called = boot_time();
    auto lease = locks.try_acquire_for(one.name, how_.limit, over);
    if (!lease) return;
    one.token = lease->token().value();
    one.session = lease->session_id();
    one.grant_id = lease->grant_id();
    one.acquired = boot_time();
    if (lease->held()) one.db_begin = one.acquired;
    one.db_end = one.db_begin;
    one.believed_until = one.acquired;
    ++grants_;
    std::this_thread::sleep_for(how_.hold);
    const auto now = boot_time();
    if (lease->held()) one.believed_until = one.db_end = now;
    one.release_called = boot_time();
    std::optional<rowlock::error> failure;
    try {
        lease->release();
        one.result = "ok";
    } catch (const rowlock::error& thrown) {
        one.result = rowlock::make_error_code(thrown.kind()).message();
        failure = thrown;
    }
    one.released = boot_time();
    const auto called = one.release_called;
    {
        const std::lock_guard lock{mutex_};
        past_.holds.push_back(std::move(one));
    }
    if (failure) failed("release", called, *failure);
}

void users::failed(const char* call, stress::micros called, const rowlock::error& failure) {
    const std::lock_guard lock{mutex_};
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::microseconds{boot_time() - called});
    auto& kind = failures_[rowlock::make_error_code(failure.kind()).message()];
    if (++kind.times > 1) return;
    kind.first = call + (" after " + std::to_string(took.count()) + " ms: " + failure.what());
}

}  // namespace fault

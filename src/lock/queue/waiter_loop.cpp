#include "lock/queue/waiter_loop.hpp"

#include "base/signal_blocked_thread.hpp"

#include <algorithm>
#include <array>

namespace rowlock::detail {

using namespace std::chrono_literals;

waiter_loop::waiter_loop(const loop_parts& parts, base::alarm& alarm)
    : parts_{parts},
      alarm_{alarm},
      backoff_{parts.context.options},
      rounds_{parts, [&alarm] { alarm.poke(); }, stopping_} {
    try {
        thread_ = base::signal_blocked_thread([this] { run(); });
    } catch (const std::system_error&) {
        throw error{errc::out_of_resources,
                    "no thread could be started to look after waiters: raise the limit (ulimit "
                    "-u)"};
    }
}

waiter_loop::~waiter_loop() {
    close();
}

void waiter_loop::stop() noexcept {
    stopping_ = true;
    alarm_.poke();
}

void waiter_loop::close() noexcept {
    stop();
    if (thread_.joinable()) thread_.join();
    rounds_.close();
}

void waiter_loop::fail(const error& failure, std::optional<std::string_view> only) {
    for (const auto& each : parts_.registry.fail_all(failure, only)) {
        give_back(parts_.grants, *each);
    }
}

void waiter_loop::run() noexcept {
    while (!stopping_) {
        const nanoseconds next = step();
        // From now on the session's mailbox is read, whether or not a thread waits.
        rounds_.attend_current();
        if (!stopping_) sleep(std::min(next, rounds_.mail_due()));
    }
}

void waiter_loop::sleep(nanoseconds until) noexcept {
    std::array<pollfd, 2> polled{
        {{rounds_.source_descriptor(), POLLIN, 0}, {rounds_.mailbox_descriptor(), POLLIN, 0}}};
    alarm_.wait_until(until, polled);
}

/// Returns when the next step is due.
nanoseconds waiter_loop::step() noexcept {
    try {
        rounds_.leave_dead_connection();
        const nanoseconds pause = backoff_.pauses_until(parts_.registry.empty());
        if (parts_.now() < pause) {
            rounds_.read_wakeups();
            return pause;
        }
        rounds_.run();
        backoff_.succeeded();
        return rounds_.next_due();
    } catch (const error& failure) {
        return after_failure(failure);
    } catch (const std::exception& failure) {
        try {
            return after_failure(error{errc::out_of_resources, failure.what()});
        } catch (...) {
            return parts_.now() + 100ms;
        }
    }
}

/// Unfinished tasks are still on their lists. Waiting threads receive only errors that no
/// repetition mends; a server that is away for a while costs them time, as long as their session
/// lives.
nanoseconds waiter_loop::after_failure(const error& failure) noexcept {
    try {
        rounds_.read_wakeups();  // notifications that the failed statement has read
    } catch (...) {
        // The connection turns out to be closed below; without memory they are read later.
    }
    rounds_.drop_broken_connection(failure);
    if (!loop_backoff::passes(failure)) {
        parts_.tasks.forget_checks();  // the waiters poll for themselves
        try {
            fail(failure, {});
        } catch (...) {
            // No memory: the next round fails again.
        }
    }
    return backoff_.failed(failure, parts_.registry.empty(), parts_.now());
}

}  // namespace rowlock::detail

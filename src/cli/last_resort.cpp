#include "cli/last_resort.hpp"

#include "cli/exit_code.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace rowlock::cli {
namespace {

using std::chrono::nanoseconds;

int require(int result) {
    if (result < 0)
        throw system_call_failed("the command cannot be bound to its supervisor", errno);
    return result;
}

}  // namespace

last_resort::last_resort() {
    for (auto& each : pipes_) {
        int ends[2];
        require(pipe2(ends, O_CLOEXEC));
        each.reader = descriptor{ends[0]};  // the lower number
        each.writer = descriptor{ends[1]};
        require(fcntl(ends[0], F_SETSIG, SIGKILL));
        require(fcntl(ends[0], F_SETFL, O_ASYNC));
    }
    auto& turned = pipes_.back();
    turned.reader =
        descriptor{require(fcntl(turned.reader.get(), F_DUPFD_CLOEXEC, turned.writer.get() + 1))};
    sigevent kill{};
    kill.sigev_notify = SIGEV_SIGNAL;
    kill.sigev_signo = SIGKILL;
    require(timer_create(CLOCK_BOOTTIME, &kill, &timer_));
}

last_resort::~last_resort() {
    timer_delete(timer_);
}

bool last_resort::bind_group_of_this_process() const noexcept {
    return std::ranges::all_of(pipes_, [](const pipe& each) {
        return fcntl(each.reader.get(), F_SETOWN, -getpid()) == 0;
    });
}

void last_resort::die_at(nanoseconds time) const noexcept {
    time = std::max(time, nanoseconds{1});  // zero would revoke it
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
    itimerspec due{};
    due.it_value.tv_sec = seconds.count();
    due.it_value.tv_nsec = (time - seconds).count();
    timer_settime(timer_, TIMER_ABSTIME, &due, nullptr);
}

void last_resort::live_on() const noexcept {
    const itimerspec none{};
    timer_settime(timer_, 0, &none, nullptr);
}

}  // namespace rowlock::cli

#include "base/clock.hpp"

#include <rowlock/error.hpp>

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace rowlock::base {
namespace {

timespec to_timespec(nanoseconds time) {
    const auto whole = std::chrono::floor<std::chrono::seconds>(time);
    return {static_cast<time_t>(whole.count()), static_cast<long>((time - whole).count())};
}

}  // namespace

nanoseconds clock::now() const noexcept {
    if (replaced_) return replaced_->now();
    timespec time{};
    clock_gettime(CLOCK_BOOTTIME, &time);
    return std::chrono::seconds{time.tv_sec} + nanoseconds{time.tv_nsec};
}

alarm::alarm(clock clock)
    : clock_{std::move(clock)},
      timer_{timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)},
      wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (timer_ < 0 || wake_ < 0) {
        if (timer_ >= 0) close(timer_);
        if (wake_ >= 0) close(wake_);
        throw error{errc::out_of_resources,
                    "no timer could be made: raise the limit of open files (ulimit -n)"};
    }
    if (clock_.replaced()) {
        try {
            subscription_ = clock_.replaced()->on_advance([this] { poke(); });
        } catch (...) {
            close(timer_);
            close(wake_);
            throw;
        }
    }
}

alarm::~alarm() {
    subscription_.reset();
    close(timer_);
    close(wake_);
}

bool alarm::wait_until(nanoseconds moment, std::span<pollfd> also) {
    // No allocation: the sleep of a library thread must not fail.
    std::array<pollfd, 2 + most_others> watched{{{wake_, POLLIN, 0}, {timer_, POLLIN, 0}}};
    also = also.first(std::min(also.size(), most_others));
    std::copy(also.begin(), also.end(), watched.begin() + 2);
    const bool timed = moment != never && !clock_.replaced();
    if (timed) {
        // Zero would disarm the timer; a time that has passed fires at once.
        itimerspec due{};
        due.it_value = to_timespec(std::max(moment, nanoseconds{1}));
        timerfd_settime(timer_, TFD_TIMER_ABSTIME, &due, nullptr);
    }
    if (clock_.replaced() && moment <= clock_.now()) return false;
    // Not armed for this wait, but perhaps still armed from an earlier one.
    if (!timed) watched[1].fd = -1;
    const int spoke = poll(watched.data(), 2 + also.size(), -1);
    if (spoke > 0) std::copy_n(watched.begin() + 2, also.size(), also.begin());
    std::uint64_t count = 0;
    const bool poked = spoke > 0 && (watched[0].revents & POLLIN) != 0;
    if (poked) static_cast<void>(!read(wake_, &count, sizeof count));
    if ((watched[1].revents & POLLIN) != 0) static_cast<void>(!read(timer_, &count, sizeof count));
    return poked;
}

void alarm::poke() const noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!write(wake_, &one, sizeof one));
}

}  // namespace rowlock::base

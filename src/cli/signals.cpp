#include "cli/signals.hpp"

#include "cli/exit_code.hpp"

#include <poll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace rowlock::cli {
namespace {

bool is_ignored(int number) {
    struct sigaction now {};
    return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

blocked_signals::blocked_signals(std::initializer_list<int> delivered,
                                 std::initializer_list<int> silenced) {
    sigset_t wanted;
    sigset_t blocked;
    sigemptyset(&wanted);
    sigemptyset(&blocked);
    for (const int number : silenced) sigaddset(&blocked, number);
    for (const int number : delivered) {
        if (number != SIGCHLD && is_ignored(number)) continue;
        sigaddset(&wanted, number);
        sigaddset(&blocked, number);
    }
    descriptor_ = cli::descriptor{signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (!descriptor_) throw system_call_failed("signalfd", errno);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

blocked_signals::~blocked_signals() {
    if (!disregarded_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int blocked_signals::next() noexcept {
    if (put_back_ != 0) return std::exchange(put_back_, 0);
    signalfd_siginfo info{};
    const ssize_t got = read(descriptor_.get(), &info, sizeof info);
    return got == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

int blocked_signals::wait(std::chrono::milliseconds time, int also) noexcept {
    pollfd watched[] = {{descriptor_.get(), POLLIN, 0}, {also, POLLIN, 0}};
    if (put_back_ != 0) time = {};
    const auto timeout = std::clamp<std::int64_t>(time.count(), 0, INT_MAX);
    poll(watched, 2, static_cast<int>(timeout));
    return next();
}

}  // namespace rowlock::cli

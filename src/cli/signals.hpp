#pragma once

#include "cli/descriptor.hpp"

#include <chrono>
#include <csignal>
#include <initializer_list>

namespace rowlock::cli {

/// Blocks signals in this thread, and in those it makes, and delivers them through a file
/// descriptor. Ignored signals (nohup, a shell's background job) stay ignored. No handler is
/// installed: a process made later needs nothing but before() as its mask.
class blocked_signals {
public:
    /// `silenced` are blocked and never delivered.
    explicit blocked_signals(std::initializer_list<int> delivered,
                             std::initializer_list<int> silenced = {});
    blocked_signals(const blocked_signals&) = delete;
    blocked_signals& operator=(const blocked_signals&) = delete;
    ~blocked_signals();

    [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
    /// The next pending signal, or 0.
    [[nodiscard]] int next() noexcept;
    /// Sleeps up to `time`, or until `also` turns readable; returns the signal that ended the
    /// sleep, or 0.
    [[nodiscard]] int wait(std::chrono::milliseconds time, int also = -1) noexcept;
    /// Makes next() return this signal again: for a caller that was woken by it but leaves it to
    /// another.
    void put_back(int number) noexcept { put_back_ = number; }
    /// Discards all these signals from now on, even after this object's destruction: for a caller
    /// that has finished its work and is about to exit.
    void disregard() noexcept { disregarded_ = true; }
    [[nodiscard]] const sigset_t& before() const noexcept { return before_; }

private:
    sigset_t before_{};
    cli::descriptor descriptor_;
    int put_back_ = 0;
    bool disregarded_ = false;
};

}  // namespace rowlock::cli

#pragma once

#include "cli/descriptor.hpp"

#include <time.h>

#include <array>
#include <chrono>

namespace rowlock::cli {

/// What the kernel does where no process of ours can act:
///
/// - When this process dies, by kill -9 too, a whole process group is killed. PR_SET_PDEATHSIG does
///   that to children alone, not to theirs.
/// - At a time that this process has set, it is killed, also if it is stopped, and the group with
///   it.
///
/// The first is a pipe of which this process has both ends. When its writer is closed the kernel
/// sends the owner of the reader, the group, the reader's signal (F_SETOWN, F_SETSIG), unless the
/// reader was closed before. The kernel closes the files of a dead process in the order of their
/// numbers, or the other way round: there are two pipes, one for each.
class last_resort {
public:
    /// @throws failure
    last_resort();
    last_resort(const last_resort&) = delete;
    last_resort& operator=(const last_resort&) = delete;
    ~last_resort();

    /// To be called by a child that is the group's leader, before exec. Async-signal-safe.
    /// @return false, and errno, if the kernel refuses
    [[nodiscard]] bool bind_group_of_this_process() const noexcept;
    /// Sets or moves the time, which is one of boot_time().
    void die_at(std::chrono::nanoseconds time) const noexcept;
    /// Revokes the time.
    void live_on() const noexcept;

private:
    struct pipe {
        descriptor reader, writer;
    };

    std::array<pipe, 2> pipes_;
    timer_t timer_{};
};

}  // namespace rowlock::cli

// Loaded before libfaketime (0.9.10), which moves every absolute timer of timerfd by the step of
// the wall clock, also those of CLOCK_BOOTTIME, which it otherwise leaves alone.

#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the header's are reserved
extern "C" int timerfd_settime(int timer, int flags, const itimerspec* due,
                               itimerspec* before) noexcept {
    return static_cast<int>(syscall(SYS_timerfd_settime, timer, flags, due, before));
}

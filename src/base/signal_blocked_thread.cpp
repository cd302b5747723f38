#include "base/signal_blocked_thread.hpp"

#include <pthread.h>

#include <csignal>
#include <cstring>

namespace rowlock::base {

static_assert(sizeof(sigset_t) <= 128);

blocked_signals::blocked_signals() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::memcpy(before_, &before, sizeof before);
}

blocked_signals::~blocked_signals() {
    sigset_t before;
    std::memcpy(&before, before_, sizeof before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace rowlock::base

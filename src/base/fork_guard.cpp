#include "base/fork_guard.hpp"

#include <rowlock/error.hpp>

#include <pthread.h>

#include <atomic>

namespace rowlock::base {
namespace {

std::atomic<std::uint64_t> generation{0};

/// The child handler runs in the child alone, before fork() returns there.
const int registered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint64_t fork_generation() noexcept {
    static_cast<void>(registered);
    return generation.load(std::memory_order_relaxed);
}

void fork_guard::require_same_process() const {
    if (in_child()) {
        throw error{errc::wrong_process,
                    "this client belongs to the parent process: make a new one after fork()"};
    }
}

}  // namespace rowlock::base

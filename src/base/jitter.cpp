#include "base/jitter.hpp"

#include "base/fork_guard.hpp"

#include <cstdint>
#include <exception>

namespace rowlock::base {
namespace {

std::uint_fast32_t seed() noexcept {
    try {
        return std::random_device{}();
    } catch (const std::exception&) {
        // The kernel has no random numbers for us: the clock differs between processes, too.
        const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
        return static_cast<std::uint_fast32_t>(now);
    }
}

}  // namespace

std::minstd_rand& jitter_generator() noexcept {
    thread_local std::uint64_t seeded_in = fork_generation();
    thread_local std::minstd_rand generator{seed()};
    if (seeded_in != fork_generation()) {
        seeded_in = fork_generation();
        generator.seed(seed());
    }
    return generator;
}

}  // namespace rowlock::base

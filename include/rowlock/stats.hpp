#pragma once

#include <cstdint>

namespace rowlock {

/// Counters of one client since it was made. Monotone except the last three.
struct client_stats {
    std::uint64_t acquired = 0;  ///< grants received
    std::uint64_t busy = 0;      ///< attempts that found the lock held
    std::uint64_t released = 0;
    std::uint64_t lost = 0;
    std::uint64_t heartbeats = 0;  ///< confirmed
    std::uint64_t heartbeat_failures = 0;
    std::uint64_t reconnects = 0;  ///< connections found broken, and the heartbeat's renewals
    std::uint64_t retries = 0;     ///< calls repeated after a retryable error
    std::uint64_t sessions = 0;    ///< opened
    std::uint64_t unknown_outcomes = 0;
    std::uint64_t held = 0;         ///< leases held now
    std::uint64_t unresolved = 0;   ///< outcomes still to be found out now
    std::uint64_t connections = 0;  ///< open now, the heartbeat's included
};

}  // namespace rowlock

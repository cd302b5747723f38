#pragma once

#include <cstdint>

namespace rowlock {

/// @addtogroup watching
/// @{

/// Counters of one client since its construction. Monotone except the last four.
struct client_stats {
    std::uint64_t acquired = 0;            ///< grants received
    std::uint64_t busy = 0;                ///< attempts that found the lock held
    std::uint64_t released = 0;            ///< leases released by their holders
    std::uint64_t lost = 0;                ///< leases lost; the events say why
    std::uint64_t heartbeats = 0;          ///< confirmed
    std::uint64_t heartbeat_failures = 0;  ///< not confirmed, and repeated
    std::uint64_t reconnects = 0;        ///< broken connections found, and the heartbeat's renewals
    std::uint64_t retries = 0;           ///< calls repeated after a retryable error
    std::uint64_t sessions = 0;          ///< opened
    std::uint64_t unknown_outcomes = 0;  ///< replies that were lost
    std::uint64_t queued = 0;            ///< queue entries made
    std::uint64_t handed_over = 0;       ///< grants received in a queue; part of `acquired`
    std::uint64_t wake_ups = 0;          ///< notifications of a waiter's grant
    std::uint64_t polls = 0;       ///< reads of all queue entries of the client, one statement each
    std::uint64_t cancelled = 0;   ///< queue entries given up
    std::uint64_t deadlocks = 0;   ///< queue entries given up because of a cycle of waiters
    std::uint64_t waiting = 0;     ///< threads in queues now
    std::uint64_t held = 0;        ///< leases held now
    std::uint64_t unresolved = 0;  ///< outcomes not yet known now
    std::uint64_t connections = 0;  ///< open now, the heartbeat's included
};

/// @}

}  // namespace rowlock

#pragma once

#include <rowlock/client.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/stats.hpp>

#include <chrono>
#include <stdexcept>
#include <string>

namespace support {

/// Acquires and releases the lock until the client keeps its lease, and returns a lease that the
/// client granted itself (client_options::retain). No other thread may use the client meanwhile.
/// @throws std::runtime_error if the client keeps nothing for ten seconds
[[nodiscard]] inline rowlock::lease acquire_kept(rowlock::client& locks, const std::string& name) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (std::chrono::steady_clock::now() < limit) {
        const auto before = locks.stats().local_grants;
        auto lease = locks.acquire(name);
        if (locks.stats().local_grants > before) return lease;
        lease.release();
    }
    throw std::runtime_error{"the client does not keep " + name};
}

}  // namespace support

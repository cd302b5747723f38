#pragma once

#include "common/measure.hpp"
#include "common/tables.hpp"
#include "throughput/contestants.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <memory>

/// What the two programs about shared locks have in common.
namespace bench {

[[nodiscard]] std::shared_ptr<rowlock::client> client_for(const tables& where,
                                                          const throughput_options& options);

/// Threads of one client that read by one shared_mutex.
/// @param linger 0: each has a grant of its own
[[nodiscard]] contestant readers(const tables& where, int threads,
                                 const throughput_options& options,
                                 std::chrono::milliseconds linger);
/// Threads of one client that take a permit of one semaphore, of which there are enough.
[[nodiscard]] contestant takers(const tables& where, int threads,
                                const throughput_options& options);
/// One of them.
[[nodiscard]] std::unique_ptr<worker> taker_of(std::shared_ptr<rowlock::client> locks);

}  // namespace bench

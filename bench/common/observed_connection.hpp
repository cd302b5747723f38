#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <cstdint>
#include <functional>

namespace bench {

/// Observes each statement of a client, BEGIN and COMMIT included, in any thread: it calls `send`
/// once, and returns its answer.
using observer =
    std::function<rowlock::sql::result(const std::function<rowlock::sql::result()>& send)>;
[[nodiscard]] rowlock::sql::connection_source observed(rowlock::sql::connection_source inner,
                                                       observer by);

/// Increments `statements` with each statement, so that all are counted.
[[nodiscard]] rowlock::sql::connection_source counted(rowlock::sql::connection_source inner,
                                                      std::atomic<std::uint64_t>& statements);

}  // namespace bench

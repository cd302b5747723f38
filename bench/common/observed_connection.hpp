#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <cstdint>
#include <functional>

namespace bench {

/// Sees each statement of a client, BEGIN and COMMIT included, on whichever thread: it calls
/// `send`, once, and returns what that answers.
using observer =
    std::function<rowlock::sql::result(const std::function<rowlock::sql::result()>& send)>;
[[nodiscard]] rowlock::sql::connection_source observed(rowlock::sql::connection_source inner,
                                                       observer by);

/// Raises `statements` by one with each: nothing that a client does escapes the count.
[[nodiscard]] rowlock::sql::connection_source counted(rowlock::sql::connection_source inner,
                                                      std::atomic<std::uint64_t>& statements);

}  // namespace bench

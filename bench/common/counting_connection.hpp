#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <cstdint>

namespace bench {

/// Connections that raise `statements` by one with each statement they send, BEGIN and COMMIT
/// included, on every thread: nothing that a client does escapes the count.
[[nodiscard]] rowlock::sql::connection_source counted(rowlock::sql::connection_source inner,
                                                      std::atomic<std::uint64_t>& statements);

}  // namespace bench

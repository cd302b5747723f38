#pragma once

#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace rowlock::sql {

/// State shared by the copies of a connection source, made on first use.
struct connection_source::shared {
    std::mutex mutex;
    std::shared_ptr<::rowlock::detail::row_sessions> rows;
    /// 0, or 1 + the fork_generation() that `rows` was made in: checked before the mutex, which a
    /// forked child may have inherited locked.
    std::atomic<std::uint64_t> made_in{0};
};

}  // namespace rowlock::sql

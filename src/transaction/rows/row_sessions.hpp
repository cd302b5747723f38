#pragma once

#include "base/fork_guard.hpp"
#include "sql/connection_pool.hpp"
#include "transaction/rows/row_keys.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>

namespace rowlock::detail {

/// State shared by the row sessions of one connection source and its copies. Lives as long as the
/// source or one of the sessions. Thread-safe.
class row_sessions {
public:
    /// @throws error errc::wrong_process in a forked child, if its parent used the source's row
    /// sessions
    [[nodiscard]] static std::shared_ptr<row_sessions> of(const sql::connection_source& source);

    explicit row_sessions(sql::connection_source bare);
    row_sessions(const row_sessions&) = delete;
    row_sessions& operator=(const row_sessions&) = delete;
    ~row_sessions();

    [[nodiscard]] sql::connection_pool& pool() noexcept { return pool_; }
    [[nodiscard]] detail::row_keys& keys() noexcept { return keys_; }
    [[nodiscard]] const base::fork_guard& fork() const noexcept { return fork_; }

private:
    const base::fork_guard fork_;
    sql::connection_pool pool_;
    detail::row_keys keys_;
};

}  // namespace rowlock::detail

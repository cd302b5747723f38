#pragma once

#include "sql/statements.hpp"
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

/// Operations on leases in the caller's transaction, on the caller's connection.
namespace rowlock::strategy {

/// One grant, as the database must record it.
struct claim {
    std::string_view name;
    std::int64_t session;
    std::int64_t token;
    std::int64_t grant_id;
};

struct fence_limits {
    std::chrono::milliseconds statement;  ///< for one statement, on the server
    std::chrono::milliseconds idle;       ///< idle time of the transaction from now on
};

enum class verdict : unsigned char {
    current,      ///< and locked
    not_current,  ///< according to the latest state that this connection sees
    not_in_view,  ///< the transaction's snapshot does not show it, and may be older than the grant
};

/// Thread-safe. The caller first calls sql::require_transaction(). Both throw what the database
/// refuses.
class fencing {
public:
    explicit fencing(const sql::statements& statements) : sql_{statements} {}

    verdict fence(sql::connection& db, const claim& lease, const fence_limits& limits,
                  sql::deadline until) const;
    verdict release_on_commit(sql::connection& db, const claim& lease, const fence_limits& limits,
                              sql::deadline until) const;

private:
    enum class kind : unsigned char { fence, fence_view, fence_write, lock, release_on_commit };

    verdict on_mysql(sql::connection& db, kind which, const claim& lease,
                     const fence_limits& limits, sql::deadline until) const;
    sql::result run_bounded(sql::connection& db, kind which, const claim& lease,
                            std::chrono::milliseconds longest, sql::deadline until) const;
    /// PostgreSQL: the statement with our tables' schema, which the caller's search path may not
    /// have.
    sql::statement located(kind which) const;
    const sql::statement& bounded(kind which, bool mariadb,
                                  std::chrono::milliseconds longest) const;

    const sql::statements sql_;
    /// MySQL: the bound is part of the text. Keyed by kind, server and milliseconds; few in any
    /// program.
    mutable std::mutex mutex_;
    mutable std::map<std::pair<kind, std::int64_t>, sql::statement> bounded_;
    mutable std::map<std::pair<kind, std::string>, sql::statement> located_;
};

}  // namespace rowlock::strategy

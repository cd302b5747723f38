#pragma once

#include "sql/statements.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// Operations on leases and permits in the caller's transaction, on the caller's connection.
namespace rowlock::detail {

/// One grant, as the database must record it.
struct claim {
    std::string_view name;
    session_id session;
    std::int64_t token;
    rowlock::grant_id grant_id;
    bool permits = false;  ///< of a semaphore or shared_mutex; else a lease
};

struct fence_limits {
    std::chrono::milliseconds statement;  ///< for one statement, on the server
    std::chrono::milliseconds idle;       ///< idle time of the transaction from now on
    bool two_phase = false;               ///< the transaction will be prepared
};

enum class verdict : unsigned char {
    current,      ///< and locked
    not_current,  ///< according to the latest state that this connection sees
    not_in_view,  ///< the transaction's snapshot does not show it, and may be older than the grant
};

/// The caller first calls sql::require_transaction(). Both operations throw what the database
/// refuses. One implementation a dialect (make_fencing). Thread-safe.
class fencing {
public:
    virtual ~fencing() = default;
    fencing(const fencing&) = delete;
    fencing& operator=(const fencing&) = delete;

    virtual verdict fence(sql::connection& db, const claim& lease, const fence_limits& limits,
                          sql::deadline until) const = 0;
    /// For leases alone.
    virtual verdict release_on_commit(sql::connection& db, const claim& lease,
                                      const fence_limits& limits, sql::deadline until) const = 0;

    /// For data beside a member of a quorum, after fence(): whether the member knows no later
    /// token, nor will before the transaction ends.
    virtual verdict fence_quorum_token(sql::connection& db, std::string_view name,
                                       std::int64_t token, const fence_limits& limits,
                                       sql::deadline until) const = 0;

    /// The current database of a connection, where a transaction in another one may read tables of
    /// the same names (MySQL, one round trip). nullopt elsewhere: there the operations themselves
    /// report it.
    virtual std::optional<std::string> database_of(sql::connection& /*db*/,
                                                   sql::deadline /*until*/) const {
        return std::nullopt;
    }

protected:
    fencing() = default;
};

/// The implementation for the dialect that `statements` are written in.
[[nodiscard]] std::unique_ptr<const fencing> make_fencing(const sql::statement_set& statements);

}  // namespace rowlock::detail

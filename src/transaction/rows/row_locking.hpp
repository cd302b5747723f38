#pragma once

#include "transaction/rows/row_keys.hpp"
#include <rowlock/row_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// Which row is to be locked, and how.
struct row_request {
    std::string_view table;
    const key_columns& columns;
    const row_key& values;
    const std::vector<std::string>& read;  ///< empty: the key
    row_wait wait;
    std::chrono::milliseconds statement_timeout;
    std::chrono::milliseconds index_cache_ttl;
    sql::deadline last;  ///< no wait or statement lasts longer
    /// The transaction is the caller's: no setting may be left changed, and SQLite's write lock may
    /// not be ours yet.
    bool borrowed;
};

/// Locks one row in the open transaction; see row_session::lock().
[[nodiscard]] std::optional<table_row> lock_one(sql::connection& db, row_keys& keys,
                                                const row_request& wanted);

/// Creates the row of a resource unless it exists, and waits for other transactions that are
/// creating it. The row is not necessarily locked afterwards.
void insert_resource(sql::connection& db, row_keys& keys, const sql::statement& insert,
                     std::string_view name, row_wait wait,
                     std::chrono::milliseconds statement_timeout, sql::deadline last);

/// Whether lock_one and insert_resource set the transaction's lock_timeout, which then applies to
/// later statements too (PostgreSQL).
[[nodiscard]] bool sets_lock_timeout(sql::dialect speaks) noexcept;

/// The indexes of `keys` in the order to lock them, which is the same for every client and for any
/// order of the columns.
[[nodiscard]] std::vector<std::size_t> locking_order(const key_columns& columns,
                                                     const std::vector<row_key>& keys);

/// @throws error errc::unsupported on a Galera node, unless the risk is accepted
void refuse_cluster(sql::connection& db, bool accepted, sql::deadline until);

/// @throws error errc::unsupported, invalid_options
void require_usable(row_wait wait, sql::dialect speaks);

}  // namespace rowlock::detail

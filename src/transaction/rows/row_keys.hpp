#pragma once

#include "sql/statement_cache.hpp"
#include <rowlock/row_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// A table and the columns of a key that names at most one row, according to the catalog.
struct known_key {
    /// The type a value must have for the server to use the column's index.
    enum class kind : unsigned char { any, integer, text };

    struct column {
        std::string name;  ///< quoted
        kind holds = kind::any;
        std::string type;  ///< MySQL: as the server writes it
        /// MySQL: set if it is not the connection's utf8mb4, so that values must be converted.
        std::string charset;
        std::string collation;
        std::string equals;  ///< the operator, with blanks around it

        bool operator==(const column&) const = default;
    };

    std::string table;            ///< quoted
    std::string index;            ///< MySQL: quoted, to force the plan
    std::vector<column> columns;  ///< in the caller's order
    /// MySQL: EXPLAIN has shown that the index is used. The copies share it.
    std::shared_ptr<std::atomic<bool>> plan_checked;
    /// MySQL: how often a key was seen altered before; the key's statements name this number. A
    /// statement prepared for a column of another type keeps that type for its parameter, and with
    /// it finds no row.
    unsigned alterations = 0;
    std::chrono::steady_clock::time_point since;
};

/// Caches keys and the statements made for them; bounded, thread-safe. One for each connection
/// source's row sessions, and one for each connection that lock_row() was called with.
class row_keys {
public:
    /// The cache of a connection.
    [[nodiscard]] static row_keys& of(sql::connection& db);

    /// Looks the table up, unless that was done within `trust`. At most one round trip.
    /// @throws error errc::unindexed_key, schema_outdated, unsupported, invalid_options
    [[nodiscard]] known_key find(sql::connection& db, std::string_view table,
                                 const key_columns& columns, std::chrono::milliseconds trust,
                                 sql::deadline until);
    /// Makes the next find() look the table up again.
    void forget(std::string_view table, const key_columns& columns);

    /// Returns the same statement for the same text, so that a connection prepares it once.
    [[nodiscard]] sql::statement statement(const std::string& text) { return statements_.of(text); }
    /// Has the statement prepared anew, because a table that it names was altered.
    void forget_statement(const std::string& text) { statements_.forget(text); }

private:
    std::mutex mutex_;
    std::map<std::string, known_key> keys_;
    unsigned alterations_ = 0;
    // Far more than the statements of the tables that a program locks.
    sql::statement_cache statements_{500};
};

}  // namespace rowlock::detail

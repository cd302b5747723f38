#pragma once

#include "sql/statements.hpp"
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

namespace rowlock::strategy {

struct walk_options {
    int batch = 0;                         ///< rows that a statement may change
    std::chrono::milliseconds patience{};  ///< for a statement of the walk's own
};

/// Goes once over the table of leases in pieces, so that no statement lasts long or locks much,
/// however many leases there are and however few of them it wants, and none sees again what those
/// before it have seen. Between two pieces it rests for as long as the first one took. What changes
/// behind it is for the next walk. One thread, not longer than the connection.
class table_scan {
public:
    table_scan(sql::connection& db, const sql::statements& sql, const walk_options& options,
               const std::stop_token& stop)
        : db_{db}, sql_{sql}, options_{options}, stop_{stop} {}

    /// On PostgreSQL: after the row `row` of the page `page`, before the page `past`, in the order
    /// in which rows lie on the disk.
    struct pages {
        std::int64_t page = 0;
        std::int64_t row = 0;
        std::int64_t past = 0;
    };
    /// Where a statement ended that took a whole batch and left the rest of its pages.
    struct place {
        std::int64_t page = 0;
        std::int64_t row = 0;
    };
    using by_pages = std::function<std::optional<place>(const pages&)>;
    /// As many pages at a time as take some milliseconds. The statements make no round trip but
    /// `look`'s own and one at the start.
    void over_pages(const by_pages& look) const;

    /// On SQLite: after one name up to another, NULL = to the last. A batch of names at a time.
    using by_names = std::function<void(const std::string& after, const sql::value& upto)>;
    void over_names(const by_names& look) const;

private:
    [[nodiscard]] sql::deadline until() const {
        return std::chrono::steady_clock::now() + options_.patience;
    }

    sql::connection& db_;
    const sql::statements& sql_;
    walk_options options_;
    const std::stop_token& stop_;
};

}  // namespace rowlock::strategy

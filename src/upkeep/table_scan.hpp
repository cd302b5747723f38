#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace rowlock::detail {

struct walk_options {
    int batch = 0;                         ///< rows that a statement may change
    std::chrono::milliseconds patience{};  ///< for a statement of the scan's own
    /// Times each piece, and pauses after it. Unit tests replace both.
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    std::function<void(std::chrono::steady_clock::duration)> pause =
        [](std::chrono::steady_clock::duration time) { std::this_thread::sleep_for(time); };
};

/// Scans the table of leases once in pieces, so that no statement lasts long or locks much, however
/// many leases there are and however few match, and no statement re-reads what earlier ones have
/// read. Pauses between two pieces for as long as the first one took. Rows that change behind the
/// scan are left to the next. Used by one thread; must not outlive the connection.
class table_scan {
public:
    /// @param pieces the statement that finds them: lease_pages for over_pages(), next_name for
    /// over_names()
    table_scan(sql::connection& db, const sql::statement& pieces, const walk_options& options,
               const std::stop_token& stop)
        : db_{db}, pieces_{pieces}, options_{options}, stop_{stop} {}

    /// On PostgreSQL: after the row `row` of the page `page`, before the page `past`, in physical
    /// order.
    struct pages {
        std::int64_t page = 0;
        std::int64_t row = 0;
        std::int64_t past = 0;
    };
    /// Where a statement stopped after a whole batch, with the rest of its pages left.
    struct place {
        std::int64_t page = 0;
        std::int64_t row = 0;
    };
    using by_pages = std::function<std::optional<place>(const pages&)>;
    /// As many pages at a time as take some milliseconds. Makes one round trip at the start,
    /// besides those of `visit`.
    void over_pages(const by_pages& visit) const;

    /// On SQLite: after one name up to another, NULL = to the last. A batch of names at a time.
    using by_names = std::function<void(const std::string& after, const sql::value& upto)>;
    void over_names(const by_names& visit) const;

private:
    [[nodiscard]] sql::deadline until() const {
        return std::chrono::steady_clock::now() + options_.patience;
    }

    /// Pauses for as long as the server has worked for us, and no longer than 20 ms.
    void rest_after(std::chrono::steady_clock::duration work) const;

    sql::connection& db_;
    const sql::statement pieces_;
    walk_options options_;
    const std::stop_token& stop_;
};

}  // namespace rowlock::detail

#pragma once

#include <rowlock/table_row.hpp>

#include <chrono>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock {

/// @addtogroup rows
/// Shared by row_session and lock_row(): how a row is named and waited for.
///
/// @{

/// What to do while another transaction has the row locked. The time is for one row. (A table that
/// is being altered is different: MariaDB and MySQL wait for it as for the row, skip_locked up to
/// statement_timeout; PostgreSQL waits up to the session's own `wait`, or the lock_timeout of
/// the caller's transaction, regardless of this row_wait.)
class row_wait {
public:
    /// Which of the functions below made it.
    enum class kind : unsigned char {
        bounded,      ///< up to limit()
        nowait,       ///< not at all: an error
        skip_locked,  ///< not at all: an empty answer
    };

    /// Waits up to `limit`, to the millisecond, then errc::timed_out. PostgreSQL, MariaDB and MySQL
    /// wait in the server's queue. If MySQL's innodb_lock_wait_timeout is shorter, the library
    /// repeats the statement until `limit`; with innodb_rollback_on_timeout the wait ends then.
    [[nodiscard]] static constexpr row_wait bounded(std::chrono::milliseconds limit) noexcept {
        return {kind::bounded, limit};
    }
    /// errc::timed_out at once. (SQLite: after 10 ms.)
    [[nodiscard]] static constexpr row_wait nowait() noexcept { return {kind::nowait, {}}; }
    /// An empty answer at once: a locked row and a missing one look the same. Not on SQLite.
    [[nodiscard]] static constexpr row_wait skip_locked() noexcept {
        return {kind::skip_locked, {}};
    }

    /// Which of the functions above made it.
    [[nodiscard]] constexpr kind how() const noexcept { return kind_; }
    /// Of bounded(), else 0.
    [[nodiscard]] constexpr std::chrono::milliseconds limit() const noexcept { return limit_; }

    /// By kind and limit.
    friend constexpr bool operator==(const row_wait&, const row_wait&) = default;

private:
    constexpr row_wait(kind how, std::chrono::milliseconds limit) noexcept
        : kind_{how}, limit_{limit} {}

    kind kind_;
    std::chrono::milliseconds limit_;
};

/// The columns of a key: `{"sku"}`, `{"warehouse", "sku"}`. Text is viewed: it must live through
/// the call.
class key_columns {
public:
    /// Names, in the order in which the key's values follow.
    key_columns(std::initializer_list<std::string_view> names) : names_{names} {}
    /// The same from strings.
    explicit key_columns(std::span<const std::string> names) : names_{names.begin(), names.end()} {}

    /// In their order.
    [[nodiscard]] const std::vector<std::string_view>& names() const noexcept { return names_; }

private:
    std::vector<std::string_view> names_;
};

/// @}

}  // namespace rowlock

#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What row_session and lock_row() have in common: how a row is named, waited for and returned.
namespace rowlock {

/// What to do while another transaction has the row locked. The time is for one row. (A table that
/// is being altered is another matter: MariaDB and MySQL wait for it as for the row, skip_locked up
/// to the statement deadline; PostgreSQL up to the session's own `wait`, or the lock_timeout of the
/// caller's transaction, whatever is said here.)
class row_wait {
public:
    enum class kind : unsigned char { bounded, nowait, skip_locked };

    /// Waits up to `limit`, to the millisecond, then errc::timed_out. PostgreSQL and MariaDB wait
    /// in the server's queue; MySQL, which knows whole seconds alone, asks again every few
    /// milliseconds, and so has no queue.
    [[nodiscard]] static constexpr row_wait bounded(std::chrono::milliseconds limit) noexcept {
        return {kind::bounded, limit};
    }
    /// errc::timed_out at once. (SQLite: after 10 ms.)
    [[nodiscard]] static constexpr row_wait nowait() noexcept { return {kind::nowait, {}}; }
    /// An empty answer at once: a locked row and a missing one are then the same. Not on SQLite.
    [[nodiscard]] static constexpr row_wait skip_locked() noexcept {
        return {kind::skip_locked, {}};
    }

    [[nodiscard]] constexpr kind how() const noexcept { return kind_; }
    [[nodiscard]] constexpr std::chrono::milliseconds limit() const noexcept { return limit_; }

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
    key_columns(std::initializer_list<std::string_view> names) : names_{names} {}
    explicit key_columns(std::span<const std::string> names) : names_{names.begin(), names.end()} {}

    [[nodiscard]] const std::vector<std::string_view>& names() const noexcept { return names_; }

private:
    std::vector<std::string_view> names_;
};

/// Their values, in the same order: `{"A1"}`, `{7, "A1"}`. Text is viewed as above.
class key_values {
public:
    key_values(std::initializer_list<sql::value> values) : values_{values} {}
    explicit key_values(std::span<const sql::value> values)
        : values_{values.begin(), values.end()} {}

    [[nodiscard]] const std::vector<sql::value>& values() const noexcept { return values_; }

private:
    std::vector<sql::value> values_;
};

/// A row as it was when it was locked: what the last transaction committed, or this one wrote. It
/// cannot change until this transaction ends, save by this transaction. A value, not a handle.
class locked_row {
public:
    locked_row(std::vector<std::string> columns, sql::result row)
        : columns_{std::move(columns)}, row_{std::move(row)} {}

    [[nodiscard]] const std::vector<std::string>& columns() const noexcept { return columns_; }
    /// By the names that were asked for.
    /// @throws error errc::invalid_options if the column was not asked for; integer():
    /// errc::database_error if it is NULL or no integer
    [[nodiscard]] std::string_view text(std::string_view column) const;
    [[nodiscard]] std::int64_t integer(std::string_view column) const;
    [[nodiscard]] std::optional<std::int64_t> maybe_integer(std::string_view column) const;
    [[nodiscard]] bool is_null(std::string_view column) const;

private:
    [[nodiscard]] std::size_t index_of(std::string_view column) const;

    std::vector<std::string> columns_;
    sql::result row_;
};

}  // namespace rowlock

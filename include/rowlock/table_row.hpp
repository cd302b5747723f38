#pragma once

#include <rowlock/sql/connection.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup rows
/// How calls on the caller's own tables name a row, say what is written, and return what was read.
///
/// @{

/// The values of the key columns, in their order: `"A1"`, `42`, or `{"eu", 42}`. Text is viewed,
/// not copied: it must live through the call.
class row_key {
public:
    /// The values, in the order of the key's columns.
    row_key(std::initializer_list<sql::value> values) : values_{values} {}
    /// The same from a vector.
    explicit row_key(std::vector<sql::value> values) : values_{std::move(values)} {}
    /// A key of one column.
    template <typename T>
    requires(std::constructible_from<sql::value, const T&> &&
             !std::same_as<std::remove_cvref_t<T>, row_key>) row_key(const T& value)
        : values_{{sql::value{value}}} {}

    /// In their order.
    [[nodiscard]] const std::vector<sql::value>& values() const noexcept { return values_; }

private:
    std::vector<sql::value> values_;
};

/// One column to be written: `{"note", "sold"}`. Text is viewed, not copied: it must live through
/// the call.
struct assignment {
    /// Sets the column `to` to `what`.
    assignment(std::string_view to, sql::value what) : column{to}, value{what} {}

    std::string_view column;  ///< to be written
    sql::value value;         ///< what is written
    bool adds = false;        ///< `value` is added to the column
};

/// `column = column + by`; a negative `by` subtracts. NULL stays NULL.
[[nodiscard]] inline assignment increment(std::string_view column, std::int64_t by = 1) {
    assignment made{column, by};
    made.adds = true;
    return made;
}

/// A row as it was read. A value, not a handle: it does not follow the table, and keeps no
/// connection. Several threads may read it at once.
class table_row {
public:
    /// @param first index in the row of the first of these columns
    table_row(std::vector<std::string> columns, sql::result row, std::size_t first = 0)
        : columns_{std::move(columns)}, row_{std::move(row)}, first_{first} {}

    /// The columns that were read, in the order requested.
    [[nodiscard]] const std::vector<std::string>& columns() const noexcept { return columns_; }

    /// Whether it is NULL. This and the following take the name that was requested, verbatim.
    /// @throws error errc::invalid_options for a column that was not read
    [[nodiscard]] bool is_null(std::string_view column) const;
    /// Empty for NULL. A view into this row: valid until the row is destroyed, moved or assigned
    /// to. Copy it to a std::string to keep it longer.
    [[nodiscard]] std::string_view text(std::string_view column) const;
    /// The number in the column.
    /// @throws error errc::database_error if it is NULL or no integer
    [[nodiscard]] std::int64_t integer(std::string_view column) const;
    /// Empty for NULL.
    /// @throws error errc::database_error if it is not an integer
    [[nodiscard]] std::optional<std::int64_t> maybe_integer(std::string_view column) const;

private:
    [[nodiscard]] std::size_t place(std::string_view column) const;

    std::vector<std::string> columns_;
    sql::result row_;
    std::size_t first_;
};

/// @}

}  // namespace rowlock

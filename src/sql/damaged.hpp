#pragma once

#include <rowlock/sql/connection.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace rowlock::sql {

/// The number in a cell that is only shown. An SQLite column holds whatever was written into it,
/// and a sum may exceed 64 bits: a row that another program has damaged must not hide the others,
/// so this never throws. NULL and text are 0, what follows an integer is left out, and a number out
/// of range is the nearest in it.
[[nodiscard]] inline std::int64_t shown_integer(const result& rows, std::size_t row,
                                                std::size_t column) {
    const std::string_view text = rows.text(row, column);
    std::int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc::result_out_of_range) return number;
    return text.starts_with('-') ? std::numeric_limits<std::int64_t>::min()
                                 : std::numeric_limits<std::int64_t>::max();
}

}  // namespace rowlock::sql

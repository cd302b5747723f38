#include <rowlock/error.hpp>
#include <rowlock/table_row.hpp>

#include <algorithm>

namespace rowlock {

bool table_row::is_null(std::string_view column) const {
    return row_.is_null(0, place(column));
}

std::string_view table_row::text(std::string_view column) const {
    return row_.text(0, place(column));
}

std::int64_t table_row::integer(std::string_view column) const {
    return row_.integer(0, place(column));
}

std::optional<std::int64_t> table_row::maybe_integer(std::string_view column) const {
    return row_.maybe_integer(0, place(column));
}

std::size_t table_row::place(std::string_view column) const {
    const auto found = std::ranges::find(columns_, column);
    if (found != columns_.end()) {
        return first_ + static_cast<std::size_t>(found - columns_.begin());
    }
    throw error{errc::invalid_options,
                "this column was not read: name it among the columns when reading or locking the "
                "row"};
}

}  // namespace rowlock

#include <rowlock/error.hpp>
#include <rowlock/row_lock.hpp>

#include <algorithm>

namespace rowlock {

std::string_view locked_row::text(std::string_view column) const {
    return row_.text(0, index_of(column));
}

std::int64_t locked_row::integer(std::string_view column) const {
    return row_.integer(0, index_of(column));
}

std::optional<std::int64_t> locked_row::maybe_integer(std::string_view column) const {
    return row_.maybe_integer(0, index_of(column));
}

bool locked_row::is_null(std::string_view column) const {
    return row_.is_null(0, index_of(column));
}

std::size_t locked_row::index_of(std::string_view column) const {
    const auto found = std::ranges::find(columns_, column);
    if (found != columns_.end()) return static_cast<std::size_t>(found - columns_.begin());
    throw error{errc::invalid_options,
                "this column was not asked for: name it in `columns` when locking the row"};
}

}  // namespace rowlock

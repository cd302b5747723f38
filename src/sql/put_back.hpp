#pragma once

#include <rowlock/error.hpp>

#include <exception>

namespace rowlock::sql {

/// Whether a call failed because other processes now see another database under the same name: an
/// SQLite file was put back from a backup while it was open (SQLITE_READONLY_DBMOVED). Nothing that
/// this process holds there is seen by others, and no new connection of it sees what they do.
[[nodiscard]] inline bool was_put_back(const std::exception& failure) noexcept {
    constexpr int moved = 1032;
    const auto* const known = dynamic_cast<const error*>(&failure);
    return known != nullptr && known->kind() == errc::database_unreachable &&
           known->native_code() == moved;
}

}  // namespace rowlock::sql

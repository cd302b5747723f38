#pragma once

#include "lock/protocol/multi/multi_protocol.hpp"
#include "sql/statements.hpp"

#include <algorithm>

/// The implementations of multi_protocol. For them alone: others call make_multi_protocol().
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const multi_protocol> make_postgresql_multi(
    const sql::statement_set& statements);
/// MySQL and SQLite.
[[nodiscard]] std::unique_ptr<const multi_protocol> make_two_step_multi(
    const sql::statement_set& statements);

/// The place of a name in the request.
[[nodiscard]] inline std::size_t place_of(const multi_request& request, std::string_view name) {
    const auto found = std::ranges::find(request.names, name, &wanted_name::name);
    return static_cast<std::size_t>(found - request.names.begin());
}

/// Notes what is left of one holder.
inline void note_remaining(multi_attempt& seen, std::optional<std::int64_t> remaining) {
    if (!remaining || *remaining <= 0) return;
    const std::chrono::microseconds left{*remaining};
    const bool first = seen.remaining == std::chrono::microseconds{0};
    seen.remaining = first ? left : std::min(seen.remaining, left);
}

}  // namespace rowlock::protocol

#pragma once

#include "coordination/protocol/multi/multi_dialects.hpp"
#include "sql/statements.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string_view>

/// What MySQL and SQLite do alike for leases and modes: they look first, then write in a short
/// transaction, which judges again what was read. The rows are locked in the order of their names,
/// then the entries in that of their tickets.
namespace rowlock::protocol {

/// Whether no other waiter comes before the request at a name.
/// @param first the grant id of the first entry there, if there is one
[[nodiscard]] inline bool is_our_turn(const multi_request& request, std::optional<grant_id> first) {
    if (request.barging) return true;
    if (!first) return !request.queued;
    return std::ranges::find(request.names, *first, &granted_name::grant_id) != request.names.end();
}

/// Inserts an entry for each name by one statement, whose text depends on how many there are.
class multi_enqueue {
public:
    explicit multi_enqueue(const sql::statement_set& statements) : statements_{statements} {}

    void run(sql::connection& db, const multi_request& request, sql::deadline until) const;

private:
    struct for_a_number {
        std::once_flag once{};
        std::optional<sql::statement> text{};
    };

    [[nodiscard]] const sql::statement& for_names(std::size_t count) const;

    const sql::statement_set statements_;
    mutable std::array<for_a_number, most_names + 1> made_{};  ///< each when it is first needed
};

}  // namespace rowlock::protocol

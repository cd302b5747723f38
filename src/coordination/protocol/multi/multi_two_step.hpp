#pragma once

#include "coordination/protocol/multi/multi_dialects.hpp"
#include "sql/statements.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
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

/// A statement that inserts a row for each name, for any number of names.
class insertion_of_entries {
public:
    /// The values of the row of name number `which`.
    using values_of = std::string (*)(std::size_t which);
    /// @param list the fragment in the text of `statement` that stands for the rows
    insertion_of_entries(const sql::statement_set& statements, const char* statement,
                         const char* list, values_of values)
        : statements_{statements}, statement_{statement}, list_{list}, values_{values} {}

    /// Made when it is first needed.
    [[nodiscard]] const sql::statement& of(std::size_t names) const {
        auto& made = made_.at(names);
        std::call_once(made.once, [&] {
            std::string all;
            for (std::size_t i = 0; i < names; ++i) {
                all.append(i == 0 ? "" : ",\n       ").append(values_(i));
            }
            made.text.emplace(statements_.text_of(statement_, {{list_, all}}));
        });
        return *made.text;
    }

private:
    struct for_a_number {
        std::once_flag once{};
        std::optional<sql::statement> text{};
    };

    const sql::statement_set statements_;
    const char* const statement_;
    const char* const list_;
    const values_of values_;
    mutable std::array<for_a_number, most_names + 1> made_{};
};

}  // namespace rowlock::protocol

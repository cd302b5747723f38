#pragma once

#include <span>
#include <string_view>

namespace rowlock::sim {

/// A seeded bug: a part of one of SQLite's statements reads differently. The simulated server
/// makes the change, so nothing is compiled.
struct statement_bug {
    std::string_view name;
    std::string_view statement;
    std::string_view part;
    std::string_view instead;
};

[[nodiscard]] std::span<const statement_bug> statement_bugs();

}  // namespace rowlock::sim

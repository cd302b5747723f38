#pragma once

#include "sql/statements.hpp"
#include <rowlock/sql/connection.hpp>

#include <array>
#include <string_view>

namespace rowlock::sql {

/// A statement that asks the catalog about a table of the caller's, `table` or `schema.table`.
/// PostgreSQL's takes that name quoted, and finds it by the search path; the others' take the
/// schema, NULL if none is named, and the table. Thread-safe.
class catalog_question {
public:
    /// @param name of the statement, which every dialect has
    explicit catalog_question(std::string_view name);

    /// One round trip.
    /// @throws error errc::invalid_options on PostgreSQL, as quoted_table()
    [[nodiscard]] result ask(connection& db, std::string_view table, deadline until) const;

private:
    std::array<statement, 3> by_dialect_;
};

}  // namespace rowlock::sql

#pragma once

#include <rowlock/sql/connection.hpp>

#include <array>
#include <string_view>

namespace rowlock::sql {

template <typename... Values>
sql::result run(sql::connection& db, const sql::statement& what, sql::deadline until,
                const Values&... values) {
    const std::array<sql::value, sizeof...(Values)> parameters{sql::value{values}...};
    return db.execute(what, parameters, until);
}

/// Of a statement that changes one row, or none.
[[nodiscard]] inline bool changed_one(const sql::result& done) {
    return done.affected() > 0;
}

inline sql::value text_or_null(std::string_view text) {
    return text.empty() ? sql::value{} : sql::value{text};
}

}  // namespace rowlock::sql

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

inline sql::value text_or_null(std::string_view text) {
    return text.empty() ? sql::value{} : sql::value{text};
}

}  // namespace rowlock::sql

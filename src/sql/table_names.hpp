#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>

/// Our .sql files write every table as `rowlock_…`; here that becomes the name the user chose.
namespace rowlock::sql {

/// @throws error errc::invalid_options unless schema and prefix are names that need no escaping
/// anywhere: a lower-case letter or underscore, then up to 30 lower-case letters, digits or
/// underscores. The schema may be empty, and must be outside PostgreSQL.
void validate_names(sql::dialect which, const table_names& names);

/// Replaces the `rowlock_` that starts an identifier by `"schema".prefix`, or by the prefix alone
/// if the schema is empty. Left alone: comments, string literals, quoted identifiers, identifiers
/// behind a dot, and the function rowlock_testing_now. Text in PostgreSQL's dollar quotes is the
/// body of a function, and read as code.
/// @throws error as validate_names
[[nodiscard]] std::string qualify(std::string_view sql, sql::dialect which,
                                  const table_names& names);

/// The same for a schema that the database has named: quoted already, or empty.
[[nodiscard]] std::string qualify_found(std::string_view sql, sql::dialect which,
                                        std::string_view quoted, std::string_view prefix);

}  // namespace rowlock::sql

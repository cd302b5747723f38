#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>

/// Names of the caller's own tables and columns, as written in SQL text.
namespace rowlock::sql {

/// In the dialect's quotes, which keep upper and lower case apart on PostgreSQL: "name" there and
/// `name` elsewhere.
/// @throws error errc::invalid_options if it is empty, holds a control character, is no UTF-8, or
/// is longer than the database keeps (63 bytes on PostgreSQL, which would cut it in silence; 64
/// characters on MySQL)
[[nodiscard]] std::string quoted(sql::dialect which, std::string_view name);

/// `table` or `schema.table`, each part quoted.
/// @throws error errc::invalid_options as quoted(), and for more than one dot
[[nodiscard]] std::string quoted_table(sql::dialect which, std::string_view name);

/// Whether two names mean the same column: PostgreSQL compares quoted names exactly, the others
/// ignore the case of ASCII letters. See folds_beyond_ascii().
[[nodiscard]] bool same_name(sql::dialect which, std::string_view one, std::string_view other);

/// Whether the database ignores the case of letters beyond ASCII too, which same_name() does not
/// (MySQL).
[[nodiscard]] bool folds_beyond_ascii(sql::dialect which);

/// Whether an operator has a schema, and the search path chooses among those of one name
/// (PostgreSQL).
[[nodiscard]] bool operators_have_schemas(sql::dialect which);

/// An operator with blanks around it. On PostgreSQL it names its schema, so that the search path
/// cannot choose another; in this form it binds weaker than `+` and `||`, stronger than `and`.
[[nodiscard]] std::string binary_operator(sql::dialect dialect, std::string_view name,
                                          std::string_view schema = "pg_catalog");

}  // namespace rowlock::sql

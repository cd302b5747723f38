#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace rowlock::schema {

/// The statements of a script, in order, without their semicolons and without comments. A statement
/// ends with a semicolon at the end of a line (a comment may follow), outside quotes, comments and
/// PostgreSQL's text in dollar quotes; the last one needs none. Our trigger bodies for the other
/// databases have no semicolon at the end of a line.
[[nodiscard]] std::vector<std::string> split_statements(std::string_view script,
                                                        sql::dialect which);

}  // namespace rowlock::schema

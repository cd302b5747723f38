#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace rowlock::schema {

/// The statements of a script, in order, without their semicolons and without comments. A statement
/// ends with a semicolon at the end of a line (a comment may follow), outside quotes and comments;
/// the last one needs none. Bodies of triggers and procedures cannot be told apart that way: our
/// files have none.
[[nodiscard]] std::vector<std::string> split_statements(std::string_view script,
                                                        sql::dialect which);

}  // namespace rowlock::schema

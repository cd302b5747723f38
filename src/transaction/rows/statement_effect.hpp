#pragma once

#include <rowlock/sql/connection.hpp>

#include <string_view>

namespace rowlock::detail {

/// What a caller's statement may do to the transaction and the connection that it runs on, judged
/// by its text.
enum class statement_effect : unsigned char {
    plain,             ///< reads and writes rows
    leaves_traces,     ///< may change the connection: settings, temporary tables, variables, locks
    may_end,           ///< runs code that may commit; leaves traces, too
    ends_transaction,  ///< begins, commits or rolls back, openly or as the server's side effect
    several,           ///< more than one statement
};

[[nodiscard]] statement_effect effect_of(sql::dialect speaks, std::string_view text);

}  // namespace rowlock::detail

#pragma once

#include "lock/protocol/session/session_protocol.hpp"
#include "sql/statements.hpp"

#include <memory>

/// The implementations of session_protocol, for make_session_protocol() alone.
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const session_protocol> make_postgresql_sessions(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const session_protocol> make_mysql_sessions(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const session_protocol> make_sqlite_sessions(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

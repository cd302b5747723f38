#pragma once

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/statements.hpp"

/// The implementations of semaphore_protocol, for make_semaphore_protocol() alone.
namespace rowlock::protocol {

[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_postgresql_semaphores(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_mysql_semaphores(
    const sql::statement_set& statements);
[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_sqlite_semaphores(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

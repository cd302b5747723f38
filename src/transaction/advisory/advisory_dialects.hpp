#pragma once

#include "transaction/advisory/advisory_protocol.hpp"

/// What the implementations of advisory_protocol share. For them alone: others call
/// make_advisory_protocol().
namespace rowlock::detail {

[[nodiscard]] std::unique_ptr<const advisory_protocol> make_postgresql_advisory();
[[nodiscard]] std::unique_ptr<const advisory_protocol> make_mysql_advisory();

/// @param process the one that answered
void require_session(sql::connection& db, const server_session& session, std::int64_t process);

/// @throws error errc::read_only unless the server is writable
void require_writable(bool writable);

/// Reads the answer of the statement advisory_try, and on MySQL of advisory_wait.
[[nodiscard]] bool read_grant(sql::connection& db, const server_session& session,
                              const sql::result& row);

/// Reads the answer of the statement advisory_unlock.
[[nodiscard]] bool read_unlock(sql::connection& db, const server_session& session,
                               const sql::result& row);

}  // namespace rowlock::detail

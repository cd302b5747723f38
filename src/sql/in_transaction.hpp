#pragma once

#include <rowlock/sql/connection.hpp>

namespace rowlock::sql {

/// The connection's transaction state, from the server if the library does not know it: never
/// `unknown`. Without autocommit a transaction counts as open on MySQL and MariaDB, since the next
/// statement begins it. No round trip where the library knows; one on MariaDB; up to three
/// elsewhere.
/// @throws error errc::database_unreachable on a dead connection
[[nodiscard]] transaction_state transaction_of(connection& db, deadline until);

/// @throws error errc::invalid_options unless a transaction is open, saying `what` needs one
void require_transaction(connection& db, std::string_view what, deadline until);

}  // namespace rowlock::sql

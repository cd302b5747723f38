#pragma once

#include <rowlock/sql/connection.hpp>

namespace rowlock::sql {

/// What stands between a connection and PostgreSQL's processes.
enum class pooling : unsigned char {
    none_seen,
    session,      ///< a pooler that leaves us one server process as long as we are connected
    transaction,  ///< one that changes it between transactions
};

/// Whether the process is the one that the server announced: no pooler is in between. One round
/// trip. False also where the library does not tell what was announced.
[[nodiscard]] bool is_direct(connection& db, deadline until);

/// Looks whether the process was announced by somebody else, and whether another connection is
/// given ours between two statements. Up to six round trips and one more connection, or one round
/// trip if the library tells what the server announced and it is true. A transaction pooler that
/// others use at the same moment may be taken for one of sessions: who depends on it makes sure of
/// the process with each statement.
[[nodiscard]] pooling pooling_of(connection& db, const connection_source& source, deadline until);

}  // namespace rowlock::sql

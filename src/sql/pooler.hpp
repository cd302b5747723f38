#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>

namespace rowlock::sql {

/// What stands between a connection and PostgreSQL's processes.
enum class pooling : unsigned char {
    none_seen,
    session,      ///< a pooler that leaves us one server process as long as we are connected
    transaction,  ///< one that changes it between transactions
};

/// The server's process: the announced one, or that which a query finds in one round trip.
[[nodiscard]] std::int64_t process_of(connection& db, deadline until);

/// Checks whether the server announced another process, and whether another connection is given
/// ours between two statements. Up to six round trips and one more connection, or one round trip if
/// the library reports the announced process and it is ours. A transaction pooler that others use
/// at the same time may be taken for a session pooler: a caller that depends on it checks the
/// process with each statement.
[[nodiscard]] pooling pooling_of(connection& db, const connection_source& source, deadline until);

}  // namespace rowlock::sql

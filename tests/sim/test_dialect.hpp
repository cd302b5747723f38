#pragma once

#include "sql/database_traits.hpp"

namespace rowlock::sim {

/// What the simulated databases are to the client, whose statements stay SQLite's: SQLite's traits
/// at first. A simulation changes them before it makes a client.
[[nodiscard]] sql::database_traits& presented() noexcept;
/// SQLite's again.
void present_sqlite() noexcept;
/// A server that many connections write to, with an identity of its own: what a member of a quorum
/// has to be.
void present_server() noexcept;

}  // namespace rowlock::sim

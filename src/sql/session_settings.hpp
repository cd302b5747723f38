#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <memory>

namespace rowlock::sql {

/// Limits that the server imposes on a connection of ours.
struct server_limits {
    /// On a statement, and on a transaction that is idle. 0: none.
    std::chrono::milliseconds statement{0};
    /// On an idle connection. 0: what no heartbeat exceeds.
    std::chrono::milliseconds idle{0};
};

/// States every setting that our statements and drivers rely on, whatever the server, the role, the
/// database or init_connect made of it: fragment `stated` has the list. Not the search path. One
/// round trip; the first call on a connection to MySQL or MariaDB has another. Nothing is sent to
/// SQLite, nor behind a transaction pooler, where the settings would be other clients' as well.
void state_settings(connection& db, const server_limits& limits, deadline until);

/// A new connection with its settings stated, for statements that no session_protocol::set_up()
/// precedes.
[[nodiscard]] std::unique_ptr<connection> connect_stated(const connection_source& source,
                                                         deadline until,
                                                         const server_limits& limits = {});

}  // namespace rowlock::sql

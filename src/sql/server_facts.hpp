#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <string>

namespace rowlock::sql {

/// What does not change while a connection lives and decides which SQL is right there.
struct server_facts {
    bool mariadb = false;     ///< and not MySQL
    bool galera = false;      ///< a node of a cluster that certifies writes: row locks and GET_LOCK
                              ///< hold on this node alone
    std::string server = {};  ///< MySQL and MariaDB: which one it is; see strategy::lease_protocol
};

/// Asked once per connection: one round trip on MySQL and MariaDB, none elsewhere.
[[nodiscard]] const server_facts& facts_of(connection& db, deadline until);

/// The same, whatever is known already; one round trip, or two on Galera.
const server_facts& ask_facts_again(connection& db, deadline until);

/// Whether compound statements of MariaDB (begin not atomic …) can be run here, as far as is known:
/// their first use may show that the server is too old. Costs what facts_of() costs.
[[nodiscard]] bool runs_compounds(connection& db, deadline until);

/// For a failure of a compound statement: true if the server cannot prepare any, as before MariaDB
/// 10.6. Then it has done nothing, and none will be tried again on this connection.
[[nodiscard]] bool refused_compound(connection& db, const error& failure);

}  // namespace rowlock::sql

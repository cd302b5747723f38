#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <string>

namespace rowlock::sql {

/// What does not change while a connection lives and decides which SQL is right there.
struct server_facts {
    bool mariadb = false;  ///< and not MySQL
    bool galera = false;   ///< a node of a cluster that certifies writes: row locks and GET_LOCK
                           ///< hold on this node alone
    bool rolls_back_on_timeout = false;  ///< innodb_rollback_on_timeout
    std::string server = {};  ///< MySQL and MariaDB: which one it is; see strategy::lease_protocol
};

/// Asked once per connection: one round trip on MySQL and MariaDB, none elsewhere.
[[nodiscard]] const server_facts& facts_of(connection& db, deadline until);

/// The same, whatever is known already; one round trip, or two on Galera.
const server_facts& ask_facts_again(connection& db, deadline until);

}  // namespace rowlock::sql

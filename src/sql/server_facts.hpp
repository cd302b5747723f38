#pragma once

#include <rowlock/sql/connection.hpp>

namespace rowlock::sql {

/// What does not change while a connection lives and decides which SQL is right there.
struct server_facts {
    bool mariadb = false;  ///< and not MySQL
    bool galera = false;   ///< a node of a cluster that certifies writes: row locks and GET_LOCK
                           ///< hold on this node alone
};

/// Asked once per connection: one round trip on MySQL and MariaDB, none elsewhere.
[[nodiscard]] const server_facts& facts_of(connection& db, deadline until);

}  // namespace rowlock::sql

#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <string>

namespace rowlock::sql {

/// Servers that certify each other's writes: a commit fails if another of them has written the same
/// row. Row locks and GET_LOCK hold on one of them alone.
enum class cluster : unsigned char {
    none,
    galera,
    group,  ///< MySQL Group Replication
};

/// "Galera node", "member of a MySQL group".
[[nodiscard]] const char* to_string(cluster which);

/// Facts that do not change while a connection lives and that decide which SQL is right there.
struct server_facts {
    bool mariadb = false;  ///< and not MySQL
    cluster member_of = cluster::none;
    bool rolls_back_on_timeout = false;  ///< innodb_rollback_on_timeout
    bool isolates_snapshots = false;     ///< has innodb_snapshot_isolation, on or off
    std::string server = {};  ///< MySQL and MariaDB: which one it is; see protocol::lease_protocol
};

/// Asked once per connection: one round trip on MySQL and MariaDB, two in a cluster, none
/// elsewhere.
/// @throws error errc::database_unreachable if the server is meant for a cluster and is not in it.
/// The connection is discarded.
[[nodiscard]] const server_facts& facts_of(connection& db, deadline until);

/// The same, ignoring what is known already.
const server_facts& ask_facts_again(connection& db, deadline until);

/// Checks that a server which was in a MySQL group when its facts were read is still in the same
/// one. A server that has left it may accept writes that never reach the group. One round trip
/// there, none elsewhere: a Galera node without its cluster refuses every statement itself.
/// @throws error as facts_of().
void require_membership(connection& db, deadline until);

}  // namespace rowlock::sql

#include <rowlock/sql/classify.hpp>

#include <algorithm>
#include <array>

namespace rowlock::sql {
namespace {

struct row {
    int number;
    errc kind;
};

constexpr std::array table{
    // A deadlock victim's whole transaction is rolled back.
    row{1213, errc::deadlock},
    row{3058, errc::deadlock},  // user-level locks, MySQL

    // Only the statement was rolled back.
    row{1205, errc::timed_out},  // innodb_lock_wait_timeout, lock_wait_timeout
    row{1317, errc::timed_out},  // KILL QUERY
    row{1467, errc::timed_out},  // the same, while waiting for the next ticket
    row{1969, errc::timed_out},  // max_statement_time, MariaDB
    row{3024, errc::timed_out},  // max_execution_time, MySQL
    row{3572, errc::timed_out},  // NOWAIT, MySQL
    row{3781, errc::timed_out},  // a new primary of a group has not caught up
    row{3797, errc::timed_out},  // group_replication_consistency

    row{1020, errc::conflict},  // the row changed since it was read, MariaDB 11.6 and later
    row{1637, errc::conflict},  // too many transactions at once
    row{3101, errc::conflict},  // rolled back at its commit by Group Replication

    row{1022, errc::unique_violation},
    row{1062, errc::unique_violation},
    row{1169, errc::unique_violation},
    row{1586, errc::unique_violation},

    // Tables or columns are missing. A missing database is further down.
    row{1054, errc::schema_outdated},
    row{1109, errc::schema_outdated},
    row{1146, errc::schema_outdated},
    row{1932, errc::schema_outdated},  // the table exists, its storage does not

    // No right to connect
    row{1044, errc::access_denied},
    row{1045, errc::access_denied},
    row{1129, errc::access_denied},  // this host is blocked: FLUSH HOSTS
    row{1130, errc::access_denied},  // this host may not connect
    row{1698, errc::access_denied},
    row{1820, errc::access_denied},  // the password must be changed first
    row{1862, errc::access_denied},
    row{3118, errc::access_denied},  // account locked, MySQL
    row{4151, errc::access_denied},  // account locked, MariaDB
    row{4166, errc::access_denied},  // blocked after wrong passwords, MariaDB
    // or to do this
    row{1142, errc::access_denied},
    row{1143, errc::access_denied},
    row{1227, errc::access_denied},
    row{1370, errc::access_denied},

    row{1290, errc::read_only},  // --read-only
    row{1792, errc::read_only},  // in a READ ONLY transaction
    row{1836, errc::read_only},
    row{1874, errc::read_only},  // InnoDB is read only
    row{1036, errc::read_only},

    row{1021, errc::out_of_resources},  // disk full
    row{1037, errc::out_of_resources},
    row{1038, errc::out_of_resources},
    row{1040, errc::out_of_resources},  // max_connections
    row{1041, errc::out_of_resources},
    row{1114, errc::out_of_resources},
    row{1135, errc::out_of_resources},  // no thread
    row{1203, errc::out_of_resources},  // max_user_connections
    row{1206, errc::out_of_resources},  // lock table full
    row{1226, errc::out_of_resources},
    row{1461, errc::out_of_resources},  // max_prepared_stmt_count
    row{2001, errc::out_of_resources},  // no descriptor for a socket
    row{2004, errc::out_of_resources},  // likewise
    row{2008, errc::out_of_resources},

    // It is unknown whether the commit happened
    row{1180, errc::outcome_unknown},
    row{3100, errc::outcome_unknown},  // Group Replication failed before or amid it

    // The server ends the session …
    row{1053, errc::database_unreachable},
    row{1152, errc::database_unreachable},
    row{1158, errc::database_unreachable},
    row{1159, errc::database_unreachable},
    row{1160, errc::database_unreachable},
    row{1161, errc::database_unreachable},
    row{1927, errc::database_unreachable},  // KILL, MariaDB
    row{4031, errc::database_unreachable},  // wait_timeout, MySQL
    // … the client cannot get one, or lost it
    row{1042, errc::database_unreachable},
    row{1043, errc::database_unreachable},
    row{2002, errc::database_unreachable},
    row{2003, errc::database_unreachable},
    row{2005, errc::database_unreachable},
    row{2006, errc::database_unreachable},
    row{2012, errc::database_unreachable},
    row{2013, errc::database_unreachable},
    row{2026, errc::database_unreachable},  // TLS
    row{2055, errc::database_unreachable},
    // … the server is there and cannot serve
    row{1047, errc::database_unreachable},  // Galera: this node is not part of the cluster
    row{3032, errc::database_unreachable},  // offline mode, as of a member that its group expelled
    row{6400, errc::database_unreachable},  // the same, with a reason
    row{3783, errc::database_unreachable},  // not ONLINE in its group
    row{3796, errc::database_unreachable},
    row{1049, errc::database_unreachable},  // no such database

    row{1235, errc::unsupported},
    row{1251, errc::unsupported},  // the server's way to check passwords
    row{1286, errc::unsupported},  // storage engine
    row{1295, errc::unsupported},  // not as a prepared statement
    row{3098, errc::unsupported},  // what a group cannot certify, such as SERIALIZABLE
    row{2058, errc::unsupported},
    row{2059, errc::unsupported},
};

}  // namespace

errc classify_mysql(int error_number, std::string_view message) noexcept {
    // MariaDB, if a KILL met the opening of a table with triggers, as those of the history: it
    // keeps that copy of the table, among others, for later statements. This one has done nothing.
    constexpr int syntax_error = 1064;
    if (error_number == syntax_error &&
        message.find("trigger has an error in its body") != std::string_view::npos) {
        return errc::timed_out;
    }
    const auto found = std::ranges::find(table, error_number, &row::number);
    return found == table.end() ? errc::database_error : found->kind;
}

}  // namespace rowlock::sql

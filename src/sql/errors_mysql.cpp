#include <rowlock/sql/classify.hpp>

#include <algorithm>
#include <array>

namespace rowlock::sql {
namespace {

struct mysql_number {
    int number;
    errc kind;
};

constexpr std::array table{
    // A deadlock victim's whole transaction is rolled back.
    mysql_number{1213, errc::deadlock},
    mysql_number{3058, errc::deadlock},  // user-level locks, MySQL

    // Only the statement was rolled back.
    mysql_number{1205, errc::timed_out},  // innodb_lock_wait_timeout, lock_wait_timeout
    mysql_number{1317, errc::timed_out},  // KILL QUERY
    mysql_number{1467, errc::timed_out},  // the same, while waiting for the next ticket
    mysql_number{1969, errc::timed_out},  // max_statement_time, MariaDB
    mysql_number{3024, errc::timed_out},  // max_execution_time, MySQL
    mysql_number{3572, errc::timed_out},  // NOWAIT, MySQL
    mysql_number{3781, errc::timed_out},  // a new primary of a group has not caught up
    mysql_number{3797, errc::timed_out},  // group_replication_consistency

    mysql_number{1020,
                 errc::conflict},  // the row changed since it was read, MariaDB 11.6 and later
    mysql_number{1637, errc::conflict},  // too many transactions at once
    mysql_number{3101, errc::conflict},  // rolled back at its commit by Group Replication

    mysql_number{1022, errc::unique_violation},
    mysql_number{1062, errc::unique_violation},
    mysql_number{1169, errc::unique_violation},
    mysql_number{1586, errc::unique_violation},

    // Tables or columns are missing. A missing database is further down.
    mysql_number{1054, errc::schema_outdated},
    mysql_number{1109, errc::schema_outdated},
    mysql_number{1146, errc::schema_outdated},
    mysql_number{1932, errc::schema_outdated},  // the table exists, its storage does not

    // No right to connect
    mysql_number{1044, errc::access_denied},
    mysql_number{1045, errc::access_denied},
    mysql_number{1129, errc::access_denied},  // this host is blocked: FLUSH HOSTS
    mysql_number{1130, errc::access_denied},  // this host may not connect
    mysql_number{1698, errc::access_denied},
    mysql_number{1820, errc::access_denied},  // the password must be changed first
    mysql_number{1862, errc::access_denied},
    mysql_number{3118, errc::access_denied},  // account locked, MySQL
    mysql_number{4151, errc::access_denied},  // account locked, MariaDB
    mysql_number{4166, errc::access_denied},  // blocked after wrong passwords, MariaDB
    // or to do this
    mysql_number{1142, errc::access_denied},
    mysql_number{1143, errc::access_denied},
    mysql_number{1227, errc::access_denied},
    mysql_number{1370, errc::access_denied},

    mysql_number{1290, errc::read_only},  // --read-only
    mysql_number{1792, errc::read_only},  // in a READ ONLY transaction
    mysql_number{1836, errc::read_only},
    mysql_number{1874, errc::read_only},  // InnoDB is read only
    mysql_number{1036, errc::read_only},

    mysql_number{1021, errc::out_of_resources},  // disk full
    mysql_number{1037, errc::out_of_resources},
    mysql_number{1038, errc::out_of_resources},
    mysql_number{1040, errc::out_of_resources},  // max_connections
    mysql_number{1041, errc::out_of_resources},
    mysql_number{1114, errc::out_of_resources},
    mysql_number{1135, errc::out_of_resources},  // no thread
    mysql_number{1203, errc::out_of_resources},  // max_user_connections
    mysql_number{1206, errc::out_of_resources},  // lock table full
    mysql_number{1226, errc::out_of_resources},
    mysql_number{1461, errc::out_of_resources},  // max_prepared_stmt_count
    mysql_number{2001, errc::out_of_resources},  // no descriptor for a socket
    mysql_number{2004, errc::out_of_resources},  // likewise
    mysql_number{2008, errc::out_of_resources},

    // It is unknown whether the commit happened
    mysql_number{1180, errc::outcome_unknown},
    mysql_number{3100, errc::outcome_unknown},  // Group Replication failed before or amid it

    // The server ends the session …
    mysql_number{1053, errc::database_unreachable},
    mysql_number{1152, errc::database_unreachable},
    mysql_number{1158, errc::database_unreachable},
    mysql_number{1159, errc::database_unreachable},
    mysql_number{1160, errc::database_unreachable},
    mysql_number{1161, errc::database_unreachable},
    mysql_number{1927, errc::database_unreachable},  // KILL, MariaDB
    mysql_number{4031, errc::database_unreachable},  // wait_timeout, MySQL
    // … the client cannot get one, or lost it
    mysql_number{1042, errc::database_unreachable},
    mysql_number{1043, errc::database_unreachable},
    mysql_number{2002, errc::database_unreachable},
    mysql_number{2003, errc::database_unreachable},
    mysql_number{2005, errc::database_unreachable},
    mysql_number{2006, errc::database_unreachable},
    mysql_number{2012, errc::database_unreachable},
    mysql_number{2013, errc::database_unreachable},
    mysql_number{2026, errc::database_unreachable},  // TLS
    mysql_number{2055, errc::database_unreachable},
    // … the server is there and cannot serve
    mysql_number{1047, errc::database_unreachable},  // Galera: this node is not part of the cluster
    mysql_number{
        3032, errc::database_unreachable},  // offline mode, as of a member that its group expelled
    mysql_number{6400, errc::database_unreachable},  // the same, with a reason
    mysql_number{3783, errc::database_unreachable},  // not ONLINE in its group
    mysql_number{3796, errc::database_unreachable},
    mysql_number{1049, errc::database_unreachable},  // no such database

    mysql_number{1235, errc::unsupported},
    mysql_number{1251, errc::unsupported},  // the server's way to check passwords
    mysql_number{1286, errc::unsupported},  // storage engine
    mysql_number{1295, errc::unsupported},  // not as a prepared statement
    mysql_number{3098, errc::unsupported},  // what a group cannot certify, such as SERIALIZABLE
    mysql_number{2058, errc::unsupported},
    mysql_number{2059, errc::unsupported},
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
    const auto found = std::ranges::find(table, error_number, &mysql_number::number);
    return found == table.end() ? errc::database_error : found->kind;
}

}  // namespace rowlock::sql

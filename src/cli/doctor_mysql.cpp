#include "cli/doctor.hpp"
#include "sql/server_facts.hpp"

#include <fmt/format.h>

#include <chrono>

namespace rowlock::cli {
namespace {

sql::deadline deadline() {
    return std::chrono::steady_clock::now() + std::chrono::seconds{5};
}

/// A server variable; empty if this server does not know it.
std::string variable(examination& patient, std::string_view name) {
    const auto row =
        patient.query(fmt::format("show global variables where variable_name = '{}'", name));
    return row.empty() ? std::string{} : std::string{row.text(0, 1)};
}

bool is_on(const std::string& value) {
    return value == "ON" || value == "1";
}

void check_version(examination& patient) {
    const std::string version = patient.value("select version()");
    const bool mariadb = version.find("MariaDB") != std::string::npos;
    const char* wanted = mariadb ? "10.6" : "8.0.1";
    const std::string seen = (mariadb ? "MariaDB " : "MySQL ") + version;
    if (is_at_least(version, wanted)) return patient.ok("server", seen);
    patient.fail("server", seen, fmt::format("rowlock needs {} or newer", wanted));
}

void check_writable(examination& patient) {
    // MySQL: OFF or ON. Newer MariaDB: also NO_LOCK and others.
    const std::string read_only = variable(patient, "read_only");
    if ((read_only.empty() || read_only == "OFF" || read_only == "0") &&
        !is_on(variable(patient, "innodb_read_only"))) {
        return patient.ok("role", "accepts writes");
    }
    patient.fail("role", "read-only, as a replica is", "connect to the primary");
}

void check_durability(examination& patient) {
    const std::string flush = variable(patient, "innodb_flush_log_at_trx_commit");
    const bool logs = is_on(variable(patient, "log_bin"));
    const std::string sync = variable(patient, "sync_binlog");
    const std::string seen =
        fmt::format("innodb_flush_log_at_trx_commit={} log_bin={} sync_binlog={}", flush,
                    logs ? "on" : "off", sync);
    // MariaDB's 3 is at least as durable as 1.
    if (flush != "1" && flush != "3") {
        return patient.fail("durability", seen,
                            "set innodb_flush_log_at_trx_commit = 1: a crash may lose grants and "
                            "repeat fencing tokens");
    }
    if (logs && sync != "1") {
        return patient.warn("durability", seen,
                            "set sync_binlog = 1: after a power cut replicas may know grants that "
                            "the primary has lost, or the other way round");
    }
    patient.ok("durability", seen);
}

/// With --sysdate-is-now the clock stands still during a statement, lock waits included.
void check_sysdate(examination& patient) {
    const auto row = patient.query("select sysdate(6), sleep(0.01), sysdate(6)");
    if (row.text(0, 0) != row.text(0, 2)) return patient.ok("sysdate", "reads the clock");
    patient.fail("sysdate", "does not advance during a statement",
                 "start the server without sysdate-is-now: expiry would be judged by a clock read "
                 "before a lock wait");
}

void check_isolation(examination& patient) {
    std::string level = variable(patient, "transaction_isolation");
    if (level.empty()) level = variable(patient, "tx_isolation");
    if (level == "READ-COMMITTED") return patient.ok("isolation", level);
    patient.ok("isolation", level +
                                " by default; rowlock's own connections use READ-COMMITTED. In "
                                "a transaction of yours, read after the lock is held, not before");
}

/// A server status variable; empty if this server does not know it.
std::string status(examination& patient, std::string_view name) {
    const auto row =
        patient.query(fmt::format("show session status where variable_name = '{}'", name));
    return row.empty() ? std::string{} : std::string{row.text(0, 1)};
}

void check_galera(examination& patient) {
    patient.warn(
        "cluster",
        fmt::format("a Galera node, {} of {} nodes", status(patient, "wsrep_cluster_status"),
                    status(patient, "wsrep_cluster_size")),
        "leases are exclusive here, but reads on another node lag: let all clients use "
        "one node, or set wsrep_sync_wait");
}

void check_group(examination& patient) {
    const auto row = patient.query(
        "select max(case when member_id = @@global.server_uuid then member_role end), "
        "sum(member_state = 'ONLINE'), count(*), @@global.group_replication_single_primary_mode "
        "from performance_schema.replication_group_members");
    const bool one_primary = row.integer(0, 3) != 0;
    const std::string seen =
        fmt::format("a MySQL group with {}, {} of {} members online; this one is a {}",
                    one_primary ? "one primary" : "several primaries", row.text(0, 1),
                    row.text(0, 2), row.text(0, 0));
    if (one_primary) return patient.ok("cluster", seen);
    patient.warn("cluster", seen,
                 "leases are exclusive, but waiters at different members are served in no order: "
                 "let all clients name the members in one order");
}

void check_cluster(examination& patient) {
    try {
        switch (sql::facts_of(patient.connection(), deadline()).member_of) {
            case sql::cluster::none:
                return patient.ok("cluster", "none");
            case sql::cluster::galera:
                return check_galera(patient);
            case sql::cluster::group:
                return check_group(patient);
        }
    } catch (const error& failure) {
        if (failure.kind() != errc::database_unreachable) throw;
        patient.fail("cluster", message_of(failure),
                     "what is written here may never reach the others: connect to a member that "
                     "is in its cluster");
    }
}

void check_tls(examination& patient) {
    const std::string cipher = status(patient, "Ssl_cipher");
    const std::string user = patient.value("select user()");
    const auto host = user.substr(user.rfind('@') + 1);
    report_tls(patient,
               cipher.empty() ? "" : fmt::format("{}, {}", status(patient, "Ssl_version"), cipher),
               host == "localhost" || host == "127.0.0.1" || host == "::1",
               "ssl-mode=VERIFY_IDENTITY");
}

void check_strategies(examination& patient) {
    if (!patient.has_failed("cluster") &&
        sql::facts_of(patient.connection(), deadline()).member_of == sql::cluster::none) {
        return report_strategies(patient, {.lease = "exclusive; waiters are woken",
                                           .fence = "lock the lease's row until the commit",
                                           .row_lock = "until the commit",
                                           .advisory_lock = "GET_LOCK, exclusive alone",
                                           .version = "conditional updates"});
    }
    report_strategies(
        patient, {.lease = "exclusive, since all members certify them; waiters elsewhere poll",
                  .fence = "write the lease's row; a stale holder's commit fails",
                  .row_lock = "refused: another member would grant the same row",
                  .advisory_lock = "refused: every member grants GET_LOCK for itself",
                  .version = "conditional updates; of two members' the later fails at its commit"});
}

void check_replication(examination& patient) {
    // By SHOW: MySQL cannot read information_schema.processlist while any statement has a character
    // that utf8mb3 lacks, and shows nothing in performance_schema where that is off.
    const auto connections = patient.query("show processlist");
    constexpr std::size_t command = 4;
    int count = 0;
    for (std::size_t row = 0; row < connections.rows(); ++row) {
        if (connections.text(row, command).starts_with("Binlog Dump")) ++count;
    }
    // Checks the status, not whether semi-sync is enabled: it goes on without acknowledgements
    // that do not come in time.
    const auto acknowledged = patient.query(
        "show global status where variable_name in ('Rpl_semi_sync_master_status', "
        "'Rpl_semi_sync_source_status')");
    const bool synchronous = !acknowledged.empty() && is_on(std::string{acknowledged.text(0, 1)});
    const std::string seen =
        fmt::format("{} replica(s) seen{}", count, synchronous ? ", semi-synchronous" : "");
    if (count == 0 || synchronous) return patient.ok("replication", seen);
    patient.warn("replication", seen + ", asynchronous",
                 "after a promotion the newest grants may be lost, held twice, and their tokens "
                 "repeated: use semi-synchronous replication");
}

void check_headroom(examination& patient) {
    const auto row = patient.query("show global status where variable_name = 'Threads_connected'");
    const auto most = std::stoll("0" + variable(patient, "max_connections"));
    const auto free = most - std::stoll("0" + std::string{row.text(0, 1)});
    const std::string seen = fmt::format("{} of {} free", free, most);
    if (free >= 10) return patient.ok("connections", seen);
    patient.warn("connections", seen,
                 "raise max_connections: a client that finds none fails, though the one its "
                 "heartbeat holds is safe");
}

}  // namespace

void examine_mysql(examination& patient) {
    patient.look_at("server", [&] { check_version(patient); });
    patient.look_at("role", [&] { check_writable(patient); });
    patient.look_at("durability", [&] { check_durability(patient); });
    patient.look_at("sysdate", [&] { check_sysdate(patient); });
    patient.try_out("isolation", [&] { check_isolation(patient); });
    patient.look_at("cluster", [&] { check_cluster(patient); });
    patient.look_at("replication", [&] { check_replication(patient); });
    patient.look_at("connections", [&] { check_headroom(patient); });
    patient.try_out("tls", [&] { check_tls(patient); });
    patient.look_at("strategies", [&] { check_strategies(patient); });
}

}  // namespace rowlock::cli

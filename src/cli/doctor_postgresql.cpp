#include "cli/doctor.hpp"
#include "sql/pooler.hpp"

#include <fmt/format.h>

#include <chrono>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;

void check_version(examination& patient) {
    const std::string version = patient.value("show server_version");
    const std::string seen = "PostgreSQL " + version;
    if (is_at_least(version, "12")) return patient.ok("server", seen);
    patient.fail("server", seen, "rowlock needs PostgreSQL 12 or newer");
}

void check_writable(examination& patient) {
    const auto row = patient.query(
        "select pg_is_in_recovery()::int, (current_setting('default_transaction_read_only') = "
        "'on')::int");
    if (row.integer(0, 0) != 0) {
        return patient.fail("role", "a standby, which is read-only",
                            "connect to the primary; with several hosts in the URL, libpq finds it "
                            "by target_session_attrs=read-write");
    }
    if (row.integer(0, 1) != 0) {
        return patient.warn("role", "a primary, but transactions are read-only by default",
                            "rowlock's own connections override that; where a pooler forbids it, "
                            "set default_transaction_read_only = off for this user");
    }
    patient.ok("role", "a primary that accepts writes");
}

void check_durability(examination& patient) {
    const auto row = patient.query(
        "select current_setting('fsync'), current_setting('full_page_writes'), "
        "current_setting('synchronous_commit')");
    const std::string seen = fmt::format("fsync={} full_page_writes={} synchronous_commit={}",
                                         row.text(0, 0), row.text(0, 1), row.text(0, 2));
    if (row.text(0, 0) != "on") {
        return patient.fail("durability", seen,
                            "set fsync = on: a crash may lose grants and repeat fencing tokens");
    }
    if (row.text(0, 1) != "on") {
        return patient.fail("durability", seen,
                            "set full_page_writes = on: a crash may damage the tables");
    }
    if (row.text(0, 2) == "off" && !patient.connection().keeps_session_state()) {
        return patient.fail("durability", seen,
                            "set synchronous_commit = on for this user: behind a transaction "
                            "pooler rowlock cannot, and a crash may lose grants and repeat tokens");
    }
    if (row.text(0, 2) == "off") {
        return patient.warn("durability", seen,
                            "rowlock's own connections switch synchronous_commit on; set it for "
                            "this user too if connections are pooled or borrowed");
    }
    patient.ok("durability", seen);
}

void check_replication(examination& patient) {
    const auto row = patient.query(
        "select (select count(*) from pg_stat_replication), "
        "current_setting('synchronous_standby_names'), current_setting('synchronous_commit')");
    const auto standbys = row.integer(0, 0);
    const bool synchronous =
        !row.text(0, 1).empty() && row.text(0, 2) != "local" && row.text(0, 2) != "off";
    const std::string seen =
        fmt::format("{} standby(s), {}", standbys, synchronous ? "synchronous" : "asynchronous");
    if (standbys == 0 || synchronous) return patient.ok("replication", seen);
    patient.warn("replication", seen,
                 "after a promotion the newest grants may be lost, held twice, and their tokens "
                 "repeated: set synchronous_standby_names");
}

void check_isolation(examination& patient) {
    const std::string level = patient.value("show default_transaction_isolation");
    if (level == "read committed") return patient.ok("isolation", level);
    patient.warn(
        "isolation", level,
        "rowlock's own connections use read committed; in a transaction of yours, read after "
        "the lock is held, not before");
}

void check_pooler(examination& patient) {
    const bool declared = !patient.connection().keeps_session_state();
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    const auto seen = sql::pooling_of(patient.connection(), patient.where().source, deadline);
    if (seen == sql::pooling::transaction && !declared) {
        return patient.fail(
            "pooler", "a transaction pooler: statements go to changing server processes",
            "add rowlock_pooler=transaction to the URL, or connect to PostgreSQL directly");
    }
    if (seen == sql::pooling::transaction) {
        return patient.ok("pooler", "a transaction pooler, as the URL says");
    }
    patient.ok(
        "pooler",
        std::string{seen == sql::pooling::session ? "one that pools sessions" : "none seen"} +
            (declared ? ", though the URL says there is one of transactions" : ""));
}

void check_headroom(examination& patient) {
    const auto row = patient.query(
        "select current_setting('max_connections')::int - "
        "current_setting('superuser_reserved_connections')::int, count(*) from pg_stat_activity "
        "where backend_type = 'client backend'");
    const auto free = row.integer(0, 0) - row.integer(0, 1);
    const std::string seen = fmt::format("{} of {} free", free, row.integer(0, 0));
    if (free >= 10) return patient.ok("connections", seen);
    patient.warn(
        "connections", seen,
        "raise max_connections or use a pooler: a client that finds none fails, though the "
        "one its heartbeat holds is safe");
}

}  // namespace

void examine_postgresql(examination& patient) {
    patient.look_at("server", [&] { check_version(patient); });
    patient.look_at("role", [&] { check_writable(patient); });
    patient.look_at("pooler", [&] { check_pooler(patient); });
    patient.look_at("durability", [&] { check_durability(patient); });
    patient.look_at("replication", [&] { check_replication(patient); });
    patient.look_at("isolation", [&] { check_isolation(patient); });
    patient.look_at("connections", [&] { check_headroom(patient); });
}

}  // namespace rowlock::cli

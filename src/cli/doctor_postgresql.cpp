#include "cli/doctor.hpp"
#include "metrics/database_totals.hpp"
#include "sql/listening.hpp"
#include "sql/pooler.hpp"
#include "sql/table_names.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;

/// What a session of this user begins with; this connection has stated its own.
std::string by_default(const std::string& setting) {
    return "(select reset_val from pg_catalog.pg_settings where name operator(pg_catalog.=) '" +
           setting + "')";
}

void check_version(examination& patient) {
    const std::string version = patient.value("show server_version");
    const std::string seen = "PostgreSQL " + version;
    if (is_at_least(version, "12")) return patient.ok("server", seen);
    patient.fail("server", seen, "rowlock needs PostgreSQL 12 or newer");
}

void check_writable(examination& patient) {
    const auto row = patient.query(
        "select pg_catalog.pg_is_in_recovery()::int, "
        "(" +
        by_default("default_transaction_read_only") + " operator(pg_catalog.=) 'on')::int");
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
        "select pg_catalog.current_setting('fsync'), "
        "pg_catalog.current_setting('full_page_writes'), " +
        by_default("synchronous_commit"));
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
        "select (select pg_catalog.count(*) from pg_catalog.pg_stat_replication), "
        "pg_catalog.current_setting('synchronous_standby_names'), " +
        by_default("synchronous_commit"));
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
    const std::string level =
        patient.value("select " + by_default("default_transaction_isolation"));
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
        "select pg_catalog.current_setting('max_connections')::int operator(pg_catalog.-) "
        "pg_catalog.current_setting('superuser_reserved_connections')::int, pg_catalog.count(*) "
        "from pg_catalog.pg_stat_activity "
        "where backend_type operator(pg_catalog.=) 'client backend'");
    const auto free = row.integer(0, 0) - row.integer(0, 1);
    const std::string seen = fmt::format("{} of {} free", free, row.integer(0, 0));
    if (free >= 10) return patient.ok("connections", seen);
    patient.warn(
        "connections", seen,
        "raise max_connections or use a pooler: a client that finds none fails, though the "
        "one its heartbeat holds is safe");
}

void check_notifications(examination& patient) {
    const auto seen = metrics::read_notifications(patient.rowlock_connection(),
                                                  patient.statements(), patient.soon());
    std::string text =
        fmt::format("the queue is {:.1f} % full", static_cast<double>(seen.millionths) / 1e4);
    if (seen.millionths <= sql::long_notification_queue) {
        return patient.ok("notifications", text);
    }
    if (const auto& oldest = seen.oldest) {
        text += fmt::format(
            "; the oldest transaction is open for {} s: process {}, role {}, database {}",
            std::chrono::duration_cast<std::chrono::seconds>(oldest->age).count(), oldest->process,
            oldest->role, oldest->database);
    }
    patient.warn(
        "notifications", text,
        "a session that has used LISTEN keeps a transaction open, in any database of this "
        "server: end it (pg_terminate_backend). Until then waiters poll; when the queue is "
        "full, every commit that uses NOTIFY fails, rowlock's own excepted");
}

/// Schemas of this connection's path, and which other roles may create objects there. Superusers,
/// the owner of the database and the owner of our tables control us anyway.
constexpr std::string_view writable_schemas = R"(
select pg_catalog.quote_ident(n.nspname),
       pg_catalog.has_schema_privilege('public', n.oid, 'create')::int,
       coalesce((select pg_catalog.string_agg(creator.rolname::pg_catalog.text, ', ')
                   from (select r.rolname from pg_catalog.pg_roles r
                          where not r.rolsuper
                            and r.rolname operator(pg_catalog.<>) current_user
                            and pg_catalog.left(r.rolname::pg_catalog.text, 3)
                                operator(pg_catalog.<>) 'pg_'
                            and r.oid operator(pg_catalog.<>) d.datdba
                            and r.oid operator(pg_catalog.<>) coalesce(c.relowner, d.datdba)
                            and pg_catalog.has_schema_privilege(r.oid, n.oid, 'create')
                          order by r.rolname limit 4) creator), '')
  from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality p (name, place)
       join pg_catalog.pg_namespace n on n.nspname operator(pg_catalog.=) p.name
       join pg_catalog.pg_database d
            on d.datname operator(pg_catalog.=) pg_catalog.current_database()
       left join pg_catalog.pg_class c
            on c.oid operator(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)
 where n.nspname operator(pg_catalog.<>) 'pg_catalog'
 order by p.place)";

void check_search_path(examination& patient) {
    const auto& names = patient.where().source.tables();
    const std::string table = sql::qualify("rowlock_lock", sql::dialect::postgresql, names);
    static const sql::statement ask{std::string{writable_schemas}};
    const auto rows = patient.connection().execute(ask, std::array{sql::value{table}},
                                                   std::chrono::steady_clock::now() + 5s);
    std::string seen;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const bool everyone = rows.integer(row, 1) != 0;
        if (!everyone && rows.text(row, 2).empty()) continue;
        if (!seen.empty()) seen += "; ";
        seen += fmt::format(
            "{} may create in schema {}",
            everyone ? "every role (PUBLIC)" : fmt::format("role {}", rows.text(row, 2)),
            rows.text(row, 0));
    }
    const std::string path = patient.value("show search_path");
    if (seen.empty()) return patient.ok("search path", path);
    patient.warn(
        "search path", seen,
        "rowlock's statements resolve nothing that is planted there, yours may, and a table "
        "there hides one of a later schema: revoke create on the schema, or take it off "
        "this user's search_path");
}

/// TLS of the server's connection. Behind a pooler that is the pooler's.
void check_tls(examination& patient) {
    const auto row = patient.query(
        "select coalesce(s.version, ''), coalesce(s.cipher, ''), "
        "(pg_catalog.inet_client_addr() is null or pg_catalog.inet_client_addr() "
        "operator(pg_catalog.=) pg_catalog.inet_server_addr())::int "
        "from pg_catalog.pg_stat_ssl s where s.pid operator(pg_catalog.=) "
        "pg_catalog.pg_backend_pid()");
    if (row.empty()) return;  // not PostgreSQL, only its protocol
    const bool encrypted = !row.text(0, 0).empty();
    report_tls(patient, encrypted ? fmt::format("{}, {}", row.text(0, 0), row.text(0, 1)) : "",
               row.integer(0, 2) != 0, "sslmode=verify-full");
}

void check_strategies(examination& patient) {
    const bool sessions = patient.connection().keeps_session_state();
    report_strategies(
        patient,
        {.lease = sessions ? "exclusive; waiters are woken" : "exclusive; waiters poll",
         .fence = "lock the lease's row until the commit",
         .row_lock = "until the commit",
         .advisory_lock = sessions ? "of a session, and of a transaction"
                                   : "of a transaction; of a session refused: a transaction pooler",
         .version = "conditional updates"});
}

}  // namespace

void examine_postgresql(examination& patient) {
    patient.try_out("search path", [&] { check_search_path(patient); });
    patient.look_at("server", [&] { check_version(patient); });
    patient.look_at("role", [&] { check_writable(patient); });
    patient.try_out("pooler", [&] { check_pooler(patient); });
    patient.look_at("durability", [&] { check_durability(patient); });
    patient.look_at("replication", [&] { check_replication(patient); });
    patient.try_out("isolation", [&] { check_isolation(patient); });
    patient.look_at("connections", [&] { check_headroom(patient); });
    patient.look_at("notifications", [&] { check_notifications(patient); });
    patient.try_out("tls", [&] { check_tls(patient); });
    check_strategies(patient);
}

}  // namespace rowlock::cli

#include "cli/doctor.hpp"

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/progress_line.hpp"
#include "cli/rights.hpp"
#include "lock/protocol/session/session_protocol.hpp"
#include "lock/wakeup/before_listen.hpp"
#include "metrics/database_totals.hpp"
#include "sql/listening.hpp"
#include "sql/session_settings.hpp"
#include "sql/statements.hpp"
#include "sql/table_names.hpp"
#include <rowlock/migrations.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::steady_clock;

sql::deadline soon() {
    return examination::soon();
}

const char* name_of(finding::verdict how) {
    switch (how) {
        case finding::verdict::ok:
            return "ok";
        case finding::verdict::warn:
            return "warn";
        case finding::verdict::fail:
            return "fail";
    }
    return "fail";
}

std::string milliseconds_text(steady_clock::duration time) {
    return fmt::format("{:.2f} ms", std::chrono::duration<double, std::milli>(time).count());
}

void check_round_trip(examination& patient) {
    auto best = steady_clock::duration::max();
    for (int i = 0; i < 5; ++i) {
        const auto start = steady_clock::now();
        patient.query("select 1");
        best = std::min(best, steady_clock::now() - start);
    }
    const std::string seen = milliseconds_text(best);
    if (best < 100ms) return patient.ok("round trip", seen);
    patient.warn("round trip", seen,
                 "every acquire and release takes at least as long: use a nearer database");
}

/// A client whose connection breaks must open another, and use it, within its trust window: half of
/// its ttl, with the default heartbeat and margin.
void check_least_ttl(examination& patient) {
    const auto& names = patient.where().source.tables();
    const auto speaks = patient.connection().speaks();
    const auto protocol = protocol::make_session_protocol(patient.statements());
    const auto start = steady_clock::now();
    const auto another = patient.another_connection();
    protocol->set_up(*another, 5s, soon());
    const auto opened = steady_clock::now();
    another->query("select 1", soon());
    const auto answered = steady_clock::now();
    const auto round_trip = answered - opened;
    const auto least = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(2 * (opened - start + 2 * round_trip), 10 * round_trip));
    const std::string seen = fmt::format("{}; opening a connection takes {}", to_text(least),
                                         milliseconds_text(opened - start));
    const auto table = sql::qualify("rowlock_session", speaks, names);
    const auto shorter =
        patient.value(fmt::format("select count(*) from {} where {} and ttl_us < {}", table,
                                  speaks == sql::dialect::postgresql ? "not ended" : "ended = 0",
                                  microseconds{least}.count()));
    if (shorter != "0") {
        return patient.warn("least ttl", seen + ", and " + shorter + " sessions have less",
                            "seen from here, their leases do not outlive a broken connection: "
                            "raise their ttl, or use a nearer database");
    }
    if (least <= 30s) return patient.ok("least ttl", seen);
    patient.warn("least ttl", seen,
                 "with the default of 30 s a lease does not outlive a broken connection: raise the "
                 "ttl and the statement deadline, or use a nearer database");
}

/// Expiry depends on the database's clock alone; a wrong local clock only confuses people who read
/// logs.
void check_clock(examination& patient) {
    const char* now_us = "select cast((julianday('now') - 2440587.5) * 86400000000 as integer)";
    if (patient.connection().speaks() == sql::dialect::postgresql) {
        now_us =
            "select (extract(epoch from pg_catalog.clock_timestamp()) "
            "operator(pg_catalog.*) 1000000)::bigint";
    } else if (patient.connection().speaks() == sql::dialect::mysql) {
        now_us = "select cast(unix_timestamp(sysdate(6)) * 1000000 as signed)";
    }
    const auto ours = [] {
        return std::chrono::duration_cast<microseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
            .count();
    };
    const auto before = ours();
    const auto theirs = patient.query(now_us).integer(0, 0);
    const auto offset = std::chrono::duration_cast<std::chrono::milliseconds>(
        microseconds{theirs - (before + ours()) / 2});
    const std::string seen = to_text(offset) + " ahead of this machine";
    if (std::chrono::abs(offset) < 5s) return patient.ok("clock", seen);
    patient.warn("clock", seen, "harmless for locks; set both by NTP, to be able to compare logs");
}

/// True if there are tables to check further.
bool check_schema(examination& patient) {
    const database& in = patient.where();
    try {
        const auto now = schema_status(in.source);
        const std::string seen = fmt::format("version {} of {}", now.version, now.latest);
        if (now.current()) {
            patient.ok("schema", now.version > now.latest
                                     ? seen + ", made by a later rowlock: this one works with it"
                                     : seen);
            return true;
        }
        patient.fail("schema", now.version == 0 ? "no tables" : seen, "run `rowlock migrate`");
    } catch (const error& failure) {
        patient.fail("schema", message_of(failure), "see docs/migrations.md");
    }
    return false;
}

/// Reports which server this is, and whether the tables were used here before.
void check_identity(examination& patient) {
    const auto& names = patient.where().source.tables();
    const auto speaks = patient.connection().speaks();
    const auto protocol = protocol::make_session_protocol(patient.statements());
    const auto server = protocol->server_of_again(patient.connection(), soon());
    if (!server) return patient.ok("identity", "a standby");
    if (server->empty()) {
        return patient.warn("identity", "the server does not report its identity",
                            "a promotion of a standby is not noticed then: let this user call "
                            "pg_walfile_name() and pg_control_system()");
    }
    const auto known = patient.value("select server_identity from " +
                                     sql::qualify("rowlock_token_floor", speaks, names));
    if (!known.empty() && known != *server) {
        return patient.warn("identity", *server + ", the tables were last used on " + known,
                            "nothing is to be done: the next session raises the tokens past all "
                            "that were granted there");
    }
    if (server->starts_with("/")) {
        return patient.warn("identity", *server,
                            "let this user call pg_control_system(): without it another cluster at "
                            "the same timeline is not noticed");
    }
    patient.ok("identity", *server);
}

/// Without this row nothing is granted: every token is counted from it.
void check_token_floor(examination& patient) {
    const auto& names = patient.where().source.tables();
    const auto table = sql::qualify("rowlock_token_floor", patient.connection().speaks(), names);
    const auto rows = patient.query("select floor from " + table);
    if (!rows.empty()) return patient.ok("token floor", std::string{rows.text(0, 0)});
    patient.fail("token floor", "the row of " + table + " is missing",
                 "nothing can be granted without: docs/migrations.md, \"Going back\", says how to "
                 "put it back");
}

struct right {
    const char* name;
    std::string statement;
};

/// A statement that needs a right on a table and touches no row.
std::string trial_of(std::string_view right, std::string_view table, std::string_view column,
                     sql::dialect speaks) {
    if (right == "select") return fmt::format("select {} from {} where false", column, table);
    if (right == "update")
        return fmt::format("update {0} set {1} = {1} where false", table, column);
    if (right == "delete") return fmt::format("delete from {} where false", table);
    // PostgreSQL refuses a value for the waiter's identity column, MySQL refuses anything less than
    // all columns.
    return speaks == sql::dialect::postgresql
               ? fmt::format("insert into {0} ({1}) select {1} from {0} where false", table, column)
               : fmt::format("insert into {0} select * from {0} where false", table);
}

/// Begins as rowlock's own connections do: they switch default_transaction_read_only off, which a
/// transaction pooler or a standby does not allow.
std::string opening(examination& patient) {
    if (patient.connection().speaks() == sql::dialect::sqlite) return "begin immediate";
    const bool overrides = patient.connection().speaks() == sql::dialect::postgresql &&
                           patient.connection().keeps_session_state() &&
                           patient.value("select pg_catalog.pg_is_in_recovery()::int") == "0";
    return overrides ? "begin read write" : "begin";
}

enum class trial : bool { passed, denied };

/// @throws error also if the database accepts no writes at all: that is not a missing right
trial try_in_vain(examination& patient, const std::string& begin, const std::string& statement) {
    patient.query(begin);
    try {
        patient.query(statement);
    } catch (const error& failure) {
        if (patient.connection().alive()) patient.query("rollback");
        if (failure.kind() != errc::access_denied) throw;
        return trial::denied;
    }
    patient.query("rollback");
    return trial::passed;
}

/// The missing rights, as a list for people.
std::string missing_rights(examination& patient) {
    const auto speaks = patient.connection().speaks();
    const auto& names = patient.where().source.tables();
    const std::string begin = opening(patient);
    std::string missing;
    for (const auto& each : rights_of_a_client(speaks)) {
        const std::string name = sql::qualify(std::string{each.table}, speaks, names);
        for (const auto right : each.rights) {
            const auto statement = trial_of(right, name, each.column, speaks);
            if (try_in_vain(patient, begin, statement) == trial::passed) continue;
            missing += fmt::format("{}{} on {}", missing.empty() ? "" : ", ", right, name);
        }
    }
    return missing;
}

void check_rights(examination& patient) {
    try {
        const std::string missing = missing_rights(patient);
        if (missing.empty()) return patient.ok("rights", "all that rowlock needs");
        patient.fail("rights", "missing: " + missing,
                     "grant them to this user: `rowlock migrate --print-grants ROLE` prints them");
    } catch (const error& failure) {
        if (failure.kind() != errc::read_only) throw;
        patient.fail("rights", "not tried: this connection accepts no writes",
                     "connect where they are accepted; see the check of the role");
    }
}

/// Dead queue entries block no waiter, but every read of a queue steps over them.
void check_queues(examination& patient) {
    metrics::database_totals all;
    metrics::read_queues(all, patient.rowlock_connection(), patient.statements(), soon());
    std::int64_t waiters = 0;
    std::int64_t dead = 0;
    for (const auto* const each : {&all.leases, &all.semaphores, &all.shared_mutexes}) {
        waiters += each->waiting + each->dead_entries;
        dead += each->dead_entries;
    }
    const std::string seen = fmt::format("{} waiters, {} of them dead", waiters, dead);
    if (dead < 100) return patient.ok("queues", seen);
    patient.warn("queues", seen,
                 "no reaper runs: give a client one, or run `rowlock reap` by cron");
}

/// Every transition changes a counter and its holds together.
void check_counters(examination& patient) {
    auto& db = patient.connection();
    const auto query = sql::load_statement(db.speaks(), "wrong_counters",
                                           {.tables = patient.where().source.tables()});
    const auto row = db.execute(query, {}, soon());
    const auto wrong = row.integer(0, 1);
    if (wrong == 0) {
        return patient.ok("semaphores",
                          fmt::format("{} semaphores and shared_mutexes", row.integer(0, 0)));
    }
    patient.fail("semaphores",
                 fmt::format("{} counters are not the sum of their holds, {} is the first", wrong,
                             escaped(row.text(0, 2))),
                 "the tables were changed by other means: `rowlock reap` puts the counters right");
}

void check_history(examination& patient) {
    const database& in = patient.where();
    switch (history_status(in.source)) {
        case history_recording::absent:
            return;
        case history_recording::stopped:
            return patient.warn(
                "history", "a table without triggers, as far as this user may see",
                "`rowlock migrate --history on` goes on recording, `--history drop` "
                "removes what was recorded");
        case history_recording::on:
            break;
    }
    if (patient.connection().speaks() == sql::dialect::postgresql) {
        const auto table =
            sql::qualify("rowlock_history", sql::dialect::postgresql, in.source.tables());
        if (patient.value("select pg_catalog.has_table_privilege('" + table +
                          "', 'insert')::int") != "1") {
            return patient.fail("history",
                                "on, but this user may not write it: no lock can be taken",
                                "grant insert on " + table + "; see docs/migrations.md");
        }
    }
    patient.ok("history", "on");
}

/// Whether a waiter would receive another connection's notifications; where it cannot, it polls.
void check_wake_ups(examination& patient) {
    auto& db = patient.connection();
    if (db.speaks() == sql::dialect::mysql) return;
    const std::string advice =
        "locks work without; waiters poll the table, which takes longer: "
        "connect to the server itself, or through a session pooler";
    const std::string channel = "rowlock_doctor_" + std::to_string(getpid());
    sql::notifications* notifications = nullptr;
    try {
        notifications = sql::usable_notifications(db, patient.where().source, soon());
        if (notifications == nullptr)
            throw error{errc::unsupported, "a transaction pooler is in between"};
        const bool may_be_slow = db.speaks() == sql::dialect::postgresql &&
                                 wakeup::ask_before_listen(db, {}, soon()).queue_is_long;
        if (may_be_slow) {
            return patient.warn(
                "wake-ups", "the server's queue of notifications is long",
                "waiters poll until it is short again; see the check notifications");
        }
        notifications->listen(channel, soon());
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        return patient.warn("wake-ups", message_of(failure), advice);
    }
    if (db.speaks() == sql::dialect::sqlite) return patient.ok("wake-ups", "the file is watched");
    patient.another_connection()->query("select pg_catalog.pg_notify('" + channel + "', '')",
                                        soon());
    pollfd watched{notifications->descriptor(), POLLIN, 0};
    poll(&watched, 1, 2000);
    const bool heard = !notifications->take().empty();
    patient.query("unlisten " + channel);
    if (heard) return patient.ok("wake-ups", "NOTIFY is heard");
    patient.warn("wake-ups", "NOTIFY is not heard", advice);
}

void report_as_json(const database& in, const std::vector<finding>& findings, bool healthy) {
    json checks = json::array();
    for (const auto& each : findings) {
        checks.push_back(json{{"check", each.check},
                              {"verdict", name_of(each.how)},
                              {"seen", each.seen},
                              {"advice", each.advice}});
    }
    print_json(json{{"database", in.source.description()}, {"ok", healthy}, {"checks", checks}});
}

void report_as_text(const database& in, const std::vector<finding>& findings) {
    std::size_t longest = 0;
    for (const auto& each : findings) longest = std::max(longest, each.check.size());
    std::string text = escaped(description_of(in)) + "\n";
    for (const auto& each : findings) {
        text += fmt::format("{:4}  {:{}}  {}\n", name_of(each.how), each.check, longest,
                            escaped(each.seen));
        if (!each.advice.empty()) {
            text += fmt::format("{:{}}→ {}\n", "", longest + 8, escaped(each.advice));
        }
    }
    print(text);
}

}  // namespace

sql::result examination::query(std::string_view text) {
    return db_->query(text, soon());
}

std::string examination::value(std::string_view text) {
    const auto answer = query(text);
    return answer.empty() ? std::string{} : std::string{answer.text(0, 0)};
}

bool examination::has_failed(std::string_view check) const {
    return std::ranges::any_of(findings_, [&](const auto& each) {
        return each.check == check && each.how == finding::verdict::fail;
    });
}

std::unique_ptr<sql::connection> examination::another_connection() const {
    return in_.source.connect(soon());
}

std::unique_ptr<sql::connection> examination::stated_connection() const {
    return sql::connect_stated(in_.source, soon());
}

sql::connection& examination::rowlock_connection() {
    if (!set_up_) {
        auto opened = another_connection();
        protocol::make_session_protocol(statements())->set_up(*opened, counting_time, soon());
        set_up_ = std::move(opened);
    }
    return *set_up_;
}

sql::statement_set examination::statements() const {
    return sql::statement_set{in_.source.speaks(),
                              sql::statement_options{.tables = in_.source.tables()}};
}

sql::deadline examination::soon() {
    return steady_clock::now() + 5s;
}

void report_strategies(examination& patient, const strategy_report& here) {
    if (patient.extent() == examination::scope::reads) return;
    const bool none = patient.has_failed("role") || patient.has_failed("cluster");
    const auto report = [&](const char* check, const char* seen) {
        patient.ok(check, none ? "refused: see the checks of role and cluster" : seen);
    };
    report("leases", here.lease);
    report("fences", here.fence);
    report("row locks", here.row_lock);
    report("advisory locks", here.advisory_lock);
    report("versions", here.version);
}

void report_tls(examination& patient, const std::string& cipher, bool local,
                std::string_view parameter) {
    if (!cipher.empty()) return patient.ok("tls", cipher);
    if (local) return patient.ok("tls", "none; the connection stays on this machine");
    patient.warn("tls", "none: what is sent can be read and changed on the way",
                 fmt::format("set up TLS on the server, and {} in the URL", parameter));
}

bool is_at_least(std::string_view version, std::string_view wanted) {
    while (!wanted.empty()) {
        int have = 0;
        int want = 0;
        std::from_chars(version.data(), version.data() + version.size(), have);
        std::from_chars(wanted.data(), wanted.data() + wanted.size(), want);
        if (have != want) return have > want;
        const auto next = [](std::string_view& text) {
            const auto dot = text.find('.');
            text = dot == std::string_view::npos ? std::string_view{} : text.substr(dot + 1);
        };
        next(version);
        next(wanted);
    }
    return true;
}

void examine(examination& patient) {
    patient.try_out("round trip", [&] { check_round_trip(patient); });
    const bool has_tables = check_schema(patient);
    if (has_tables) patient.try_out("rights", [&] { check_rights(patient); });
    if (has_tables) patient.look_at("token floor", [&] { check_token_floor(patient); });
    if (has_tables) examine_tables(patient);
    if (has_tables) patient.look_at("queues", [&] { check_queues(patient); });
    if (has_tables) patient.look_at("semaphores", [&] { check_counters(patient); });
    if (has_tables && patient.connection().speaks() != sql::dialect::sqlite) {
        patient.try_out("least ttl", [&] { check_least_ttl(patient); });
        patient.look_at("identity", [&] { check_identity(patient); });
    }
    if (has_tables) patient.try_out("history", [&] { check_history(patient); });
    patient.try_out("wake-ups", [&] { check_wake_ups(patient); });
    patient.look_at("clock", [&] { check_clock(patient); });
    examine_settings(patient, has_tables);
    switch (patient.connection().speaks()) {
        case sql::dialect::postgresql:
            examine_postgresql(patient);
            break;
        case sql::dialect::mysql:
            examine_mysql(patient);
            break;
        case sql::dialect::sqlite:
            examine_sqlite(patient);
            break;
    }
}

int doctor(const doctor_options& options) {
    const database in = find_database(options.database);
    std::optional<examination> patient;
    std::optional<progress_line> progress{"connecting"};
    std::vector<finding> findings;
    int code = success;
    try {
        if (in.embedded) rowlock::migrate(in.source);
        patient.emplace(in);
    } catch (const error& failure) {
        findings.push_back({finding::verdict::fail, "connection", message_of(failure),
                            "nothing else can be checked before this"});
        code = exit_code_of(failure.kind());
    }
    if (patient) {
        patient->ok("connection", "works");
        patient->on_check = [&](const std::string& check) { progress->set("checking " + check); };
        examine(*patient);
        findings = patient->findings();
    }
    progress.reset();
    const bool healthy = std::ranges::none_of(
        findings, [](const auto& each) { return each.how == finding::verdict::fail; });
    if (options.json) {
        report_as_json(in, findings, healthy);
    } else {
        report_as_text(in, findings);
    }
    if (code != success) return code;
    return healthy ? success : answer_is_no;
}

}  // namespace rowlock::cli

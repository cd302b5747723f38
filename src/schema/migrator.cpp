#include "schema/migrator.hpp"

#include "base/embedded.hpp"
#include "schema/script.hpp"
#include "sql/table_names.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

namespace rowlock::schema {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

/// Pause between two tries for the lock: another migrator works for some ten milliseconds.
constexpr milliseconds slice{100};
/// To undo and unlock after a failure, whatever the deadline of the work was.
constexpr seconds cleanup_deadline{5};
constexpr int deadlock_attempts = 5;

std::string quoted(std::string_view validated_name) {
    return std::string{"'"}.append(validated_name).append("'");
}

[[noreturn]] void give_up_waiting(const migration_options& options) {
    throw error{errc::timed_out,
                "another process is migrating this database and did not finish "
                "within " +
                    std::to_string(options.wait.count()) + " ms: try again, or wait longer"};
}

/// Runs a statement that undoes something, on the way out of a failure that matters more.
void query_quietly(sql::connection& db, std::string_view sql) noexcept {
    try {
        if (db.alive()) db.query(sql, steady_clock::now() + cleanup_deadline);
    } catch (...) {  // the connection is closed next, which has the same effect
    }
}

/// Those on MySQL, which are created one by one: after an interruption some exist.
constexpr std::array history_triggers{"granted",        "lease",  "deleted",      "queued",
                                      "left",           "opened", "ended",        "left_session",
                                      "permit_granted", "permit", "permit_ended", "capacity_made",
                                      "capacity",       "asked",  "permit_asked"};

/// Whether MySQL or MariaDB refused a statement because an earlier run has done what it does.
bool was_done(std::string_view statement, int code) {
    constexpr std::array done{
        1060,        // the column exists
        1826, 3822,  // the check exists (MariaDB, MySQL)
        1091, 3940,  // there is nothing to drop (MySQL: no such check)
    };
    // The rows to delete were marked by a column that was dropped behind them.
    constexpr int unknown_column = 1054;
    return std::ranges::find(done, code) != done.end() ||
           (code == unknown_column && statement.starts_with("delete "));
}

template <typename Undo>
class on_exit {
public:
    explicit on_exit(Undo undo) : undo_{std::move(undo)} {}
    on_exit(const on_exit&) = delete;
    on_exit& operator=(const on_exit&) = delete;
    ~on_exit() { undo_(); }

private:
    Undo undo_;
};

}  // namespace

migrator::migrator(sql::connection& db, const catalog& known, sql::table_names tables,
                   const migration_options& options)
    : db_{db}, known_{known}, tables_{std::move(tables)}, options_{options}, speaks_{db.speaks()} {
    validate_names(speaks_, tables_);
    validate(options_);
}

int migrator::version() {
    return verified_version(read_record(), known_);
}

std::vector<int> migrator::move_to(std::optional<int> target) {
    const bool removed = target == 0 && !has_record();
    if (removed || (target != 0 && is_at(target, version()))) return {};
    moved_.clear();
    under_lock([this, target] { move_under_lock(target); });
    return moved_;
}

bool migrator::is_at(std::optional<int> target, int version) const {
    return target ? version == *target : version >= known_.latest();
}

/// A later library knows what it has added, and its triggers.
void migrator::require_known(int version) const {
    if (version <= known_.latest()) return;
    throw error{errc::schema_outdated,
                "the database has migration " + std::to_string(version) +
                    ", this rowlock knows up to " + std::to_string(known_.latest()) +
                    ": clients of this one work with it, but only the later rowlock can change it"};
}

history_recording migrator::history() {
    const auto found = query(question_about_history());
    if (found.integer(0, 0) == 0) return history_recording::absent;
    return found.integer(0, 1) != 0 ? history_recording::on : history_recording::stopped;
}

/// One row: whether there is the table; whether there are its triggers, which elsewhere than on
/// MySQL come and go together.
std::string migrator::question_about_history() const {
    const std::string name = table("history");
    switch (speaks_) {
        case sql::dialect::postgresql:
            return "select cast(pg_catalog.to_regclass(" + quoted(name) +
                   ") is not null as integer), (select pg_catalog.count(*) from "
                   "pg_catalog.pg_trigger where tgname operator(pg_catalog.=) 'history_update' and "
                   "tgrelid operator(pg_catalog.=) pg_catalog.to_regclass(" +
                   quoted(table("lock")) + "))";
        case sql::dialect::mysql: {
            std::string names;
            for (const char* each : history_triggers) {
                names += (names.empty() ? "" : ", ") + quoted(name + "_" + each);
            }
            return "select (select count(*) from information_schema.tables where table_schema = "
                   "database() and table_name = " +
                   quoted(name) +
                   "), (select count(*) = " + std::to_string(history_triggers.size()) +
                   " from information_schema.triggers where trigger_schema = database() and "
                   "trigger_name in (" +
                   names + "))";
        }
        case sql::dialect::sqlite:
            break;
    }
    const auto is = [](const char* type, const std::string& which) {
        return "(select count(*) from sqlite_master where type = " + quoted(type) +
               " and name = " + quoted(which) + ")";
    };
    return "select " + is("table", name) + ", " + is("trigger", name + "_lease");
}

void migrator::switch_history(history_recording wanted) {
    const int now = version();
    require_known(now);
    if (now == 0) {
        throw error{errc::schema_outdated, "no rowlock tables with the prefix " + tables_.prefix +
                                               ": run `rowlock migrate` first"};
    }
    if (wanted != history_recording::on && history() == history_recording::absent) return;
    const auto give_up = steady_clock::now() + options_.wait;
    for (;;) {
        try {
            return under_lock([this, wanted] { switch_under_lock(wanted); });
        } catch (const error& failure) {
            if (failure.kind() != errc::timed_out || steady_clock::now() >= give_up) throw;
        }
        std::this_thread::sleep_for(slice);
    }
}

sql::result migrator::query(std::string_view sql) {
    return db_.query(sql, steady_clock::now() + options_.wait);
}

std::string migrator::qualified(std::string_view sql) const {
    return qualify(sql, speaks_, tables_);
}

std::string migrator::table(std::string_view name) const {
    return qualified("rowlock_" + std::string{name});
}

bool migrator::has_record() {
    switch (speaks_) {
        case sql::dialect::postgresql:
            return query("select cast(pg_catalog.to_regclass(" + quoted(table("migration")) +
                         ") is not null as integer)")
                       .integer(0, 0) != 0;
        case sql::dialect::mysql:
            return query(
                       "select count(*) from information_schema.tables "
                       "where table_schema = database() and table_name = " +
                       quoted(table("migration")))
                       .integer(0, 0) != 0;
        case sql::dialect::sqlite:
            return query("select count(*) from sqlite_master where type = 'table' and name = " +
                         quoted(table("migration")))
                       .integer(0, 0) != 0;
    }
    return false;
}

std::vector<recorded_migration> migrator::read_record() {
    // Asked first, not inferred from an error: an error would abort a PostgreSQL transaction.
    if (!has_record()) return {};
    try {
        return schema::read_record(db_, tables_, steady_clock::now() + options_.wait);
    } catch (const error& failure) {
        if (failure.kind() != errc::schema_outdated) throw;
        if (!locked_ && !has_record()) return {};  // another process has just removed it
        throw explained(failure, "the table " + table("migration") +
                                     " was not made by rowlock, choose another prefix: ");
    }
}

void migrator::run_script(const migration& step, std::string_view script) {
    try {
        for (const auto& statement : split_statements(script, speaks_)) run_step(statement);
    } catch (const error& failure) {
        throw explained(failure, step.title() + ": ");
    }
}

/// On MySQL each statement commits by itself, and there is no IF NOT EXISTS for columns: what an
/// interrupted run has already added or dropped is not a failure.
void migrator::run_step(std::string_view statement) {
    try {
        query(qualified(statement));
    } catch (const error& failure) {
        if (speaks_ != sql::dialect::mysql || !was_done(statement, failure.native_code())) throw;
    }
}

void migrator::run_history(std::string_view name) {
    try {
        for (const auto& statement : split_statements(history_file(speaks_, name), speaks_)) {
            query(qualified(statement));
        }
    } catch (const error& failure) {
        throw explained(failure, "the history: ");
    }
}

void migrator::under_lock(const std::function<void()>& work) {
    if (speaks_ == sql::dialect::mysql) return in_steps(work);
    in_transaction(work);
}

void migrator::in_transaction(const std::function<void()>& work) {
    const bool postgresql = speaks_ == sql::dialect::postgresql;
    const std::int64_t key = postgresql ? postgresql_lock_key() : 0;
    try {
        if (postgresql) {
            begin_postgresql(key);
        } else {
            begin_sqlite();
        }
        locked_ = true;
        work();
        query("commit");
    } catch (...) {
        query_quietly(db_, "rollback");
        throw;
    }
}

void migrator::in_steps(const std::function<void()>& work) {
    const auto lock_wait = std::chrono::ceil<seconds>(options_.wait).count();
    query("set session autocommit = 1, lock_wait_timeout = " + std::to_string(lock_wait));
    take_mysql_lock();
    const on_exit unlock{
        [this] { query_quietly(db_, "select release_lock(" + quoted(mysql_lock_) + ")"); }};
    for (int attempt = 1;; ++attempt) {
        try {
            locked_ = true;
            work();
            return;
        } catch (const error& failure) {
            // On Galera, DDL of another node makes any write a deadlock victim.
            if (failure.kind() != errc::deadlock || attempt == deadlock_attempts) throw;
        }
    }
}

/// A migration may recreate a table: then the triggers on it are gone.
void migrator::move_under_lock(std::optional<int> wanted) {
    const int from = version();
    if (wanted != 0 && is_at(wanted, from)) return;
    require_known(from);
    const int target = wanted.value_or(known_.latest());
    const auto recording = history();
    recorded_ = recorded_ || recording == history_recording::on;
    if (recording != history_recording::absent) run_history("off");
    try {
        if (target == 0) run_history("drop");
        if (from > target || target == 0) {
            move_down(from, target);
        } else {
            move_up(from, target);
        }
    } catch (...) {
        // MySQL has rolled nothing back: a history that was recorded is recorded again, whatever
        // became of the rest. Another attempt switches it off first.
        if (speaks_ == sql::dialect::mysql && recorded_) record_again();
        throw;
    }
    if (recorded_ && target != 0) run_history("on");
}

void migrator::record_again() noexcept {
    try {
        run_history("on");
    } catch (...) {
        // The tables may be gone. `rowlock doctor` reports that nothing is recorded.
    }
}

/// Waits for the locks only briefly: all acquires wait behind each waiting one.
void migrator::switch_under_lock(history_recording wanted) {
    if (speaks_ == sql::dialect::postgresql) query("set local lock_timeout = '1s'");
    if (speaks_ == sql::dialect::mysql) query("set session lock_wait_timeout = 1");
    if (wanted == history_recording::on) return run_history("on");
    run_history("off");
    if (wanted == history_recording::absent) run_history("drop");
}

void migrator::move_up(int from, int target) {
    if (!has_record()) {
        if (speaks_ == sql::dialect::postgresql) make_postgresql_schema();
        run_script(known_.record, known_.record.up);
    }
    for (int version = from + 1; version <= target; ++version) {
        const migration& step = known_.at(version);
        if (options_.on_step) options_.on_step(version);
        run_script(step, step.up);
        require_mysql_lock();
        query(qualified(record_statement(step, speaks_)));
        moved_.push_back(version);
    }
}

void migrator::move_down(int from, int target) {
    if (!has_record()) return;
    for (int version = from; version > target; --version) {
        const migration& step = known_.at(version);
        if (options_.on_step) options_.on_step(version);
        run_script(step, step.down);
        require_mysql_lock();
        query(
            qualified("delete from rowlock_migration where version = " + std::to_string(version)));
        moved_.push_back(version);
    }
    if (target != 0) return;
    // On MySQL the first migration may have been cut off before it was recorded.
    if (from == 0) run_script(known_.at(1), known_.at(1).down);
    require_mysql_lock();
    run_script(known_.record, known_.record.down);
}

std::int64_t migrator::postgresql_lock_key() {
    const auto schema = query("select " + postgresql_schema());
    if (schema.is_null(0, 0)) {
        throw error{
            errc::invalid_options,
            "no schema on the search path exists, so no tables can be created: name a schema"};
    }
    // By schema, whatever the prefix: two prefixes would race to create the schema.
    return static_cast<std::int64_t>(
        fingerprint("rowlock migrations in " + std::string{schema.text(0, 0)}));
}

void migrator::begin_postgresql(std::int64_t key) {
    const auto give_up = steady_clock::now() + options_.wait;
    for (;;) {
        query("begin transaction isolation level read committed read write");
        const auto locked = query("select cast(pg_catalog.pg_try_advisory_xact_lock(cast(" +
                                  std::to_string(key) + " as bigint)) as integer)");
        if (locked.integer(0, 0) != 0) break;
        // A waiter inside a transaction would block CREATE INDEX CONCURRENTLY.
        query("rollback");
        if (steady_clock::now() >= give_up) give_up_waiting(options_);
        std::this_thread::sleep_for(slice);
    }
    query("select pg_catalog.set_config('lock_timeout', '" + std::to_string(options_.wait.count()) +
          "ms', true), pg_catalog.set_config('client_min_messages', 'warning', true)");
    // New tables go where the others are, also if this role would find another schema first. No
    // other schema affects what the scripts mean, nor the triggers, which keep this path.
    query("select pg_catalog.set_config('search_path', pg_catalog.quote_ident(" +
          postgresql_schema() + ") operator(pg_catalog.||) ', pg_temp', true)");
}

std::string migrator::postgresql_schema() const {
    if (!tables_.schema.empty()) return quoted(tables_.schema);
    return "coalesce((select n.nspname from pg_catalog.pg_class c "
           "join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace "
           "where c.oid operator(pg_catalog.=) pg_catalog.to_regclass(" +
           quoted(table("migration")) + ")), pg_catalog.current_schema())";
}

void migrator::begin_sqlite() {
    try {
        query("begin immediate");
    } catch (const error& failure) {
        if (failure.kind() != errc::timed_out) throw;
        throw explained(failure, "another process is migrating this file, or writes to it: ");
    }
}

void migrator::make_postgresql_schema() {
    if (tables_.schema.empty()) return;
    // Asked first: IF NOT EXISTS needs the right to create schemas even where one exists.
    const auto found = query(
        "select pg_catalog.count(*) from pg_catalog.pg_namespace where nspname "
        "operator(pg_catalog.=) " +
        quoted(tables_.schema));
    if (found.integer(0, 0) == 0) query("create schema \"" + tables_.schema + "\"");
}

void migrator::take_mysql_lock() {
    const auto database = query("select database()");
    if (database.is_null(0, 0)) {
        throw error{errc::invalid_options,
                    "the connection has no default database: name one in "
                    "the URL"};
    }
    // Locks belong to the server, not to the database; MySQL allows 64 characters.
    const std::string place = std::string{database.text(0, 0)} + "." + tables_.prefix;
    const std::string name = "rowlock_migrations_" + hexadecimal(fingerprint(place));
    const auto give_up = steady_clock::now() + options_.wait;
    for (;;) {
        const bool patient = give_up - steady_clock::now() >= seconds{1};
        const auto locked = query("select get_lock(" + quoted(name) + (patient ? ", 1)" : ", 0)"));
        if (locked.maybe_integer(0, 0) == 1) break;
        if (steady_clock::now() >= give_up) give_up_waiting(options_);
        if (!patient || locked.is_null(0, 0)) std::this_thread::sleep_for(slice);
    }
    mysql_lock_ = name;
}

void migrator::require_mysql_lock() {
    if (speaks_ != sql::dialect::mysql) return;
    // A third-party source may reconnect unnoticed, and the lock is gone.
    const auto held = query("select is_used_lock(" + quoted(mysql_lock_) + ") = connection_id()");
    if (held.maybe_integer(0, 0) == 1) return;
    throw error{errc::conflict,
                "the lock that keeps other migrations away was lost: migrate again, it goes on "
                "where this run stopped"};
}

std::string_view history_file(sql::dialect which, std::string_view name) {
    const std::string path =
        std::string{to_string(which)} + "/history/" + std::string{name} + ".sql";
    const auto files = embedded::history_files();
    return std::ranges::find(files, path, &embedded::file::path)->text;
}

std::vector<recorded_migration> read_record(sql::connection& db, const sql::table_names& tables,
                                            sql::deadline until) {
    const auto rows = db.query(
        qualify("select version, checksum, oldest_library from rowlock_migration order by version",
                db.speaks(), tables),
        until);
    std::vector<recorded_migration> record;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        record.push_back(
            {rows.integer(row, 0), std::string{rows.text(row, 1)}, rows.maybe_integer(row, 2)});
    }
    return record;
}

std::string record_statement(const migration& step, sql::dialect which) {
    const auto oldest = step.oldest_library();
    const std::string head =
        "insert into rowlock_migration (version, name, checksum, oldest_library, applied_at) "
        "values (" +
        std::to_string(step.version) + ", " + quoted(step.name) + ", " + quoted(step.checksum()) +
        ", " + (oldest ? std::to_string(*oldest) : "null") + ", ";
    switch (which) {
        case sql::dialect::postgresql:
            return head + "clock_timestamp())";
        case sql::dialect::mysql:
            return head +
                   "timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6)))"
                   " on duplicate key update version = version";
        case sql::dialect::sqlite:
            return head + "cast((julianday('now') - 2440587.5) * 86400000000 as integer))";
    }
    return head;
}

error explained(const error& failure, std::string_view before, std::string_view after) {
    return error{failure.kind(),
                 std::string{before}.append(failure.what()).append(after),
                 {failure.sqlstate(), failure.native_code(), failure.server_message()}};
}

void validate(const migration_options& options) {
    if (options.wait < milliseconds{1} || options.wait > std::chrono::hours{24}) {
        throw error{errc::invalid_options, "the wait of a migration must be 1 ms to 24 h"};
    }
}

}  // namespace rowlock::schema

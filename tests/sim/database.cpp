#include "database.hpp"

#include "link.hpp"
#include "pollable.hpp"
#include "scheduler.hpp"
#include "wall_clock.hpp"
#include <rowlock/migrations.hpp>

#include <sqlite3.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <utility>

namespace rowlock::sim {
namespace {

database* current = nullptr;  // whose clock SQL reads
sqlite3* migrated = nullptr;  // as the migrations left it

[[noreturn]] void fail(const std::string& what, const std::string& why) {
    std::fprintf(stderr, "sim: %s: %s\n", what.c_str(), why.c_str());
    std::abort();
}

/// Stands for SQLite's julianday('now'), from which the product's SQL takes the time.
void julian_day(sqlite3_context* context, int, sqlite3_value**) {
    constexpr double of_1970 = 2'440'587.5;
    constexpr double milliseconds_of_a_day = 86'400'000;
    const i64 now = current != nullptr ? current->clock() : wall_clock(0) / us;
    const auto milliseconds = static_cast<double>(now / 1'000);
    sqlite3_result_double(context, of_1970 + milliseconds / milliseconds_of_a_day);
}

void execute(sqlite3* handle, const std::string& text) {
    char* problem = nullptr;
    if (sqlite3_exec(handle, text.c_str(), nullptr, nullptr, &problem) != SQLITE_OK) {
        fail(text, problem);
    }
}

sqlite3* open_handle(const std::string& name) {
    sqlite3* handle = nullptr;
    const std::string uri = "file:/" + name + "?vfs=memdb";
    const int code = sqlite3_open_v2(uri.c_str(), &handle,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI |
                                         SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                                     nullptr);
    if (code != SQLITE_OK) fail(uri, sqlite3_errstr(code));
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_create_function_v2(handle, "julianday", 1, SQLITE_UTF8, nullptr, &julian_day, nullptr,
                               nullptr, nullptr);
    // For speed alone, so it may fail: another connection may have locked the database.
    sqlite3_exec(handle, "pragma journal_mode=memory; pragma synchronous=off", nullptr, nullptr,
                 nullptr);
    return handle;
}

/// For the migrations, which run outside of all simulations.
class direct_connection final : public sql::connection {
public:
    explicit direct_connection(sqlite3* handle) : runner_{handle} {}
    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::sqlite; }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return runner_.execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return runner_.query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return runner_.transaction();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return runner_.round_trips();
    }

private:
    sqlite::connection_ref runner_;
};

/// All simulations of a process use one database, so that handles and their prepared statements
/// are used again: that makes short seeds twice as fast.
sqlite3* the_database() {
    static sqlite3* const handle = [] {
        auto* const copy = open_handle("simulated");
        sqlite3_backup* const work = sqlite3_backup_init(copy, "main", migrated, "main");
        sqlite3_backup_step(work, -1);
        sqlite3_backup_finish(work);
        execute(copy, "attach 'file:/migrated?vfs=memdb' as origin");
        return copy;
    }();
    return handle;
}

using idle_handle = std::pair<sqlite3*, std::unique_ptr<sqlite::connection_ref>>;
std::vector<idle_handle>& idle_handles() {
    static std::vector<idle_handle> all;
    return all;
}

/// Rolls back. The handle serves the next connection.
void end(server_session& session) {
    if (std::exchange(session.closed, true)) return;
    if (sqlite3_get_autocommit(session.handle) == 0) execute(session.handle, "rollback");
    idle_handles().emplace_back(std::exchange(session.handle, nullptr), std::move(session.runner));
}

struct statement_edit {
    std::string name, part, instead;
};
std::vector<statement_edit>& edits() {
    static std::vector<statement_edit> all;
    return all;
}
bool edited = false;

std::string edited_text(std::string text) {
    const std::string name = name_of(text);
    for (const auto& edit : edits()) {
        if (edit.name != name) continue;
        const auto place = text.find(edit.part);
        if (place == std::string::npos) continue;
        text.replace(place, edit.part.size(), edit.instead);
        edited = true;
    }
    return text;
}

std::map<std::string, statement_count>& counts() {
    static std::map<std::string, statement_count> all;
    return all;
}

}  // namespace

std::string name_of(std::string_view text) {
    constexpr std::string_view tag = "/* rowlock ";
    if (text.starts_with(tag)) text.remove_prefix(tag.size());
    return std::string{text.substr(0, text.find_first_of(" ;("))};
}

void edit_statement(const std::string& name, const std::string& part, const std::string& instead) {
    edits().push_back({name, part, instead});
}

bool statement_was_edited() {
    return edited;
}

const std::map<std::string, statement_count>& statement_counts() {
    return counts();
}

const sql::statement& shared_statement(const sql::statement& of_client) {
    static std::unordered_map<std::string, sql::statement> all;
    const auto found = all.find(of_client.text());
    if (found != all.end()) return found->second;
    return all.emplace(of_client.text(), sql::statement{edited_text(of_client.text())})
        .first->second;
}

void prepare_databases() {
    if (migrated != nullptr) return;
    migrated = open_handle("migrated");
    const sql::connection_source source{
        sql::dialect::sqlite,
        [](sql::deadline) { return std::make_unique<direct_connection>(migrated); }, "migrated"};
    migrate(source);
    // What the locks protect, written in fenced transactions alone.
    execute(migrated,
            "create table sim_guarded (name text primary key, token integer not null);"
            "create table sim_stale_write (name text, was integer, became integer);"
            "create trigger sim_watch after update on sim_guarded when new.token < old.token "
            "begin insert into sim_stale_write values (new.name, old.token, new.token); end");
}

database::database() : oracle_handle_{the_database()} {
    static const std::string put_back = [this] {
        // The sequences last, since the inserts move them.
        const auto tables =
            ask("select name from main.sqlite_master where type = 'table' and "
                "(name not like 'sqlite_%' or name = 'sqlite_sequence') "
                "order by name = 'sqlite_sequence'");
        std::string text = "begin immediate;";
        for (std::size_t i = 0; i < tables.rows(); ++i) {
            const std::string table{tables.text(i, 0)};
            text += "delete from main." + table + "; insert into main." + table +
                    " select * from origin." + table + ";";
        }
        return text + "commit";
    }();
    execute(oracle_handle_, put_back);
    current = this;
}

database::~database() {
    for (const auto& session : sessions_) end(*session);
    current = nullptr;
}

i64 database::clock() const {
    return (wall_clock(world != nullptr ? world->now() : 0) + clock_step) / us;
}

sql::connection_source database::source() {
    return {sql::dialect::sqlite, [this](sql::deadline until) { return connect(*this, until); },
            "the simulated database"};
}

std::shared_ptr<server_session> database::open_session(int node_id) {
    auto session = std::make_shared<server_session>();
    session->node = node_id;
    auto& idle = idle_handles();
    if (idle.empty()) {
        session->handle = open_handle("simulated");
        session->runner = std::make_unique<sqlite::connection_ref>(session->handle);
    } else {
        session->handle = idle.back().first;
        session->runner = std::move(idle.back().second);
        idle.pop_back();
    }
    session->changes_told = sqlite3_total_changes(session->handle);
    sessions_.push_back(session);
    return session;
}

void database::close(const std::shared_ptr<server_session>& which) {
    end(*which);
    std::erase(sessions_, which);
    lock_freed();
}

void database::close_connections_of(int node_id) {
    for (const auto& session : sessions_) {
        if (session->node != node_id) continue;
        world->after(world->draws.between(10 * us, 300 * us), [this, session] { close(session); });
    }
}

void database::run(const std::shared_ptr<request>& what) {
    auto& on = *what->on;
    if (on.closed || !sky.reaches(on.node)) return;
    ++statements_;
    // The driver is not to wait for a lock: then the request does, here.
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds{500};
    try {
        what->answer = what->prepared != nullptr
                           ? on.runner->execute(*what->prepared, what->parameters, until)
                           : on.runner->query(what->text, until);
    } catch (const error& failure) {
        constexpr int primary = 0xff;
        const bool locked = (failure.native_code() & primary) == SQLITE_BUSY;
        if (locked && world->now() < what->give_up_at) return wait_for_lock(what);
        what->answer = failure;
    }
    const auto* const result = std::get_if<sql::result>(&what->answer);
    auto& count = counts()[what->name];
    ++count.runs;
    if (result != nullptr && result->affected() > 0) ++count.changes;
    if (world->prints != nullptr) {
        world->log("        runs " + what->name + " for n" + std::to_string(what->node) +
                   (result != nullptr ? ": " + std::to_string(result->rows()) + " rows, " +
                                            std::to_string(result->affected()) + " changed"
                                      : ": refused"));
    }
    what->ran = world->now();
    what->state = on.runner->transaction();
    if (what->state == sql::transaction_state::none) {
        const int changes = sqlite3_total_changes(on.handle);
        if (std::exchange(on.changes_told, changes) != changes) tell_of_change(on);
        lock_freed();
    }
    if (what->answers) answer(what);
    if (what->closes_after) close(what->on);
}

void database::answer(const std::shared_ptr<request>& what) {
    world->after(what->reply_delay, [this, what] {
        if (!sky.reaches(what->on->node)) return;
        what->done = true;
        world->wake_all(what.get());
    });
}

void database::wait_for_lock(const std::shared_ptr<request>& what) {
    locked_out_.push_back(what);
    if (what->give_up_at == forever || std::exchange(what->has_limit, true)) return;
    world->at(what->give_up_at, [this, what] {
        if (std::erase(locked_out_, what) > 0) run(what);
    });
}

/// Those that found the file locked try again, in any order.
void database::lock_freed() {
    for (const auto& what : std::exchange(locked_out_, {})) {
        world->after(world->draws.between(1 * us, 50 * us), [this, what] { run(what); });
    }
}

void database::tell_of_change(const server_session& by) {
    for (const auto& session : sessions_) {
        if (session->descriptor < 0 || !session->wants_changes || session.get() == &by) continue;
        if (world->draws.chance(sky.lost_change)) continue;
        world->after(world->draws.between(20 * us, 400 * us), [session] {
            auto* const listener = find_pollable(session->descriptor);
            if (listener == nullptr || !session->wants_changes) return;
            session->has_changes = true;
            listener->readable = true;
            world->wake_all(listener);
        });
    }
}

sql::result database::ask(const std::string& text) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(oracle_handle_, text.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
        fail(text, sqlite3_errmsg(oracle_handle_));
    }
    const int columns = sqlite3_column_count(statement);
    sql::result rows{static_cast<std::size_t>(columns)};
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < columns; ++i) {
            const auto* const cell = sqlite3_column_text(statement, i);
            if (cell == nullptr) {
                rows.append_null();
            } else {
                rows.append_text(reinterpret_cast<const char*>(cell));
            }
        }
    }
    sqlite3_finalize(statement);
    return rows;
}

i64 database::ask_number(const std::string& text) {
    const auto rows = ask(text);
    return rows.empty() || rows.is_null(0, 0) ? 0 : rows.integer(0, 0);
}

}  // namespace rowlock::sim

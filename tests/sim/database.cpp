#include "database.hpp"

#include "link.hpp"
#include "lock/wakeup/hint.hpp"
#include "pollable.hpp"
#include "scheduler.hpp"
#include "test_dialect.hpp"
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

sqlite3* migrated = nullptr;  // as the migrations left it

[[noreturn]] void fail(const std::string& what, const std::string& why) {
    std::fprintf(stderr, "sim: %s: %s\n", what.c_str(), why.c_str());
    std::abort();
}

using idle_handle = std::pair<sqlite3*, std::unique_ptr<sqlite::connection_ref>>;

}  // namespace

/// Tables that simulated databases of a process use, one after the other, so that handles and their
/// prepared statements are used again: that makes short seeds twice as fast.
struct file {
    std::string name{};
    sqlite3* oracle = nullptr;
    sqlite3* saved = nullptr;  ///< another file; null: never saved
    std::vector<idle_handle> idle{};
    const database* user = nullptr;  ///< whose clock and identity its SQL reads; null: it is free
};

namespace {

/// Of the file of that function's handle.
const database* user_of(sqlite3_context* context) {
    const auto* const of = static_cast<const file*>(sqlite3_user_data(context));
    return of != nullptr ? of->user : nullptr;
}

/// Stands for SQLite's julianday('now'), from which the product's SQL takes the time.
void julian_day(sqlite3_context* context, int, sqlite3_value**) {
    constexpr double of_1970 = 2'440'587.5;
    constexpr double milliseconds_of_a_day = 86'400'000;
    const auto* const of = user_of(context);
    const i64 now = of != nullptr ? of->clock() : wall_clock(0) / us;
    const auto milliseconds = static_cast<double>(now / 1'000);
    sqlite3_result_double(context, of_1970 + milliseconds / milliseconds_of_a_day);
}

/// Which server this is, for the statements of the test dialect.
void server_identity(sqlite3_context* context, int, sqlite3_value**) {
    const auto* const of = user_of(context);
    const std::string identity = of != nullptr ? of->identity : "";
    sqlite3_result_text(context, identity.c_str(), -1, SQLITE_TRANSIENT);
}

/// Called by a trigger: a session was granted a lease.
void note_grant(sqlite3_context* context, int, sqlite3_value** arguments) {
    const auto* const of = user_of(context);
    if (of == nullptr || !presented().notifies) return;
    of->granted({.session = sqlite3_value_int64(arguments[0]),
                 .grant_id = sqlite3_value_int64(arguments[1]),
                 .token = sqlite3_value_int64(arguments[2])});
}

void execute(sqlite3* handle, const std::string& text) {
    char* problem = nullptr;
    if (sqlite3_exec(handle, text.c_str(), nullptr, nullptr, &problem) != SQLITE_OK) {
        fail(text, problem);
    }
}

/// @param of null: of the one that is copied
sqlite3* open_handle(const std::string& name, file* of) {
    sqlite3* handle = nullptr;
    const std::string uri = "file:/" + name + "?vfs=memdb";
    const int code = sqlite3_open_v2(uri.c_str(), &handle,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI |
                                         SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                                     nullptr);
    if (code != SQLITE_OK) fail(uri, sqlite3_errstr(code));
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_create_function_v2(handle, "julianday", 1, SQLITE_UTF8, of, &julian_day, nullptr,
                               nullptr, nullptr);
    sqlite3_create_function_v2(handle, "sim_server_identity", 0, SQLITE_UTF8, of, &server_identity,
                               nullptr, nullptr, nullptr);
    sqlite3_create_function_v2(handle, "sim_note_grant", 3, SQLITE_UTF8, of, &note_grant, nullptr,
                               nullptr, nullptr);
    // For speed alone, so it may fail: another connection may have locked the database.
    sqlite3_exec(handle, "pragma journal_mode=memory; pragma synchronous=off", nullptr, nullptr,
                 nullptr);
    return handle;
}

/// False: one of them is locked.
bool copy(sqlite3* from, sqlite3* to) {
    sqlite3_backup* const work = sqlite3_backup_init(to, "main", from, "main");
    const int code = sqlite3_backup_step(work, -1);
    sqlite3_backup_finish(work);
    if (code == SQLITE_DONE) return true;
    if (code != SQLITE_BUSY && code != SQLITE_LOCKED) fail("a copy", sqlite3_errstr(code));
    return false;
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

/// One that nobody uses, with the product's tables.
file& free_file() {
    static std::vector<std::unique_ptr<file>> all;
    for (const auto& one : all) {
        if (one->user == nullptr) return *one;
    }
    auto& made = *all.emplace_back(std::make_unique<file>());
    made.name = "simulated-" + std::to_string(all.size());
    made.oracle = open_handle(made.name, &made);
    static_cast<void>(copy(migrated, made.oracle));
    execute(made.oracle, "attach 'file:/migrated?vfs=memdb' as origin");
    return made;
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
    static std::unordered_map<std::uint64_t, const sql::statement*> by_id;
    auto& known = by_id[of_client.id()];
    if (known == nullptr) {
        const auto found = all.find(of_client.text());
        known = found != all.end()
                    ? &found->second
                    : &all.emplace(of_client.text(), sql::statement{edited_text(of_client.text())})
                           .first->second;
    }
    return *known;
}

void prepare_databases() {
    if (migrated != nullptr) return;
    migrated = open_handle("migrated", nullptr);
    const sql::connection_source source{
        sql::dialect::sqlite,
        [](sql::deadline) { return std::make_unique<direct_connection>(migrated); }, "migrated"};
    migrate(source);
    // What the locks protect, written in fenced transactions alone.
    execute(migrated,
            "create table sim_guarded (name text primary key, token integer not null);"
            "create table sim_stale_write (name text, was integer, became integer);"
            "create trigger sim_watch after update on sim_guarded when new.token < old.token "
            "begin insert into sim_stale_write values (new.name, old.token, new.token); end;"
            // What PostgreSQL's statements notify by themselves.
            "create trigger sim_grant after update of grant_id on rowlock_lock "
            "when new.session is not null and new.grant_id <> old.grant_id "
            "begin select sim_note_grant(new.session, new.grant_id, new.token); end");
}

database::database(std::string its_identity)
    : identity{std::move(its_identity)}, file_{free_file()} {
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
    execute(file_.oracle, put_back);
    file_.user = this;
}

database::~database() {
    for (const auto& session : sessions_) end(*session);
    file_.user = nullptr;
}

/// Rolls back. The handle serves the next connection.
void database::end(server_session& session) {
    if (std::exchange(session.closed, true)) return;
    if (auto* const listener = find_pollable(session.descriptor); !session.channels.empty()) {
        listener->readable = true;
        if (world != nullptr) world->wake_all(listener);
    }
    if (sqlite3_get_autocommit(session.handle) == 0) execute(session.handle, "rollback");
    file_.idle.emplace_back(std::exchange(session.handle, nullptr), std::move(session.runner));
}

i64 database::clock() const {
    return (wall_clock(world != nullptr ? world->now() : 0) + clock_step) / us;
}

sql::connection_source database::source() {
    return {sql::dialect::sqlite, [this](sql::deadline until) { return connect(*this, until); },
            "the simulated database"};
}

void database::at(i64 true_time, std::function<void()> call) const {
    world->at(true_time, [alive = std::weak_ptr{alive_}, call = std::move(call)] {
        if (!alive.expired()) call();
    });
}

void database::after(i64 delay, std::function<void()> call) const {
    at(world->now() + delay, std::move(call));
}

std::shared_ptr<server_session> database::open_session(int node_id) {
    auto session = std::make_shared<server_session>();
    session->node = node_id;
    auto& idle = file_.idle;
    if (idle.empty()) {
        session->handle = open_handle(file_.name, &file_);
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
        after(world->draws.between(10 * us, 300 * us), [this, session] { close(session); });
    }
}

bool database::save() {
    if (file_.saved == nullptr) file_.saved = open_handle(file_.name + "-saved", nullptr);
    const bool done = copy(file_.oracle, file_.saved);
    saved_ = saved_ || done;
    return done;
}

void database::crash() {
    for (const auto& session : std::exchange(sessions_, {})) end(*session);
    locked_out_.clear();
}

void database::set_back(std::string its_identity) {
    if (!saved_) return;
    crash();
    if (!copy(file_.saved, file_.oracle)) fail("to set back", "it is locked");
    execute(file_.oracle, "update rowlock_session set ended = 1");
    identity = std::move(its_identity);
}

void database::run(const std::shared_ptr<request>& what) {
    auto& on = *what->on;
    if (on.closed || !sky.reaches(on.node)) return;
    ++statements_;
    const bool was_outside = on.runner->transaction() == sql::transaction_state::none;
    if (was_outside) granted_.clear();
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
        if (!granted_.empty()) notify_of_grants();
        lock_freed();
    }
    if (what->answers) answer(what);
    if (what->closes_after) close(what->on);
}

void database::answer(const std::shared_ptr<request>& what) {
    after(what->reply_delay, [this, what] {
        if (!sky.reaches(what->node) && !spared.contains(what->node)) return;
        what->done = true;
        world->wake_all(what.get());
    });
}

void database::wait_for_lock(const std::shared_ptr<request>& what) {
    locked_out_.push_back(what);
    if (what->give_up_at == forever || std::exchange(what->has_limit, true)) return;
    at(what->give_up_at, [this, what] {
        if (std::erase(locked_out_, what) > 0) run(what);
    });
}

/// Those that found the file locked try again, in any order.
void database::lock_freed() {
    for (const auto& what : std::exchange(locked_out_, {})) {
        after(world->draws.between(1 * us, 50 * us), [this, what] { run(what); });
    }
}

void database::tell_of_change(const server_session& by) {
    for (const auto& session : sessions_) {
        if (session->descriptor < 0 || !session->wants_changes || session.get() == &by) continue;
        if (world->draws.chance(sky.lost_change)) continue;
        after(world->draws.between(20 * us, 400 * us), [session] {
            auto* const listener = find_pollable(session->descriptor);
            if (listener == nullptr || !session->wants_changes) return;
            session->has_changes = true;
            listener->readable = true;
            world->wake_all(listener);
        });
    }
}

void database::granted(const grant& what) const {
    granted_.push_back(what);
}

/// There is one writer: what was granted is that of the transaction that has just ended. If it was
/// rolled back, nobody has that grant.
void database::notify_of_grants() {
    for (const auto& one : std::exchange(granted_, {})) {
        const auto rows = ask(
            "select m.wake_address, m.wake_secret from rowlock_lock l join rowlock_session m on "
            "m.id = l.session where l.grant_id = " +
            std::to_string(one.grant_id) + " and m.id = " + std::to_string(one.session));
        if (rows.empty()) continue;
        const std::string channel =
            wakeup::notification_channel({.number = rows.integer(0, 0), .secret = {}});
        const auto text = wakeup::encode_wakeup(
            {.grant_id = grant_id{one.grant_id}, .token = one.token}, rows.text(0, 1));
        for (const auto& session : sessions_) {
            if (!session->channels.contains(channel) || world->draws.chance(sky.lost_change)) {
                continue;
            }
            after(world->draws.between(20 * us, 400 * us), [this, session, channel, text] {
                auto* const listener = find_pollable(session->descriptor);
                if (listener == nullptr || session->closed || !sky.reaches(session->node)) return;
                session->messages.push_back({channel, text});
                listener->readable = true;
                world->wake_all(listener);
            });
        }
    }
}

sql::result database::ask(const std::string& text) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(file_.oracle, text.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
        fail(text, sqlite3_errmsg(file_.oracle));
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

#include "stress/crew.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

namespace stress {

using namespace std::chrono_literals;
using rowlock::sql::dialect;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

std::vector<std::string> command_of(const support::lock_database& database, const role& part,
                                    const std::string& log) {
    const auto number = [](const char* key, auto value) {
        return std::string{key} + "=" + std::to_string(value);
    };
    std::vector<std::string> words{part.program.empty() ? ROWLOCK_QUEUE_WORKER : part.program,
                                   "mode=" + part.mode,
                                   "prefix=" + database.prefix(),
                                   "log=" + log,
                                   number("names", part.names),
                                   number("threads", part.threads),
                                   number("count", part.count),
                                   number("hold_us", part.hold_us),
                                   number("ttl_ms", part.ttl_ms),
                                   number("poll_ms", part.poll_ms),
                                   number("polling", int{part.polling}),
                                   number("by_database", int{part.by_database}),
                                   number("barging", int{part.barging}),
                                   number("seed", part.seed)};
    words.insert(words.end(), part.words.begin(), part.words.end());
    return words;
}

struct both_ends {
    int read_end = -1;
    int write_end = -1;
};

both_ends make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error{"no pipe"};
    return {ends[0], ends[1]};
}

/// xmin:xmax:xip_list, as PostgreSQL prints it.
bool visible(std::int64_t transaction, const std::string& snapshot) {
    const auto first = snapshot.find(':');
    const auto second = snapshot.find(':', first + 1);
    if (transaction < std::stoll(snapshot.substr(0, first))) return true;
    if (transaction >= std::stoll(snapshot.substr(first + 1, second - first - 1))) return false;
    const std::string running = ',' + snapshot.substr(second + 1) + ',';
    return running.find(',' + std::to_string(transaction) + ',') == std::string::npos;
}

struct ticket_row {
    std::int64_t ticket;
    micros at;
    std::int64_t transaction;
    std::string snapshot;
};

struct grant_row {
    std::int64_t token;
    std::int64_t grant_id;
    micros at;
    const ticket_row* ticket;  ///< null: to a newcomer
};

/// Whether `earlier`, the lower ticket, stood in the queue when `later` came to it, so that it had
/// to be served first. PostgreSQL tells exactly, by the snapshot in which the later one was
/// written. SQLite has one writer: always. MariaDB: if it was written much earlier; there the
/// calls' own times are the finer measure (unfair_calls).
bool stood_before(const ticket_row& earlier, const ticket_row& later, dialect speaks) {
    if (speaks == dialect::postgresql) return visible(earlier.transaction, later.snapshot);
    if (speaks == dialect::sqlite) return true;
    return later.at - earlier.at > 1'000'000;
}

void make_on_postgresql(support::lock_database& database) {
    database.run(
        "create table rowlock_audit (id bigint generated always as identity primary key, "
        "kind \"char\" not null, name text, number bigint, "
        "grant_id bigint, at bigint, transaction bigint, snapshot text)");
    database.run(
        "create function rowlock_audit_ticket() returns trigger language plpgsql as $$ begin "
        "insert into rowlock_audit (kind, name, number, grant_id, at, transaction, snapshot) "
        "values ('q', new.name, new.ticket, new.grant_id, "
        "(extract(epoch from clock_timestamp()) * 1000000)::bigint, txid_current(), "
        "txid_current_snapshot()::text); return null; end $$");
    database.run(
        "create function rowlock_audit_grant() returns trigger language plpgsql as $$ begin "
        "insert into rowlock_audit (kind, name, number, grant_id, at) "
        "values ('g', new.name, new.token, new.grant_id, "
        "(extract(epoch from clock_timestamp()) * 1000000)::bigint); "
        "return null; end $$");
    database.run(
        "create trigger audit after insert on rowlock_waiter for each row "
        "execute function rowlock_audit_ticket()");
    database.run(
        "create trigger audit_insert after insert on rowlock_lease for each row "
        "when (new.session is not null) execute function rowlock_audit_grant()");
    database.run(
        "create trigger audit_update after update on rowlock_lease for each row when "
        "(new.session is not null and new.grant_id is distinct from old.grant_id) "
        "execute function rowlock_audit_grant()");
}

void make_elsewhere(support::lock_database& database) {
    const bool sqlite = database.speaks() == dialect::sqlite;
    const std::string number = sqlite ? "integer" : "bigint";
    const std::string now = sqlite ? "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"
                                   : "cast(unix_timestamp(sysdate(6)) * 1000000 as signed)";
    database.run("create table rowlock_audit (id integer primary key " +
                 std::string{sqlite ? "autoincrement" : "auto_increment"} +
                 ", kind char(1) not null, name varchar(255), number " + number + ", grant_id " +
                 number + ", at " + number + ")");
    const std::string insert = "insert into rowlock_audit (kind, name, number, grant_id, at) ";
    const std::string grant = insert + "select 'g', new.name, new.token, new.grant_id, " + now +
                              (sqlite ? "" : " from dual") + " where new.session is not null";
    database.run(
        "create trigger rowlock_audit_ticket after insert on rowlock_waiter for each row "
        "begin " +
        insert + "values ('q', new.name, new.ticket, new.grant_id, " + now + "); end");
    database.run(
        "create trigger rowlock_audit_insert after insert on rowlock_lease for each row "
        "begin " +
        grant + "; end");
    database.run(
        "create trigger rowlock_audit_update after update on rowlock_lease for each row "
        "begin " +
        grant + " and coalesce(old.grant_id, 0) <> new.grant_id; end");
}

void check_order(const std::string& name, const std::vector<grant_row>& grants, dialect speaks,
                 audit::findings& found) {
    std::int64_t lowest = std::numeric_limits<std::int64_t>::max();  // of those served later
    for (auto i = grants.size(); i-- > 0;) {
        const auto* passed = grants[i].ticket;
        if (!passed) continue;
        for (auto j = i + 1; lowest < passed->ticket && j < grants.size(); ++j) {
            const auto* late = grants[j].ticket;
            if (!late || late->ticket > passed->ticket) continue;
            if (!stood_before(*late, *passed, speaks)) {
                ++found.overlapping;
                continue;
            }
            found.unfair.push_back(
                name + ": ticket " + std::to_string(passed->ticket) + " was served before ticket " +
                std::to_string(late->ticket) + ", which stood before it (tokens " +
                std::to_string(grants[i].token) + " and " + std::to_string(grants[j].token) + ")");
        }
        lowest = std::min(lowest, passed->ticket);
    }
}

/// SQLite's clock has milliseconds.
void check_tokens(const std::string& name, const std::vector<grant_row>& grants,
                  audit::findings& found) {
    for (std::size_t i = 1; i < grants.size(); ++i) {
        if (grants[i - 1].token == grants[i].token || grants[i - 1].at > grants[i].at + 1'000) {
            found.regressions.push_back(name + ": token " + std::to_string(grants[i].token) +
                                        " was granted again, or before a smaller one");
        }
    }
}

}  // namespace

member::member(const support::lock_database& database, const role& part, std::string log)
    : log_{std::move(log)} {
    auto words = command_of(database, part, log_);
    std::vector<char*> pointers;
    for (auto& each : words) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    const auto in = make_pipe();
    const auto out = make_pipe();
    std::string url = "ROWLOCK_STRESS_URL=" + database.url();
    std::vector<char*> variables{url.data()};
    auto more = part.environment;
    for (auto& each : more) variables.push_back(each.data());
    for (char** each = environ; *each != nullptr; ++each) variables.push_back(*each);
    variables.push_back(nullptr);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in.read_end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out.write_end, STDOUT_FILENO);
    const int failed = posix_spawn(&id_, words.front().c_str(), &files, nullptr, pointers.data(),
                                   variables.data());
    posix_spawn_file_actions_destroy(&files);
    close(in.read_end);
    close(out.write_end);
    input_ = in.write_end;
    output_ = out.read_end;
    if (failed != 0) throw std::runtime_error{"could not start " + words.front()};
}

member::~member() {
    if (id_ > 0) kill();
    if (input_ >= 0) close(input_);
    close(output_);
}

bool member::says(const std::string& word, milliseconds limit) {
    const auto end = steady_clock::now() + limit;
    while (said_.find(word) == std::string::npos) {
        const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
        pollfd readable{output_, POLLIN, 0};
        if (left <= 0ms || poll(&readable, 1, static_cast<int>(left.count())) <= 0) return false;
        std::array<char, 64> bytes{};
        const auto count = read(output_, bytes.data(), bytes.size());
        if (count <= 0) return false;
        said_.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return true;
}

void member::begin() {
    if (!says("ready", 20s)) FAIL("a process did not connect");
    if (write(input_, "g", 1) != 1) FAIL("a process died early");
}

bool member::done(milliseconds limit) {
    return says("done", limit);
}

void member::stop() {
    if (input_ >= 0) close(std::exchange(input_, -1));
}

int member::wait(milliseconds limit) {
    int status = 0;
    const bool over =
        support::eventually([&] { return waitpid(id_, &status, WNOHANG) == id_; }, limit);
    if (!over) FAIL("process ", id_, " does not end");
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void member::kill() {
    ::kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    id_ = -1;
    killed_ = true;
}

void member::pause() const {
    ::kill(id_, SIGSTOP);
    siginfo_t stopped{};
    waitid(P_PID, static_cast<id_t>(id_), &stopped, WSTOPPED);
}

void member::resume() const {
    ::kill(id_, SIGCONT);
}

crew::crew(const support::lock_database& database)
    : database_{database},
      folder_{(std::filesystem::temp_directory_path() / "rowlock-stress-XXXXXX").string()} {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
}

crew::~crew() {
    members_.clear();
    std::error_code ignored;
    if (getenv("ROWLOCK_KEEP_LOGS") == nullptr) std::filesystem::remove_all(folder_, ignored);
}

member& crew::add(const role& part) {
    auto with = part;
    with.seed += 1000 * static_cast<unsigned>(members_.size());
    const auto log = folder_ + "/" + std::to_string(members_.size());
    return *members_.emplace_back(std::make_unique<member>(database_, with, log));
}

void crew::begin() {
    for (const auto& each : members_) each->begin();
}

void crew::stop() {
    for (const auto& each : members_) {
        if (!each->killed()) each->stop();
    }
    for (const auto& each : members_) {
        if (!each->killed()) CHECK(each->wait() == 0);
    }
}

history crew::past() const {
    history all;
    int number = 0;
    for (const auto& each : members_) {
        if (std::filesystem::exists(each->log())) all.read(each->log(), number);
        ++number;
    }
    return all;
}

audit::audit(support::lock_database& database) : database_{database} {
    if (database.speaks() == dialect::postgresql) {
        make_on_postgresql(database);
    } else {
        make_elsewhere(database);
    }
}

audit::~audit() {
    try {
        if (database_.speaks() == dialect::postgresql) {
            database_.run("drop trigger audit on rowlock_waiter");
            database_.run("drop trigger audit_insert on rowlock_lease");
            database_.run("drop trigger audit_update on rowlock_lease");
            database_.run("drop function rowlock_audit_ticket, rowlock_audit_grant");
        } else {
            for (const char* each : {"ticket", "insert", "update"}) {
                database_.run(std::string{"drop trigger rowlock_audit_"} + each);
            }
        }
        database_.run("drop table rowlock_audit");
    } catch (const std::exception& failure) {
        MESSAGE("the triggers of a test were left behind: ", failure.what());
    }
}

audit::findings audit::check() {
    const bool postgresql = database_.speaks() == dialect::postgresql;
    findings found;
    std::map<std::int64_t, ticket_row> tickets;  // by grant id
    std::map<std::string, std::vector<grant_row>> grants;
    const auto read = [&](const rowlock::sql::result& rows, std::size_t i) {
        const auto number = rows.integer(i, 3);
        const auto grant_id = rows.integer(i, 4);
        const auto at = rows.integer(i, 5);
        if (rows.text(i, 1) == "g") {
            grants[std::string{rows.text(i, 2)}].push_back({number, grant_id, at, nullptr});
        } else if (postgresql) {
            tickets[grant_id] = {number, at, rows.integer(i, 6), std::string{rows.text(i, 7)}};
        } else {
            tickets[grant_id] = {number, at, 0, ""};
        }
    };
    for (std::int64_t last = 0;;) {
        const auto rows = database_.run(std::string{"select id, kind, name, number, grant_id, at"} +
                                        (postgresql ? ", transaction, snapshot" : "") +
                                        " from rowlock_audit where id > " + std::to_string(last) +
                                        " order by id limit 20000");
        if (rows.empty()) break;
        for (std::size_t i = 0; i < rows.rows(); ++i) read(rows, i);
        last = rows.integer(rows.rows() - 1, 0);
    }
    found.tickets = tickets.size();
    for (auto& [name, each] : grants) {
        found.grants += each.size();
        for (auto& one : each) {
            const auto ticket = tickets.find(one.grant_id);
            if (ticket == tickets.end()) continue;
            one.ticket = &ticket->second;
            ++found.queued_grants;
        }
        std::stable_sort(each.begin(), each.end(),
                         [](const auto& a, const auto& b) { return a.token < b.token; });
        check_order(name, each, database_.speaks(), found);
        check_tokens(name, each, found);
    }
    return found;
}

remains left_in(support::lock_database& database) {
    return {database.number("select count(*) from rowlock_waiter"),
            database.number("select count(*) from rowlock_lease where session is not null")};
}

namespace {

/// Ends one of these connections of the server, ids in the first column.
bool kill_one(support::lock_database& database, const std::string& candidates, unsigned choice) {
    const auto found = database.run(candidates);
    if (found.empty()) return false;
    const auto id = std::to_string(found.integer(choice % found.rows(), 0));
    try {
        database.run(database.speaks() == dialect::postgresql
                         ? "select pg_terminate_backend(" + id + ")"
                         : "kill connection " + id);
    } catch (const rowlock::error&) {
        return false;  // ended by itself meanwhile
    }
    return true;
}

}  // namespace

bool kill_a_listener(support::lock_database& database, unsigned choice) {
    if (database.speaks() == dialect::postgresql) {
        // The waiting room's connection: it was LISTEN, or what the room alone runs, that ran last.
        return kill_one(database,
                        "select pid from pg_stat_activity a where pid <> pg_backend_pid() and "
                        "((query ilike 'listen %' and exists (select from rowlock_session s "
                        "where position(s.id::text in a.query) > 0)) or "
                        "(query ~ '^/. rowlock (places|deadlocks|served|grant_next|waited_for) ' "
                        "and query like '%rowlock_%'))",
                        choice);
    }
    if (database.speaks() == dialect::mysql) {
        return kill_one(database,
                        // A sleeper, or the connection that its gate is shut by: the waiting
                        // room's.
                        "with sleeper as (select p.id, p.info from information_schema.processlist "
                        "p where p.info like 'select get#_lock(%) as rowlock#_wake#_%' escape '#' "
                        "and exists (select 1 from rowlock_session s "
                        "where p.info like concat('%', s.id))) "
                        "select k.id from (select id from sleeper union all "
                        "select is_used_lock(substring_index(substring_index(info, char(39), 2), "
                        "char(39), -1)) from sleeper) k where k.id is not null",
                        choice);
    }
    return false;
}

bool kill_a_connection(support::lock_database& database, unsigned choice) {
    if (database.speaks() == dialect::postgresql) {
        return kill_one(database,
                        "select pid from pg_stat_activity where pid <> pg_backend_pid() and "
                        "query like '%rowlock_%'",
                        choice);
    }
    return kill_a_listener(database, choice);
}

}  // namespace stress

#include "stress/crew.hpp"

#include "support/processlist.hpp"

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
#include <cstdint>
#include <filesystem>
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
                                   number("fails_when_cut_off", int{part.fails_when_cut_off}),
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
    if (!says("ready", 60s)) FAIL("a process did not connect");
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

std::unique_ptr<support::own_server> server_of_our_own(support::backend which) {
    const auto its = which == support::backend::postgresql ? support::server::postgresql
                                                           : support::server::mariadb;
    auto server = support::own_server::start(its);
    if (server) setenv(support::url_variable(its), server->url().c_str(), 1);
    return server;
}

remains left_in(support::lock_database& database) {
    return {database.number("select count(*) from rowlock_ticket"),
            database.number("select count(*) from rowlock_lock where session is not null")};
}

namespace {

using numbers = std::vector<std::int64_t>;

/// In the first column.
numbers numbers_of(const rowlock::sql::result& rows) {
    numbers all;
    for (std::size_t row = 0; row < rows.rows(); ++row) all.push_back(rows.integer(row, 0));
    return all;
}

/// Ends one of these connections of the server.
bool kill_one(support::lock_database& database, const numbers& candidates, unsigned choice) {
    if (candidates.empty()) return false;
    const auto id = std::to_string(candidates[choice % candidates.size()]);
    try {
        database.run(database.speaks() == dialect::postgresql
                         ? "select pg_terminate_backend(" + id + ")"
                         : "kill connection " + id);
    } catch (const rowlock::error&) {
        return false;  // it has ended meanwhile
    }
    return true;
}

bool kill_one(support::lock_database& database, const std::string& candidates, unsigned choice) {
    return kill_one(database, numbers_of(database.run(candidates)), choice);
}

/// The connections that sleep in a MySQL server, and those that hold their wait locks.
numbers sleepers_and_keepers(support::lock_database& database) {
    auto& db = database.admin();
    const auto sessions = numbers_of(database.run("select id from rowlock_session"));
    const auto sleepers = support::processes(db, [&](const support::mysql_process& one) {
        return std::ranges::any_of(sessions, [&](std::int64_t session) {
            return one.statement.ends_with(" as rowlock_wake_" + std::to_string(session));
        });
    });
    numbers all;
    for (const auto& each : sleepers) {
        all.push_back(each.id);
        const auto name = each.statement.find('\'');
        const auto wait_lock = each.statement.substr(name, each.statement.find(',') - name);
        const auto keeper = db.query("select is_used_lock(" + wait_lock + ")", support::soon());
        if (!keeper.is_null(0, 0)) all.push_back(keeper.integer(0, 0));
    }
    return all;
}

}  // namespace

bool kill_a_listener(support::lock_database& database, unsigned choice) {
    if (database.speaks() == dialect::postgresql) {
        // The waiter loop's connection: the last statement was LISTEN, or one that only it runs.
        return kill_one(database,
                        "select pid from pg_stat_activity a where pid <> pg_backend_pid() and "
                        "((query ilike 'listen %' and exists (select from rowlock_session s "
                        "where position(s.id::text in a.query) > 0)) or "
                        "(query ~ '^/. rowlock (entries|deadlocks|served|grant_next|grant_counted|"
                        "names_with_waiters) ' "
                        "and query like '%rowlock_%'))",
                        choice);
    }
    if (database.speaks() == dialect::mysql) {
        return kill_one(database, sleepers_and_keepers(database), choice);
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

listener_killer::listener_killer(support::lock_database& database, unsigned seed,
                                 milliseconds shortest, milliseconds longest)
    : database_{database},
      random_{seed},
      pause_{shortest.count(), longest.count()},
      thread_{[this](const std::stop_token& over) {
          try {
              kill_until(over);
          } catch (const rowlock::error&) {
              unanswered_ = true;
          }
      }} {}

void listener_killer::kill_until(const std::stop_token& over) {
    while (!over.stop_requested()) {
        const bool found = kill_a_listener(database_, static_cast<unsigned>(random_()));
        if (found) ++killed_;
        const milliseconds pause{found ? pause_(random_) : 10};
        for (const auto next = steady_clock::now() + pause;
             steady_clock::now() < next && !over.stop_requested();) {
            std::this_thread::sleep_for(5ms);
        }
    }
}

}  // namespace stress

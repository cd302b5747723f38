// Waiting in a queue amid faults: servers that restart, processes that fork or stop, undeclared
// poolers, owners that return, forged notifications.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/failure.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/pgbouncer.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::eventually;
using support::interception;
using support::kind_of;
using support::nobody_holds;
using support::patience;
using support::places;
using support::soon;
using steady = std::chrono::steady_clock;

namespace {

/// A generous bound for "at once", where the next poll would be seconds away.
constexpr auto at_once = 8s;

}  // namespace

// --- the server ---------------------------------------------------------------------------------

namespace {

std::int64_t number(const sql::connection_source& source, const std::string& text) {
    return source.connect(soon())->query(text, soon()).integer(0, 0);
}

/// Waits until this server has that many tickets.
bool places(const sql::connection_source& source, std::int64_t count) {
    return eventually(
        [&] { return number(source, "select count(*) from rowlock_ticket") == count; });
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is the name of a variable
#define ROWLOCK_FOR_EACH_SERVER(server)                                                   \
    for (const auto which_ : {support::server::postgresql, support::server::mariadb})     \
        DOCTEST_SUBCASE(which_ == support::server::postgresql ? "PostgreSQL" : "MariaDB") \
    if (const auto server = support::own_server::start(which_))
// NOLINTEND(bugprone-macro-parentheses)

// shows: promise-9
TEST_CASE("a server that restarts or crashes keeps its queues, and waiters are served afterwards") {
    ROWLOCK_FOR_EACH_SERVER(server) {
        const auto source = open(server->url());
        migrate(source);
        client holder{source, {.ttl = 5min, .heartbeat = 20s}};
        client waiter{source, {.ttl = 5min, .heartbeat = 20s}};
        for (const bool crash : {false, true}) {
            CAPTURE(crash);
            auto held = holder.acquire("job");
            auto waiting =
                std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
            REQUIRE(places(source, 1));
            const auto polls = waiter.stats().polls;
            if (crash) {
                server->crash();
            } else {
                server->stop();
            }
            server->start_again();
            // The waiter has polled again, and goes on waiting.
            CHECK(eventually([&] { return waiter.stats().polls > polls + 1; }));
            CHECK(waiting.wait_for(0s) == std::future_status::timeout);
            CHECK(held.held());
            held.release();
            REQUIRE(waiting.wait_for(20s) == std::future_status::ready);
            auto got = waiting.get();
            CHECK(got.held());
            CHECK_FALSE(holder.try_acquire("job"));
            got.release();
            CHECK(places(source, 0));
        }
        CHECK(holder.stats().sessions == 1);
        CHECK(waiter.stats().sessions == 1);
    }
}

// shows: promise-9
ROWLOCK_SIMULATED_CASE(
    "a waiter that lost the reply to its enqueue enqueues again, if necessary in a new session",
    database) {
    interception network;
    client holder{database.source(), database.options({.ttl = 60s})};
    std::atomic<bool> over{false};
    client waiter{network.wrap(database.source()),
                  database.options({.ttl = 4s,
                                    .heartbeat = 300ms,
                                    .poll_interval = 10s,
                                    .on_event =
                                        [&](const event& what) {
                                            if (what.kind == event_kind::session_ended) {
                                                over = true;
                                            }
                                        },
                                    .retry = {.attempts = 100, .max_backoff = 100ms}})};
    waiter.try_acquire("other")->release();
    auto held = holder.acquire("job");
    // The server is unreachable from the enqueue until after the ttl.
    std::atomic<bool> away{false};
    network.before([&](std::string_view) {
        if (away) interception::refuse_to_send();
    });
    network.after([&](std::string_view what) {
        if (what != "enqueue" || waiter.stats().unknown_outcomes > 0) return;
        away = true;
        interception::lose_reply();
    });
    auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(eventually([&] { return waiter.stats().unknown_outcomes == 1; }));
    CHECK(places(database, 1));
    const bool was_over = eventually([&] { return over.load(); });
    away = false;
    CHECK(was_over);
    CHECK(eventually([&] { return waiter.stats().queued >= 1; }));
    CHECK(waiter.stats().sessions >= 2);  // a machine that stalls may cost the next one
    // The old session's entry may precede the new one, until that session is ended. It blocks
    // no waiter.
    const auto start = steady::now();
    held.release();
    CHECK(waiting.get().held());
    CHECK(steady::now() - start < at_once);
}

// shows: promise-9
TEST_CASE("a server that is down beyond the ttl ends a wait with when_cut_off::fail") {
    ROWLOCK_FOR_EACH_SERVER(server) {
        const auto source = open(server->url());
        migrate(source);
        client holder{source, {.ttl = 60s}};
        client waiter{source, {.ttl = 4s, .heartbeat = 300ms, .when_cut_off = when_cut_off::fail}};
        auto held = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] {
            try {
                static_cast<void>(acquire_soon(waiter, "job"));
                return std::pair{errc{}, std::string{}};
            } catch (const error& failure) {
                return std::pair{failure.kind(), std::string{failure.what()}};
            }
        });
        REQUIRE(places(source, 1));
        // The ticket is visible before its thread has the answer, and without the answer it has no
        // entry.
        REQUIRE(eventually([&] { return waiter.stats().queued == 1; }));
        server->stop();
        // The call fails while the server is down, by the client's own clock.
        CHECK(waiting.wait_for(4s + at_once) == std::future_status::ready);
        server->start_again();
        const auto ended = waiting.get();
        CAPTURE(ended.second);
        CHECK(ended.first == errc::lock_lost);
        held.release();
        // In a new session. The old entry blocks no waiter.
        CHECK(waiter.try_acquire_for("job", patience));
        CHECK(waiter.stats().sessions >= 2);
    }
}

// shows: fault-neighbouring-versions
TEST_CASE("a waiter behind a lease that its own client cannot release fails with the reason") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 1min, .heartbeat = 1s})};
        auto held = locks.acquire("job");
        // As if the tables were migrated down under the client: all statements but releases work.
        std::atomic<bool> outdated{true};
        network.before([&](std::string_view what) {
            const bool frees = what.starts_with("release") || what.starts_with("free_") ||
                               what == "hand_over" || what == "hand_over_to" ||
                               what == "next_waiter";
            if (outdated && frees) throw error{errc::schema_outdated, "a column is missing"};
        });
        CHECK(kind_of([&] { held.release(); }) == errc::schema_outdated);
        CHECK(kind_of([&] { static_cast<void>(locks.try_acquire_for("job", patience)); }) ==
              errc::schema_outdated);
        // The client releases the abandoned lease once the tables are right.
        outdated = false;
        CHECK(locks.try_acquire_for("job", patience));
    }
}

// --- processes ----------------------------------------------------------------------------------

// shows: promise-9
TEST_CASE("a fork while threads wait: the child may not use the client, the parent is unhurt") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        std::optional<client> waiter{std::in_place, database.source(),
                                     database.options({.poll_interval = 5ms})};
        auto held = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(*waiter, "job"); });
        REQUIRE(places(database, 1));
        // The waiter loop is running, and may hold its mutex at the fork.
        for (int i = 0; i < 25; ++i) {
            const pid_t child = fork();
            if (child == 0) {
                alarm(60);  // a child that hangs is a failure, not a hang of this test
                int wrong = 0;
                const auto refused = [&](const std::function<void()>& action) {
                    return kind_of(action) == errc::wrong_process;
                };
                if (!refused([&] { static_cast<void>(waiter->acquire("job")); })) wrong |= 1;
                if (!refused([&] { static_cast<void>(waiter->try_acquire_for("x", 1s)); }))
                    wrong |= 2;
                waiter.reset();
                _exit(wrong);
            }
            int status = -1;
            waitpid(child, &status, 0);
            CHECK(WIFEXITED(status));
            CHECK(WEXITSTATUS(status) == 0);
        }
        CHECK(waiting.wait_for(0s) == std::future_status::timeout);
        CHECK(places(database, 1));
        const auto polls = waiter->stats().polls;
        CHECK(eventually([&] { return waiter->stats().polls > polls; }));
        held.release();
        REQUIRE(waiting.wait_for(20s) == std::future_status::ready);
        CHECK(waiting.get().held());
        CHECK(waiter->stats().sessions == 1);
        CHECK(waiter->stats().reconnects == 0);
    }
}

namespace {

/// Follows another clock until a chosen thread reads it. From then on it is ahead by `pause` for
/// all threads, as if that thread had been stopped for as long.
class clock_with_a_pause final : public time_source {
public:
    using clock = std::function<std::chrono::nanoseconds()>;

    clock_with_a_pause(clock time, std::chrono::nanoseconds pause)
        : time_{std::move(time)}, pause_{pause} {}

    [[nodiscard]] std::chrono::nanoseconds now() const noexcept override {
        if (std::this_thread::get_id() == stopped_.load()) passed_ = true;
        return time_() + (passed_ ? pause_ : 0ns);
    }
    [[nodiscard]] std::shared_ptr<void> on_advance(std::function<void()>) override {
        return nullptr;
    }
    void stop_at_next_look(std::thread::id which) { stopped_ = which; }
    [[nodiscard]] bool passed() const { return passed_; }

private:
    const clock time_;
    const std::chrono::nanoseconds pause_;
    std::atomic<std::thread::id> stopped_{};
    mutable std::atomic<bool> passed_{false};
};

/// Stops a thread between its grant and its return from acquire().
void stop_before_return(const sql::connection_source& source, client_options options,
                        clock_with_a_pause::clock time) {
    options.when_cut_off = when_cut_off::fail;
    const auto clock = std::make_shared<clock_with_a_pause>(std::move(time), 1min);
    client holder{source, options};
    options.time = clock;
    client waiter{source, options};
    auto held = holder.acquire("job");
    std::atomic<std::thread::id> thread{};
    std::string words;
    auto waiting = std::async(std::launch::async, [&] {
        thread = std::this_thread::get_id();
        try {
            return acquire_soon(waiter, "job").held() ? 'h' : 'n';
        } catch (const error& failure) {
            words = failure.what();
            return failure.kind() == errc::lock_lost ? 'l' : 'e';
        }
    });
    // The thread sleeps: it next reads the clock after its grant.
    REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
    clock->stop_at_next_look(thread);
    held.release();
    CHECK(waiting.get() == 'l');
    CHECK(clock->passed());
    CHECK(words.find("came too late") != std::string::npos);
    // The unreported grant goes to another client, and the waiter goes on in a new session.
    auto next = holder.try_acquire_for("job", patience);
    REQUIRE(next);
    next->release();
    CHECK(waiter.try_acquire_for("job", patience));
}

}  // namespace

// shows: promise-9
TEST_CASE("a thread that was stopped between its grant and its return reports no success") {
    SUBCASE("SQLite") {
        testing::database database;
        stop_before_return(database.source(), database.options(),
                           [&] { return database.clock().now(); });
    }
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        stop_before_return(database.source(), database.options(), [] {
            return std::chrono::nanoseconds{steady::now().time_since_epoch()};
        });
        CHECK(places(database, 0));
    }
}

// --- what stands before the database ------------------------------------------------------------

// An undeclared pooler is not fully supported: clients share the names of prepared statements, and
// detection may be wrong while the pooler is busy. A declared pooler has neither problem.
// shows: wake-ups
TEST_CASE("a waiter behind an undeclared transaction pooler is served") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto pooler = support::pgbouncer::start(support::pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    client holder{database.source(), database.options()};
    client waiter{database.at(pooler->url()), database.options({.poll_interval = 100ms})};
    const auto with_patience = [](const auto& action) {
        for (int attempt = 1;; ++attempt) {
            try {
                return action();
            } catch (const error& failure) {
                if (failure.sqlstate() != "42P05" || attempt == 20) throw;
            }
        }
    };
    for (int i = 0; i < 3; ++i) {
        auto held = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] {
            return with_patience([&] { return waiter.try_acquire_for("job", 20s); });
        });
        REQUIRE(places(database, 1));
        const auto polls = waiter.stats().polls;
        CHECK(eventually([&] { return waiter.stats().polls > polls + 2; }));
        held.release();
        auto got = waiting.get();
        REQUIRE(got);
        CHECK(got->held());
        CHECK_FALSE(holder.try_acquire("job"));
        with_patience([&] { got->release(); });
    }
}

// --- owners that come back ----------------------------------------------------------------------

namespace {

/// Leaves what a crashed process of this owner leaves: a live session without heartbeats.
void leave_behind(support::lock_database& database, const std::string& owner, std::int64_t id) {
    database.protocol().sessions().open(*database.connect(),
                                        {session_id{id}, owner, "host", "program", 1, 60s}, soon());
}

}  // namespace

// shows: promise-9
TEST_CASE("a returning owner reclaims its leases past the queue, which is served later") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        leave_behind(database, "worker 1", 7);
        REQUIRE(database.protocol()
                    .acquire(*database.connect(),
                             {"kept", session_id{7}, grant_id{70}, "", "", std::nullopt}, soon())
                    .what == protocol::attempt::outcome::granted);
        client other{database.source(), database.options({.poll_interval = 10s})};
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(other, "kept"); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return other.stats().polls > 0; }));

        client back{database.source(), database.options({.owner = "worker 1"})};
        auto reclaimed = back.reclaim().leases;
        REQUIRE(reclaimed.size() == 1);
        CHECK(reclaimed.front().name() == "kept");
        CHECK(reclaimed.front().held());
        // The waiter's entry remains, at a lease with another holder and another token.
        CHECK(waiting.wait_for(100ms) == std::future_status::timeout);
        CHECK(places(database, 1));
        const auto token = reclaimed.front().token();
        const auto start = steady::now();
        reclaimed.front().release();
        const auto got = waiting.get();
        CHECK(steady::now() - start < at_once);
        CHECK(got.held());
        CHECK(got.token() > token);
    }
}

// shows: promise-9
TEST_CASE(
    "a returning owner deletes its old session's queue entries, and waiters behind them are "
    "served") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        auto held = holder.acquire("job");
        leave_behind(database, "worker 1", 7);
        database.queue().enqueue(*database.connect(),
                                 {"job", session_id{7}, grant_id{70}, "", "", std::nullopt},
                                 soon());
        client other{database.source(), database.options({.poll_interval = 10s})};
        auto behind = std::async(std::launch::async, [&] { return acquire_soon(other, "job"); });
        REQUIRE(places(database, 2));

        client back{database.source(), database.options({.owner = "worker 1"})};
        CHECK(back.reclaim().leases.empty());
        // It queues behind later arrivals: the old entry belongs to the old session.
        auto again = std::async(std::launch::async, [&] { return acquire_soon(back, "job"); });
        REQUIRE(eventually([&] { return back.stats().queued == 1; }));
        const auto start = steady::now();
        held.release();
        auto got = behind.get();
        CHECK(got.held());
        CHECK(again.wait_for(100ms) == std::future_status::timeout);
        got.release();
        CHECK(again.get().held());
        CHECK(steady::now() - start < at_once);
        CHECK(places(database, 0));  // reclaim() ended the old session, and deleted its entry
    }
}

// --- what a release does first ------------------------------------------------------------------

ROWLOCK_SIMULATED_CASE(
    "a lease that was waited for is released with a hand-over first, another one without",
    database) {
    interception network;
    std::mutex guard;
    std::vector<std::string> releases;
    network.before([&](std::string_view what) {
        const std::lock_guard lock{guard};
        for (const auto* each : {"release_unwaited", "release", "hand_over", "next_waiter"}) {
            if (what == each) releases.emplace_back(what);
        }
    });
    client releaser{network.wrap(database.source()), database.options()};
    client other{database.source(), database.options()};
    std::optional<lease> mine;
    bool in_line = false;
    SUBCASE("waited for") {
        in_line = true;
        auto theirs = other.acquire("job");
        auto waiting =
            std::async(std::launch::async, [&] { mine = acquire_soon(releaser, "job"); });
        REQUIRE(places(database, 1));
        theirs.release();
        waiting.get();
    }
    SUBCASE("control: granted at once") {
        mine = releaser.acquire("job");
    }
    // Longer than a client remembers that a name was contended.
    std::this_thread::sleep_for(1100ms);
    auto behind =
        std::async(std::launch::async, [&] { return other.try_acquire_for("job", patience); });
    REQUIRE(places(database, 1));
    {
        const std::lock_guard lock{guard};
        releases.clear();
    }
    mine->release();
    CHECK(behind.get());
    const std::lock_guard lock{guard};
    REQUIRE_FALSE(releases.empty());
    const bool looked_first = releases.front() == "hand_over" || releases.front() == "next_waiter";
    CHECK(looked_first == in_line);
}

// --- statements that the server does not end -----------------------------------------------------

namespace {

/// Processes of a server that are stopped, so that no cancel ends what they run.
class stopped_processes {
public:
    stopped_processes() = default;
    stopped_processes(const stopped_processes&) = delete;
    stopped_processes& operator=(const stopped_processes&) = delete;
    ~stopped_processes() { go_on(); }

    /// Does nothing if it has ended since it was seen.
    void stop(std::int64_t process) {
        if (kill(static_cast<pid_t>(process), SIGSTOP) != 0) {
            REQUIRE(errno == ESRCH);
            return;
        }
        all_.push_back(static_cast<pid_t>(process));
    }
    /// It is not stopped any more, and does not count.
    void release_last() {
        kill(all_.back(), SIGCONT);
        all_.pop_back();
    }
    void go_on() {
        for (const auto each : std::exchange(all_, {})) kill(each, SIGCONT);
    }
    [[nodiscard]] std::size_t count() const { return all_.size(); }
    [[nodiscard]] bool contains(std::int64_t process) const {
        return std::ranges::find(all_, static_cast<pid_t>(process)) != all_.end();
    }

private:
    std::vector<pid_t> all_{};
};

/// Waits for one that waits for a lock, and is not among those.
std::optional<std::int64_t> waiting_process(
    sql::connection& watching, const stopped_processes& but,
    const std::function<bool()>& ended = [] { return false; }) {
    std::optional<std::int64_t> found;
    const auto look = [&] {
        const auto rows = watching.query(
            "select pid from pg_stat_activity where wait_event_type = 'Lock' and state = 'active'",
            soon());
        for (std::size_t row = 0; row < rows.rows() && !found; ++row) {
            if (!but.contains(rows.integer(row, 0))) found = rows.integer(row, 0);
        }
        return found.has_value() || ended();
    };
    REQUIRE(eventually(look));
    return found;
}

/// The client gives up as many statements as it may have connections for its calls, and two. The
/// server still runs them.
/// @param locks has one connection for its calls
void abandon_calls(client& locks, const sql::connection_source& admin, sql::connection& watching,
                   stopped_processes& stopped) {
    const auto blocker = admin.connect(soon());
    blocker->query("begin", soon());
    blocker->query("lock table rowlock_ticket in access exclusive mode", soon());
    while (stopped.count() < 3) {
        auto asking = std::async(std::launch::async, [&] {
            return kind_of([&] { static_cast<void>(locks.inspect("job")); });
        });
        const auto process = *waiting_process(watching, stopped);
        const auto before = stopped.count();
        stopped.stop(process);
        // On a slow machine its client, or the server, may have ended its statement before.
        const bool waits =
            !watching
                 .query("select 1 from pg_stat_activity where pid = " + std::to_string(process) +
                            " and wait_event_type = 'Lock' and state = 'active'",
                        soon())
                 .empty();
        CHECK(asking.get() != errc{});
        if (!waits && stopped.count() > before) stopped.release_last();
    }
    blocker->query("rollback", soon());
}

}  // namespace

TEST_CASE("a server that ends no statement gets no more than some connections of a client") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const auto source = open(server->url());
    migrate(source);
    client locks{source,
                 {.ttl = 5min,
                  .wake_ups = wakeup_mode::polling,
                  .statement_timeout = 600ms,
                  .max_connections = 1,
                  .retry = {.attempts = 1}}};
    const auto held = locks.acquire("job");
    const auto blocker = source.connect(soon());
    blocker->query("begin", soon());
    blocker->query("lock table rowlock_lock in access exclusive mode", soon());
    const auto watching = source.connect(soon());  // a transaction sees pg_stat_activity once
    stopped_processes stopped;
    const auto inspect = [&] { return kind_of([&] { static_cast<void>(locks.inspect("job")); }); };
    auto last = errc::timed_out;
    for (int i = 0; i < 12 && last != errc::out_of_resources; ++i) {
        auto asking = std::async(std::launch::async, inspect);
        const auto process =
            waiting_process(*watching, stopped, [&] { return support::has_ended(asking); });
        if (process) stopped.stop(*process);
        last = asking.get();
    }
    CHECK(last == errc::out_of_resources);
    CHECK(stopped.count() >= 3);  // max_connections, and two;
    CHECK(stopped.count() <= 5);  // those of heartbeats have two more
    CHECK(held.held());
    blocker->query("rollback", soon());
    stopped.go_on();
    CHECK(eventually([&] { return locks.stats().held == 1 && inspect() == errc{}; }));
}

TEST_CASE("a role that may not read pg_stat_activity connects although the server ends nothing") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const auto admin = open(server->url());
    migrate(admin);
    const auto watching = admin.connect(soon());
    watching->query("create role lowly login password 'lowly'", soon());
    watching->query("grant all on all tables in schema public to lowly", soon());
    watching->query("revoke select on pg_stat_activity from public", soon());
    auto url = server->url();
    const auto user = url.find("//") + 2;
    url.replace(user, url.find('@') - user, "lowly:lowly");
    client locks{open(url),
                 {.ttl = 5min,
                  .wake_ups = wakeup_mode::polling,
                  .statement_timeout = 600ms,
                  .max_connections = 1,
                  .retry = {.attempts = 1}}};
    const auto held = locks.acquire("job");
    stopped_processes stopped;
    abandon_calls(locks, admin, *watching, stopped);
    CHECK(eventually(
        [&] { return kind_of([&] { static_cast<void>(locks.inspect("job")); }) == errc{}; }));
    CHECK(held.held());
}

TEST_CASE("the second heartbeat may have more connections than calls if the server ends nothing") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const auto source = open(server->url());
    migrate(source);
    std::atomic<int> refused{0};
    client locks{source,
                 {.ttl = 1min,
                  .heartbeat = 400ms,
                  .wake_ups = wakeup_mode::polling,
                  .statement_timeout = 1s,
                  .max_connections = 1,
                  .on_event =
                      [&](const event& what) {
                          if (what.kind == event_kind::heartbeat_failed &&
                              what.message.find("no further connection") != std::string::npos) {
                              ++refused;
                          }
                      },
                  .retry = {.attempts = 1}}};
    const auto held = locks.acquire("job");
    const auto watching = source.connect(soon());
    stopped_processes stopped;
    abandon_calls(locks, source, *watching, stopped);
    REQUIRE(kind_of([&] { static_cast<void>(locks.inspect("job")); }) == errc::out_of_resources);
    const auto before = locks.stats().heartbeats;
    const auto others = watching->query(
        "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> "
        "pg_backend_pid()",
        soon());
    for (std::size_t row = 0; row < others.rows(); ++row) {
        if (!stopped.contains(others.integer(row, 0))) stopped.stop(others.integer(row, 0));
    }
    REQUIRE(stopped.count() > 3);  // the first heartbeat's
    CHECK(eventually([&] { return locks.stats().heartbeats > before + 1; }));
    CHECK(refused == 0);
    CHECK(held.held());
}

// --- a queue of notifications that is full -------------------------------------------------------

namespace {

/// A server that can take up no notification: a commit that notifies fails, which undoes it.
class full_server {
public:
    explicit full_server(const support::lock_database& database)
        : source{network.wrap(database.source())} {}

    /// From now on.
    void refuse_notifications() {
        network.before([this](std::string_view what) {
            const std::size_t wants = what == "grant_next"     ? 2
                                      : what == "hand_over"    ? 5
                                      : what == "hand_over_to" ? 13
                                                               : 0;
            const bool notifies = wants != 0 ? interception::parameter(wants) == 1
                                             : what.starts_with("select pg_notify(");
            if (!notifies) return;
            const std::lock_guard lock{guard_};
            refused_.emplace(what);
            throw error{errc::database_error,
                        "too many notifications in the NOTIFY queue",
                        {.sqlstate = "54000", .native_code = 0, .message = {}}};
        });
    }
    /// The statements that failed.
    std::set<std::string> refused() {
        const std::lock_guard lock{guard_};
        return refused_;
    }

    interception network{};
    const sql::connection_source source;

private:
    std::mutex guard_{};
    std::set<std::string> refused_{};
};

}  // namespace

// shows: promise-9
TEST_CASE("a lease is handed over although the server's queue of notifications is full") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql,
                             support::backend::soci_postgresql) {
        full_server server{database};
        server.refuse_notifications();
        const auto options =
            database.options({.poll_interval = 100ms, .wake_ups = wakeup_mode::database});
        client first{server.source, options};
        client second{server.source, options};
        client third{server.source, options};
        auto held = first.acquire("job");
        auto to_second =
            std::async(std::launch::async, [&] { return acquire_soon(second, "job"); });
        REQUIRE(places(database, 1));
        auto to_third = std::async(std::launch::async, [&] { return acquire_soon(third, "job"); });
        REQUIRE(places(database, 2));
        held.release();
        auto theirs = to_second.get();
        theirs.release();  // the waiter behind it may be known already
        CHECK(to_third.get().held());

        // What is freed without a hand-over is granted by whoever looks.
        const auto taken = third.acquire("other");
        auto after_force =
            std::async(std::launch::async, [&] { return acquire_soon(second, "other"); });
        REQUIRE(places(database, 1));
        CHECK(first.force_release("other", taken.token()));
        CHECK(after_force.get().held());
        const auto asked_for = third.acquire("asked for");
        CHECK(first.request_release("asked for", asked_for.token()));
        CHECK(server.refused().contains("grant_next"));
        CHECK(server.refused().contains("hand_over"));
    }
}

TEST_CASE("each statement that notifies is repeated without it where the queue is full") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql,
                             support::backend::soci_postgresql) {
        full_server server{database};
        const support::protocol_connection hand{server.source};
        for (const auto each : {session_id{1}, session_id{2}, session_id{3}}) {
            hand.open(each, {.wake = {.number = 7, .secret = std::string(32, 'a')}});
        }
        const auto is_for = [](const std::optional<protocol::handed_over>& next, grant_id whom) {
            REQUIRE(next);
            CHECK(next->grant_id == whom);
            CHECK(next->granted());
            CHECK_FALSE(next->woken);  // a datagram may reach it
            CHECK(next->to.number == 7);
        };
        REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{11}));
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{33});
        hand.enqueue("job", session_id{2}, grant_id{44});
        server.refuse_notifications();
        is_for(hand.release("job", session_id{1}, grant_id{11}).next, grant_id{22});
        const auto seen = hand.confirm_and_read_next("job", session_id{2}, grant_id{22});
        REQUIRE(seen);
        REQUIRE(seen->next);
        is_for(hand.hand_over_to("job", session_id{2}, grant_id{22}, *seen->next), grant_id{33});
        hand.end(session_id{3});
        is_for(hand.grant_next("job"), grant_id{44});
        CHECK(server.refused() == std::set<std::string>{"hand_over", "hand_over_to", "grant_next"});
    }
}

// --- forged notifications -----------------------------------------------------------------------

namespace {

/// Sends a notification to the waiters of this test's tables, as any connection can.
void shout(support::lock_database& database, const std::string& payload) {
    database.run("select pg_notify('rowlock_' || wake_address, '" + payload +
                 "') from rowlock_session");
}

/// Sends a notification with the proof that a reader of rowlock's tables can compute.
void shout_proved(support::lock_database& database, grant_id grant_id, std::int64_t token) {
    const auto session = database.number(
        "select max(session) from rowlock_ticket where grant_id = " + to_string(grant_id));
    const auto to = support::address_of(database, session_id{session});
    shout(database, wakeup::encode_wakeup({grant_id, token}, to.secret));
}

}  // namespace

TEST_CASE("malformed notifications are ignored, and the queue goes on") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options({.poll_interval = 10s})};
    auto held = holder.acquire("job");
    auto waiting =
        std::async(std::launch::async, [&] { return waiter.try_acquire_for("job", patience); });
    REQUIRE(places(database, 1));
    REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
    // Until it listens it polls as it does behind a pooler.
    const auto channel = wakeup::notification_channel(support::address_of(
        database, session_id{database.number("select session from rowlock_ticket")}));
    REQUIRE(eventually([&] {
        return database.number("select count(*) from pg_stat_activity where query like 'listen %" +
                               channel + "%' and state = 'idle'") > 0;
    }));
    const auto number = database.number("select grant_id from rowlock_ticket");
    const auto grant = std::to_string(number);
    const std::string guess(32, '0');
    const auto polls = waiter.stats().polls;
    for (const std::string& payload :
         {std::string{" "}, std::string{"x"}, std::string{"1"}, grant, grant + " ", grant + " x",
          grant + " 1x", grant + "  1", " " + grant + " 1", grant + "x 1",
          grant + " 99999999999999999999", std::string{"99999999999999999999 1"},
          std::string{"7 1"}, std::string(7000, '9'), grant + " 1 0", grant + " 1 2 " + guess,
          grant + " 1 0 " + guess, wakeup::encode_wakeup({grant_id{number}, 1}, guess),
          std::string{}}) {
        CAPTURE(payload);
        shout(database, payload);
        CHECK(waiting.wait_for(20ms) == std::future_status::timeout);
    }
    CHECK(waiter.stats().wake_ups == 0);
    CHECK(waiter.stats().polls <= polls + 2);  // when it begins to listen; they cause none
    CHECK(held.held());
    const auto start = steady::now();
    held.release();
    CHECK(waiting.get());
    CHECK(steady::now() - start < at_once);
}

// shows: wake-ups
TEST_CASE(
    "a grant that a reader of rowlock's tables forges is believed only until it is verified") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    // The verification comes after the call has returned: on a busy machine it may refute the grant
    // before, and the call waits on.
    std::atomic<bool> returned{false};
    interception network;
    network.before([&](std::string_view name) {
        if (name == "confirm_and_read_next") CHECK(eventually([&] { return returned.load(); }));
    });
    client holder{database.source(), database.options()};
    client waiter{network.wrap(database.source()), database.options({.poll_interval = 10s})};
    client next{database.source(), database.options({.poll_interval = 10s})};
    auto held = holder.acquire("job");
    std::optional<std::chrono::milliseconds> max_duration;
    SUBCASE("a lease without a deadline") {}
    SUBCASE("a lease with a deadline, which no notification contains") {
        max_duration = 20s;
        returned = true;
    }
    auto waiting = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("job", patience, {.max_duration = max_duration});
    });
    REQUIRE(places(database, 1));
    REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
    const auto forged = database.number("select grant_id from rowlock_ticket");
    auto behind =
        std::async(std::launch::async, [&] { return next.try_acquire_for("job", patience); });
    REQUIRE(places(database, 2));

    shout_proved(database, grant_id{forged}, held.token().value() + 1);
    if (max_duration) {
        CHECK(waiting.wait_for(200ms) == std::future_status::timeout);
    } else {
        auto believed = waiting.get();
        REQUIRE(believed);
        CHECK(believed->held());
        returned = true;
        CHECK(eventually([&] { return !believed->held(); }, at_once));
        CHECK(eventually([&] { return believed->lost().stop_requested(); }, at_once));
        CHECK(kind_of([&] { believed->release(); }) == errc::lock_lost);
        // The thread that waited has returned, so the client deletes its entry.
        CHECK(places(database, 1));
        CHECK(waiter.stats().held == 0);
    }
    CHECK(held.held());
    CHECK(behind.wait_for(0s) == std::future_status::timeout);
    held.release();
    if (max_duration) {
        auto got = waiting.get();
        REQUIRE(got);
        CHECK(got->held());
        got->release();
    }
    REQUIRE(behind.wait_for(at_once) == std::future_status::ready);
    CHECK(behind.get());
    CHECK(places(database, 0));
}

// shows: wake-ups
TEST_CASE("a notification with a wrong token is detected, although the grant is real") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    // The verification comes after the call has returned: on a busy machine it may refute the token
    // before, and the call waits on.
    std::atomic<bool> returned{false};
    interception network;
    network.before([&](std::string_view name) {
        if (name == "confirm_and_read_next") CHECK(eventually([&] { return returned.load(); }));
    });
    client holder{database.source(), database.options()};
    client waiter{network.wrap(database.source()), database.options({.poll_interval = 10s})};
    auto held = holder.acquire("job");
    // The forged token would pass every later fence. The release is still uncommitted meanwhile. A
    // connection of the caller's: one of a client's would end an idle transaction after 5 s.
    const auto db = database.source().connect(soon());
    db->query("begin", soon());
    release_on_commit(*db, held, {.max_idle = 5min});
    auto waiting =
        std::async(std::launch::async, [&] { return waiter.try_acquire_for("job", patience); });
    REQUIRE(places(database, 1));
    REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
    shout_proved(database, grant_id{database.number("select grant_id from rowlock_ticket")},
                 4000000000000000000);
    auto believed = waiting.get();
    returned = true;
    REQUIRE(believed);
    CHECK(eventually([&] { return !believed->held(); }, at_once));
    believed.reset();  // the holder has stopped, so no margin remains
    db->query("commit", soon());
    CHECK(nobody_holds(database));
    CHECK(places(database, 0));
    auto got = waiter.try_acquire_for("job", 2 * at_once);
    REQUIRE(got);
    CHECK(got->token().value() < 100);
}

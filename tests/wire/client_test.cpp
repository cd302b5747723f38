// The client as a whole: loss and its signal, callbacks that misbehave, fork(), dead networks.

#include "lock/client/engine.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/child.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/server_address.hpp"
#include "support/servers.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;

namespace {

void cut(interception& network) {
    network.before([](std::string_view) { interception::refuse_to_send(); });
}

}  // namespace

// shows: promise-5
ROWLOCK_SIMULATED_CASE(
    "without a network held() turns false and lost() fires before the lease can pass on",
    database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 12s, .heartbeat = 500ms, .margin = 8s})};
    const auto lease = locks.acquire("job");
    const auto lost = lease.lost();
    std::promise<bool> still_ours;
    const std::stop_callback on_loss{
        lost, [&] {
            // By the database's clock the session has not expired yet, so no other client can
            // have the lease.
            const bool postgresql = database.speaks() == sql::dialect::postgresql;
            still_ours.set_value(
                !lease.held() &&
                database.number(postgresql
                                    ? "select count(*) from rowlock_session where expires_at > "
                                      "clock_timestamp()"
                                : database.speaks() == sql::dialect::mysql
                                    ? "select count(*) from rowlock_session where expires_at > "
                                      "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
                                    : "select count(*) from rowlock_session where expires_at > "
                                      "(julianday('now') - 2440587.5) * 86400000000") == 1);
        }};
    auto seen = still_ours.get_future();
    cut(network);
    REQUIRE(seen.wait_for(20s) == std::future_status::ready);
    CHECK(seen.get());
    CHECK(locks.stats().lost == 1);

    // It stays lost when the network is back; a new acquire opens a new session.
    network.before({});
    const auto again = locks.try_acquire_for("job", support::patience);
    REQUIRE(again);
    CHECK_FALSE(lease.held());
    CHECK(again->held());
    CHECK(again->token() > lease.token());
    CHECK(locks.stats().sessions == 2);
}

TEST_CASE("a short-lived client opens one connection and leaves no session behind") {
    constexpr int at_best = 20;  // a busy machine may take longer
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        int fewest = 1000;
        for (int i = 0; i < at_best && fewest > 1; ++i) {
            interception network;
            std::atomic<int> made{0};
            network.before([&](std::string_view what) { made += what == "connect" ? 1 : 0; });
            {
                client locks{network.wrap(database.source()), database.options()};
                locks.acquire("job").release();
            }
            CHECK(database.number("select count(*) from rowlock_session") == 0);
            fewest = std::min<int>(fewest, made);
        }
        CHECK(fewest == 1);
    }
}

// Not on SQLite, where no enqueue can overlap a release.
TEST_CASE("a destroyed client serves a waiter that enqueued during its last release") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto& queue = database.queue();
        const auto other = database.connect();
        constexpr session_id session{7};
        constexpr rowlock::grant_id grant_id{70};
        protocol.sessions().open(*other, {session, "other", "host", "program", 1, 60s},
                                 support::soon());
        const auto held_by_other = [&] {
            return database.number(
                "select count(*) from rowlock_lock where name = 'job' and "
                "session = 7 and grant_id = 70");
        };
        interception network;
        const auto main = std::this_thread::get_id();
        network.before([&](std::string_view what) {
            // The background check that follows each release fails.
            if (std::this_thread::get_id() != main && what != "connect") {
                interception::refuse_to_send();
            }
        });
        {
            client locks{network.wrap(database.source()), database.options()};
            locks.acquire("job").release();
            // Enqueued after the release's snapshot, by a client that dies before its own poll.
            queue.enqueue(*other, {"job", session, grant_id, "1", "", std::nullopt},
                          support::soon());
            CHECK(held_by_other() == 0);
        }
        CHECK(held_by_other() == 1);
        CHECK(database.number("select count(*) from rowlock_session") == 1);
    }
}

TEST_CASE("the heartbeat's connection is opened long before it is needed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        std::atomic<int> made{0};
        network.before([&](std::string_view what) { made += what == "connect" ? 1 : 0; });
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 600s, .max_connections = 1})};
        const auto lease = locks.acquire("job");
        CHECK(eventually([&] { return made == 2; }));
        CHECK(locks.stats().heartbeats == 0);
    }
}

ROWLOCK_SIMULATED_CASE(
    "a lost session without a holder ends with the outage: no client waits for its ttl", database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 30s, .heartbeat = 100ms, .margin = 29700ms})};
    std::optional<lease> held{locks.acquire("job")};
    cut(network);
    REQUIRE(eventually([&] { return !held->held(); }));
    held.reset();  // the holder has stopped
    network.before({});
    client other{database.source(), database.options({.poll_interval = 10ms})};
    const auto start = std::chrono::steady_clock::now();
    CHECK(other.try_acquire_for("job", 20s));
    CHECK(std::chrono::steady_clock::now() - start < 15s);
}

// shows: promise-5
ROWLOCK_SIMULATED_CASE(
    "a callback that blocks delays neither heartbeats nor another lease's signal", database) {
    interception network;
    std::promise<void> let_go;
    auto blocked = let_go.get_future().share();
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 6s, .heartbeat = 200ms, .on_event = [&](const event&) {
                                       blocked.wait();
                                   }})};
    const auto a = locks.acquire("a");
    const auto b = locks.acquire("b");
    const auto c = locks.acquire("c");
    const auto a_lost = a.lost();
    const auto b_lost = b.lost();
    const auto c_lost = c.lost();
    std::atomic<int> entered{0};
    const std::stop_callback stuck_a{a_lost, [&] {
                                         ++entered;
                                         blocked.wait();
                                     }};
    const std::stop_callback stuck_b{b_lost, [&] {
                                         ++entered;
                                         blocked.wait();
                                     }};
    const std::stop_callback stuck_c{c_lost, [&] {
                                         ++entered;
                                         blocked.wait();
                                     }};

    const auto beats = locks.stats().heartbeats;
    CHECK(eventually([&] { return locks.stats().heartbeats > beats + 2; }));  // events are stuck
    cut(network);
    CHECK(eventually([&] { return entered == 3; }));
    let_go.set_value();
}

TEST_CASE("an exception of an event callback is caught, and the next event still arrives") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    std::atomic<int> events{0};
    client locks{database.source(), database.options({.on_event = [&](const event&) {
                     ++events;
                     throw std::runtime_error{"the user's"};
                 }})};
    locks.acquire("job").release();
    CHECK(eventually([&] { return events >= 3; }));  // session opened, acquired, released
}

// shows: fault-slow-callback
TEST_CASE("a slow event callback loses the oldest events, and events_dropped reports it") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    std::promise<void> let_go;
    auto blocked = let_go.get_future().share();
    std::atomic<int> dropped{0};
    client locks{database.source(), database.options({.on_event = [&](const event& what) {
                     if (what.kind == event_kind::events_dropped) ++dropped;
                     blocked.wait();
                 }})};
    for (int i = 0; i < 700; ++i) locks.acquire("job").release();
    let_go.set_value();
    CHECK(eventually([&] { return dropped == 1; }));
}

// shows: fork
TEST_CASE("a forked child neither renews nor releases its parent's leases") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client other{database.source(), database.options()};
        std::optional<client> locks{std::in_place, database.source(), database.watchful()};
        std::optional<lease> held = locks->acquire("job");
        CHECK(support::exit_of_child([&] {
                  int wrong = 0;
                  if (held->held()) wrong |= 1;
                  if (kind_of([&] { static_cast<void>(locks->try_acquire("other")); }) !=
                      errc::wrong_process)
                      wrong |= 2;
                  if (kind_of([&] { held->release(); }) != errc::wrong_process) wrong |= 4;
                  held.reset();
                  locks.reset();  // closes none of the parent's sockets, joins none of its threads
                  return wrong;
              }) == 0);
        CHECK(held->held());
        CHECK_FALSE(other.try_acquire("job"));
        const auto beats = locks->stats().heartbeats;
        CHECK(eventually([&] { return locks->stats().heartbeats > beats; }));
        CHECK(locks->stats().heartbeat_failures == 0);
        held->release();
        CHECK(other.try_acquire("job"));
    }
}

namespace {

/// Keeps the heartbeat's thread inside due(), which it calls with a mutex of the client locked.
class slow_part : public detail::engine_part {
public:
    explicit slow_part(detail::engine& /*of*/) {}
    [[nodiscard]] std::chrono::nanoseconds due() const override {
        entered = true;
        blocks.wait(true);
        return base::alarm::never;
    }
    static inline std::atomic<bool> blocks{false}, entered{false};
};

}  // namespace

// shows: fork
TEST_CASE("in a forked child no call waits for a thread that only the parent has") {
    ROWLOCK_FOR_A_CLIENT(database) {
        const auto core = detail::engine::make(database.source(), database.watchful());
        const auto held = core->acquires().acquire(
            lock_name{"job"}, std::chrono::steady_clock::time_point::max(), {}, {});
        static_cast<void>(core->part<slow_part>());
        slow_part::entered = false;
        slow_part::blocks = true;
        core->poke();
        REQUIRE(eventually([] { return slow_part::entered.load(); }));
        CHECK(support::exit_of_child([&] {
                  const auto kind = kind_of([&] { static_cast<void>(core->part<slow_part>()); });
                  return kind == errc::wrong_process ? 0 : 1;
              }) == 0);
        slow_part::blocks = false;
        slow_part::blocks.notify_all();
        core->close();

        client other{database.source(), database.options()};
        auto writing = shared_mutex{other, "page"}.acquire(lock_mode::exclusive);
        client locks{database.source(), database.options()};
        std::optional<shared_mutex> page{std::in_place, locks, "page"};
        mutex alone{locks, "alone"};
        alone.lock();
        const auto db = database.connect();
        const auto read = [&] {
            page->lock_shared();
            page->unlock_shared();
        };
        std::jthread first{read};
        REQUIRE(eventually([&] { return locks.stats().waiting == 1; }));
        std::jthread second{read};  // waits for what the first one gets
        std::this_thread::sleep_for(20ms);
        CHECK(support::exit_of_child([&] {
                  const auto refused = [](const std::function<void()>& call) {
                      return kind_of(call) == errc::wrong_process;
                  };
                  int wrong = 0;
                  if (!refused([&] { page->lock_shared(); })) wrong |= 1;
                  if (!refused([&] { static_cast<void>(page->try_lock()); })) wrong |= 2;
                  if (!refused([&] { alone.lock(); })) wrong |= 4;
                  if (!refused([&] { alone.release(); })) wrong |= 8;
                  if (alone.held() || alone.token() != fencing_token{}) wrong |= 16;
                  if (!refused([&] { static_cast<void>(locks.holds("alone")); })) wrong |= 32;
                  if (!refused([&] { fence(*db, alone); })) wrong |= 64;
                  alone.unlock();
                  page.reset();  // its readers of the parent still wait
                  return wrong;
              }) == 0);
        CHECK(alone.held());
        alone.unlock();
        writing.release();
    }
}

// The case below runs this one in its own process. It holds a lease and reports on standard output.
TEST_CASE("helper: a holder that will be stopped" * doctest::skip()) {
    const auto say = [](char what) { static_cast<void>(!write(STDOUT_FILENO, &what, 1)); };
    const char* url = getenv("ROWLOCK_TEST_URL");
    const char* prefix = getenv("ROWLOCK_TEST_PREFIX");
    REQUIRE(url != nullptr);
    REQUIRE(prefix != nullptr);
    client locks{open(url).with_tables({.prefix = prefix}), {.ttl = 3s}};
    const auto lease = locks.acquire("job");
    auto last = std::chrono::steady_clock::now();  // before the report, after which the test may
                                                   // stop this process
    say(lease.held() ? 'h' : '?');
    for (;;) {
        const auto now = std::chrono::steady_clock::now();
        if (now - last > 3200ms) break;  // the process was stopped here
        last = now;
    }
    const auto woke = std::chrono::steady_clock::now();
    say(lease.held() ? 'B' : 'n');  // the first check after SIGCONT
    const bool told = eventually([&] { return lease.lost().stop_requested(); });
    say(told && std::chrono::steady_clock::now() - woke < 12s ? 'y' : 'N');
}

// shows: promise-5
TEST_CASE(
    "a continued process knows of its loss at once, and the next holder came within ttl and a "
    "poll") {
    ROWLOCK_FOR_A_CLIENT(database) {
        int told[2];
        REQUIRE(pipe2(told, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, told[1], STDOUT_FILENO);
        setenv("ROWLOCK_TEST_URL", database.url().c_str(), 1);
        setenv("ROWLOCK_TEST_PREFIX", database.prefix().c_str(), 1);
        std::string program = "/proc/self/exe";
        std::string name = "-tc=helper: a holder that will be stopped";
        std::string options = "-ns";
        std::string quiet = "-o=/dev/null";
        char* arguments[] = {program.data(), name.data(), options.data(), quiet.data(), nullptr};
        pid_t holder = 0;
        REQUIRE(posix_spawn(&holder, program.c_str(), &actions, nullptr, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        close(told[1]);
        const auto hear = [&] {
            char said = 0;
            return read(told[0], &said, 1) == 1 ? said : '-';
        };

        CHECK(hear() == 'h');
        kill(holder, SIGSTOP);
        const auto stopped = std::chrono::steady_clock::now();
        client next{database.source(), database.options({.poll_interval = 200ms})};
        const auto lease = next.try_acquire_for("job", 20s);
        CHECK(lease);
        CHECK(std::chrono::steady_clock::now() - stopped < 3s + 200ms + 9s);
        std::this_thread::sleep_until(stopped + 3500ms);  // longer than any pause of a busy machine
        kill(holder, SIGCONT);
        CHECK(hear() == 'n');
        CHECK(hear() == 'y');
        CHECK((lease && lease->held()));
        int status = -1;
        waitpid(holder, &status, 0);
        CHECK(status == 0);
        close(told[0]);
    }
}

// shows: promise-11
TEST_CASE("on a silent network a lease is lost in time, and no call hangs") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto backend = which == support::server::postgresql ? support::backend::postgresql
                                                                  : support::backend::mariadb;
        DOCTEST_SUBCASE(support::to_string(backend)) {
            if (support::lock_database database{backend}; database.there()) {
                auto address = contract::address_of(which);
                support::tcp_relay relay{address.port};
                address.port = relay.port();
                address.host = "127.0.0.1";
                client locks{database.at(address.url()),
                             database.options({.ttl = 3s, .statement_timeout = 1s})};
                auto lease = locks.acquire("job");
                const auto lost = lease.lost();
                const auto last_success = std::chrono::steady_clock::now();
                relay.fall_silent();
                REQUIRE(eventually([&] { return lost.stop_requested(); }));
                // Last success ≤ one heartbeat after last_success; trust ends at + ttl − margin.
                CHECK(std::chrono::steady_clock::now() - last_success < 3s - 500ms + 1s + 12s);
                CHECK_FALSE(lease.held());
                const auto before = std::chrono::steady_clock::now();
                CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("other")); }) != errc{});
                CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
                CHECK(std::chrono::steady_clock::now() - before < 15s);
                relay.resume();
                CHECK(locks.try_acquire_for("job", 20s));
            }
        }
    }
}

// shows: promise-5
ROWLOCK_SIMULATED_CASE("repeatedly cut connections cost no lease", database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 9s, .heartbeat = 500ms})};
    const auto lease = locks.acquire("job");
    const auto longer_than_the_ttl = std::chrono::steady_clock::now() + 10s;
    for (int i = 0; i < 10 || std::chrono::steady_clock::now() < longer_than_the_ttl; ++i) {
        network.break_connections();
        auto other = locks.acquire("other");
        const auto beats = locks.stats().heartbeats;
        REQUIRE(eventually([&] { return locks.stats().heartbeats > beats; }));
        std::this_thread::sleep_for(50ms);  // some hundred times are enough
    }
    CHECK(lease.held());
    CHECK(locks.stats().lost == 0);
    CHECK(locks.stats().sessions == 1);
    CHECK(locks.stats().reconnects > 0);
}

TEST_CASE("the error of a failed unlock names the lease") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    std::atomic<std::int64_t> token{-1};
    client locks{database.source(), database.options({.on_event = [&](const event& what) {
                     if (what.kind == event_kind::unlock_failed) token = what.token.value();
                 }})};
    rowlock::mutex lock{locks, "job"};
    lock.lock();
    const auto lost = lock.token();
    CHECK(locks.force_release("job"));
    lock.unlock();
    CHECK(eventually([&] { return token == lost.value(); }));
}

TEST_CASE("without descriptors for its threads a client reports an error, and works later") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client locks{database.source(), database.options({.retry = {.attempts = 1}})};
    CHECK_FALSE(locks.inspect("job"));  // opens a connection
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int next = dup(STDERR_FILENO);  // the lowest free one
    close(next);
    for (int left = 0; left <= 3; ++left) {  // too few for both threads' timers
        rlimit tight = before;
        tight.rlim_cur = static_cast<rlim_t>(next) + static_cast<rlim_t>(left);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
        const errc kind = kind_of([&] { static_cast<void>(locks.try_acquire("job")); });
        REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
        CHECK(kind == errc::out_of_resources);
    }
    CHECK(locks.try_acquire("job"));
}

// shows: promise-1
TEST_CASE("64 contenders on three names exclude each other without an error") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(),
                     database.options({.poll_interval = 20ms, .max_connections = 16})};
        std::array<std::atomic<int>, 3> inside{};
        std::atomic<int> overlaps{0};
        std::vector<std::future<void>> contenders;
        for (int i = 0; i < 64; ++i) {
            contenders.push_back(std::async(std::launch::async, [&, i] {
                const auto which = static_cast<std::size_t>(i % 3);
                for (int round = 0; round < 3; ++round) {
                    auto lease = locks.acquire("name " + std::to_string(which));
                    if (++inside.at(which) != 1) ++overlaps;
                    --inside.at(which);
                    lease.release();
                }
            }));
        }
        for (auto& contender : contenders) CHECK_NOTHROW(contender.get());
        CHECK(overlaps == 0);
        CHECK(locks.stats().acquired == 192);
        CHECK(locks.stats().released == 192);
    }
}

TEST_CASE("options out of range are refused with a message that names them") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    const auto refused = [&](client_options options, std::string_view word) {
        try {
            const client locks{database.source(), std::move(options)};
        } catch (const error& failure) {
            return failure.kind() == errc::invalid_options &&
                   std::string_view{failure.what()}.find(word) != std::string_view::npos;
        }
        return false;
    };
    CHECK(refused({.ttl = 0ms}, "ttl"));
    CHECK(refused({.ttl = 25h}, "ttl"));
    CHECK(refused({.heartbeat = -1ms}, "heartbeat"));
    CHECK(refused({.ttl = 3s, .heartbeat = 2s, .margin = 1s}, "heartbeat"));
    CHECK(refused({.poll_interval = 0ms}, "poll_interval"));
    CHECK(refused({.statement_timeout = 2min}, "statement_timeout"));
    CHECK(refused({.max_connections = 0}, "max_connections"));
    CHECK(refused({.owner = "\xff"}, "owner"));
    CHECK(refused({.retry = {.attempts = 0}}, "retry"));

    client locks{database.source(), database.options()};
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("")); }) == errc::invalid_name);
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire(std::string(256, 'x'))); }) ==
          errc::invalid_name);
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("\xc3\x28")); }) == errc::invalid_name);
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("a\nb")); }) == errc::invalid_name);
    CHECK(kind_of([&] {
              static_cast<void>(locks.try_acquire("job", {.note = std::string(1001, 'x')}));
          }) == errc::invalid_options);
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job", {.max_duration = 0ms})); }) ==
          errc::invalid_options);
}

// Waiting in a queue: order, wake-ups, cancellation, deadlocks. Hooks and locks force the races. In
// tests of wake-ups the poll interval is 10 s or longer.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/wakeup/hint.hpp"
#include "support/at_end.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include "support/this_process.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using support::acquire_soon;
using support::at_best;
using support::eventually;
using support::has_ended;
using support::interception;
using support::kind_of;
using support::nobody_holds;
using support::patience;
using support::places;
using steady = std::chrono::steady_clock;

namespace {

/// Whether clients of this back end are woken. The others poll.
bool is_woken(const support::lock_database& database) {
    return database.which() != support::backend::soci_sqlite &&
           database.which() != support::backend::soci_postgresql;
}

/// A generous bound for "at once" in tests whose next poll is seconds away.
constexpr auto at_once = 8s;

/// The poll interval of tests of wake-ups: short for back ends without wake-ups.
milliseconds far_poll(const support::lock_database& database) {
    return is_woken(database) ? 10s : 100ms;
}

}  // namespace

// shows: promise-9
TEST_CASE("threads and clients are served in the order of their arrival") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client first{database.source(), database.options({.poll_interval = far_poll(database)})};
        client second{database.source(), database.options({.poll_interval = far_poll(database)})};
        auto held = first.acquire("job");
        std::mutex guard;
        std::vector<int> order;
        fencing_token last = held.token();
        std::vector<std::future<void>> waiters;
        constexpr int many = 12;
        for (int i = 0; i < many; ++i) {
            waiters.push_back(std::async(std::launch::async, [&, i] {
                auto lease = acquire_soon(i % 3 == 0 ? second : first, "job");
                {
                    const std::lock_guard lock{guard};
                    order.push_back(i);
                    CHECK(lease.token() > last);
                    last = lease.token();
                }
                lease.release();
            }));
            REQUIRE(places(database, i + 1));
        }
        CHECK(first.stats().waiting + second.stats().waiting == many);
        held.release();
        for (auto& each : waiters) each.get();
        for (int i = 0; i < many; ++i) CHECK(order.at(static_cast<std::size_t>(i)) == i);
        CHECK(places(database, 0));
        CHECK(nobody_holds(database));
        CHECK(first.stats().handed_over + second.stats().handed_over == many);
        CHECK(first.stats().waiting == 0);
    }
}

// shows: promise-9
TEST_CASE("no acquire overtakes the queue, except a barging one") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        // An entry of a live session, at a free lease that no call hands over.
        const auto& protocol = database.protocol();
        const auto& queue = database.queue();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{7}, "owner", "host", "program", 1, 60s},
                                 support::soon());
        queue.enqueue(*db, {"job", session_id{7}, grant_id{70}, "", "", std::nullopt},
                      support::soon());
        CHECK_FALSE(locks.try_acquire("job"));
        CHECK(places(database, 1));
        auto passed = locks.try_acquire("job", {.queueing = queueing::barging});
        CHECK(passed);
        passed->release();
        // The release hands over to the queue.
        CHECK(eventually([&] {
            return database.number("select coalesce(max(session), 0) from rowlock_lock") == 7;
        }));
        // A barging acquire waits without a queue entry.
        CHECK_FALSE(locks.try_acquire_for("job", 60ms, {.queueing = queueing::barging}));
        CHECK(places(database, 0));
    }
}

// shows: promise-9
TEST_CASE("every end of a lease wakes the first waiter at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client waiter{database.source(), database.options({.poll_interval = 40s})};
        constexpr auto soon_after_a_second = 25s;
        std::optional<client> holder{std::in_place, database.source(), database.options()};
        steady::time_point got;
        const auto wait = [&] {
            auto waiting = std::async(std::launch::async, [&] {
                auto lease = acquire_soon(waiter, "job");
                got = steady::now();
                lease.release();
            });
            // The waiter has polled once, and sleeps; or a machine that stalls has let a lease end
            // before.
            REQUIRE(eventually([&] {
                return has_ended(waiting) ||
                       (database.number("select count(*) from rowlock_ticket") == 1 &&
                        waiter.stats().polls > 0);
            }));
            return waiting;
        };
        SUBCASE("a release") {
            auto lease = holder->acquire("job");
            auto waiting = wait();
            const auto start = steady::now();
            lease.release();
            waiting.get();
            CHECK(got - start < at_once);
        }
        SUBCASE("a forced release") {
            const auto lease = holder->acquire("job");
            auto waiting = wait();
            const auto start = steady::now();
            CHECK(holder->force_release("job"));
            waiting.get();
            CHECK(got - start < at_once);
        }
        SUBCASE("the destruction of its client") {
            const auto lease = holder->acquire("job");
            auto waiting = wait();
            const auto start = steady::now();
            holder.reset();
            waiting.get();
            CHECK(got - start < at_once);
        }
        SUBCASE("the deadline of the lease") {
            const auto lease = holder->acquire("job", {.max_duration = 1s});
            const auto start = steady::now();
            auto waiting = wait();
            waiting.get();
            CHECK(got - start < soon_after_a_second);
        }
        SUBCASE("the death of its holder") {
            const auto& protocol = database.protocol();
            const auto db = database.connect();
            protocol.sessions().open(*db, {session_id{7}, "owner", "host", "program", 1, 60s},
                                     support::soon());
            REQUIRE(protocol
                        .acquire(*db, {"job", session_id{7}, grant_id{70}, "", "", std::nullopt},
                                 support::soon())
                        .what == protocol::attempt::outcome::granted);
            REQUIRE(protocol.sessions().extend(*db, session_id{7}, 1s, support::soon()));
            const auto start = steady::now();
            auto waiting = wait();
            waiting.get();
            CHECK(got - start < soon_after_a_second);
        }
        CHECK(places(database, 0));
    }
}

TEST_CASE(
    "a waiter looks at the lease behind its ticket only if it expected a queue without a look") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::sqlite) {
        interception network;
        std::atomic<int> glances{0};
        network.before([&](std::string_view what) { glances += what == "glance" ? 1 : 0; });
        client holder{database.source(), database.options()};
        client waiter{network.wrap(database.source()), database.options()};
        auto held = holder.acquire("job");
        CHECK_FALSE(waiter.try_acquire_for("job", 300ms));
        CHECK(glances == 0);
        // Control: a hand-over tells this client of the queue. For a second its next call expects
        // one.
        for (int tries = 0; tries < 10 && glances == 0; ++tries) {
            held.release();
            auto ours = waiter.acquire("job");
            auto next = std::async(std::launch::async, [&] { return holder.acquire("job"); });
            REQUIRE(places(database, 1));
            ours.release();
            held = next.get();
            CHECK_FALSE(waiter.try_acquire_for("job", 300ms));
        }
        CHECK(glances > 0);
    }
}

// shows: promise-9
TEST_CASE("a waiter notices a release between its failed try and its first poll") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client holder{database.source(), database.options()};
        client waiter{network.wrap(database.source()), database.options({.poll_interval = 10s})};
        auto lease = holder.acquire("job");
        std::atomic<bool> released{false};
        SUBCASE("before the ticket is written") {
            network.before([&](std::string_view what) {
                if (what == "enqueue" && !released.exchange(true)) lease.release();
            });
        }
        SUBCASE("before its owner listens") {
            network.after([&](std::string_view what) {
                if (what == "enqueue" && !released.exchange(true)) lease.release();
            });
        }
        SUBCASE("before its owner polls the queue") {
            network.before([&](std::string_view what) {
                if (what == "entries" && !released.exchange(true)) lease.release();
            });
        }
        const auto start = steady::now();
        CHECK(waiter.acquire("job").held());
        CHECK(steady::now() - start < at_once);
        CHECK(released);
    }
}

namespace {

/// The start of the statement in which a client sleeps in a MySQL server.
constexpr std::string_view sleeps = "select get_lock('rowlock_wait_";

bool is_a_sleep(std::string_view what) {
    return what.starts_with(sleeps) && what.find(" as rowlock_wake_") != std::string_view::npos;
}

/// The text of the sleep statement that runs in the server, or an empty string.
std::string sleep_under_way(support::lock_database& database) {
    const auto sessions = database.run("select id from rowlock_session");
    for (std::size_t row = 0; row < sessions.rows(); ++row) {
        const auto found = support::sleeper(database.admin(), sessions.integer<session_id>(row, 0));
        if (found) return found->statement;
    }
    return {};
}

}  // namespace

// shows: wake-ups
TEST_CASE(
    "a wake-up before the sleep statement begins delays the waiter by one poll, not a poll "
    "interval") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        interception network;
        client holder{database.source(), database.options()};
        client waiter{network.wrap(database.source()), database.options({.poll_interval = 10s})};
        auto lease = holder.acquire("job");
        std::atomic<bool> released{false};
        steady::time_point start;
        network.before([&](std::string_view what) {
            if (!is_a_sleep(what) || released.exchange(true)) return;
            // The poll that goes with this sleep has found nothing. A wake-up now reaches no
            // sleeper.
            const auto polls = waiter.stats().polls;
            CHECK(eventually([&] { return waiter.stats().polls > polls; }));
            start = steady::now();
            lease.release();
            std::this_thread::sleep_for(20ms);  // a busy machine: the sleep begins even later
        });
        CHECK(waiter.acquire("job").held());
        CHECK(steady::now() - start < at_once);
        CHECK(released);
    }
}

// shows: wake-ups
TEST_CASE(
    "a waiter whose wait lock's connection is killed sleeps again for a new wait lock and is woken "
    "at "
    "once") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        interception network;
        std::atomic<int> sleeps_begun{0};
        network.before([&](std::string_view what) {
            if (is_a_sleep(what)) ++sleeps_begun;
        });
        client holder{database.source(), database.options()};
        client waiter{network.wrap(database.source()), database.options({.poll_interval = 10s})};
        auto lease = holder.acquire("job");
        auto waiting =
            std::async(std::launch::async, [&] { return acquire_soon(waiter, "job").held(); });
        REQUIRE(eventually([&] { return !sleep_under_way(database).empty(); }));
        const auto first = sleep_under_way(database);
        const auto wait_lock = first.substr(first.find('\''), first.find(',') - first.find('\''));
        const int before = sleeps_begun;
        const auto since = steady::now();
        const auto keeper = database.number("select is_used_lock(" + wait_lock + ")");
        database.run("kill " + std::to_string(keeper));
        REQUIRE(eventually([&] {
            const auto next = sleep_under_way(database);
            return !next.empty() && next != first;
        }));
        // It does not retry in a loop while the wait lock is free. A sleep takes two seconds.
        CHECK(sleeps_begun - before <= 2 + (steady::now() - since) / 1s);
        const auto start = steady::now();
        lease.release();
        CHECK(waiting.get());
        CHECK(steady::now() - start < at_once);
    }
}

TEST_CASE("a client that waits in a MySQL server ends at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        client holder{database.source(), database.options()};
        const auto lease = holder.acquire("job");
        const auto end = [&] {
            auto waiter = std::make_unique<client>(database.source(), database.options());
            std::stop_source stop;
            auto waiting = std::async(std::launch::async, [&] {
                return waiter->try_acquire_for("job", patience, stop.get_token()).has_value();
            });
            REQUIRE(eventually([&] { return !sleep_under_way(database).empty(); }));
            stop.request_stop();
            CHECK_FALSE(waiting.get());
            const auto start = steady::now();
            waiter.reset();
            const auto took = steady::now() - start;
            CHECK(eventually([&] { return sleep_under_way(database).empty(); }));
            return took;
        };
        CHECK(at_best(1s, end) < 1s);  // the sleep would last two seconds
    }
}

namespace {

/// Runs a release that has seen no waiter and waits for the lease's row. Meanwhile a waiter
/// enqueues and finds the lease held. Returns whether the waiter is served within `limit`.
bool is_served_after_blind_release(support::lock_database& database, milliseconds limit,
                                   const std::function<void()>& release) {
    client waiter{database.source(), database.options({.poll_interval = 10s})};
    // It listens already: a client polls when it begins to.
    const auto other = waiter.acquire("other");
    const auto session = database.number("select session from rowlock_lock where name = 'other'");
    const auto channel =
        wakeup::notification_channel(support::address_of(database, session_id{session}));
    REQUIRE(eventually([&] {
        return database.number("select count(*) from pg_stat_activity where query like 'listen %" +
                               channel + "%' and state = 'idle'") > 0;
    }));
    const auto blocker = database.source().connect(support::soon());
    blocker->query("begin", support::soon());
    blocker->query("select * from " + database.prefix() + "lock where name = 'job' for update",
                   support::soon());
    auto releasing = std::async(std::launch::async, release);
    REQUIRE(support::somebody_waits_for_a_row(database));
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("job", patience, stop.get_token());
    });
    REQUIRE(places(database, 1));
    REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
    blocker->query("commit", support::soon());
    releasing.get();
    const bool served = waiting.wait_for(limit) == std::future_status::ready;
    stop.request_stop();
    return waiting.get().has_value() && served;
}

}  // namespace

// shows: promise-9
TEST_CASE("a release that saw no waiter checks for waiters again after its commit") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        client holder{database.source(), database.options({.statement_timeout = 20s})};
        auto lease = holder.acquire("job");
        CHECK(is_served_after_blind_release(database, at_once, [&] { lease.release(); }));
    }
}

// shows: promise-9
TEST_CASE("control: without that check the waiter is not served") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().set_up(*db, 20s, support::soon());
        protocol.sessions().open(*db, {session_id{7}, "owner", "host", "program", 1, 60s},
                                 support::soon());
        REQUIRE(protocol
                    .acquire(*db, {"job", session_id{7}, grant_id{70}, "", "", std::nullopt},
                             support::soon())
                    .what == protocol::attempt::outcome::granted);
        const auto& queue = database.queue();
        CHECK_FALSE(is_served_after_blind_release(database, 3s, [&] {
            const auto done =
                queue.release(*db, "job", session_id{7}, grant_id{70}, true, support::soon());
            CHECK(done.freed);
            CHECK_FALSE(done.next);
        }));
    }
}

// On PostgreSQL and SQLite a release looks for waiters itself.
// shows: promise-9
TEST_CASE("a client that is destroyed while it serves one queue hands the other leases over, too") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        constexpr std::size_t count = 3;
        const std::array<std::string, count> names{"a", "b", "c"};
        interception network;
        std::optional<client> holder{std::in_place, network.wrap(database.source()),
                                     database.options({.statement_timeout = 20s})};
        interception theirs;
        client waiter{theirs.wrap(database.source()), database.options()};
        std::vector<lease> held;
        std::vector<std::future<void>> waiting;
        auto another = holder->acquire("another");
        for (const auto& each : names) held.push_back(holder->acquire(each));
        for (std::size_t i = 0; i < count; ++i) {
            waiting.push_back(std::async(std::launch::async,
                                         [&, i] { acquire_soon(waiter, names[i]).release(); }));
            REQUIRE(places(database, static_cast<std::int64_t>(i) + 1));
        }
        // A poll would serve the free leases, too.
        std::atomic<bool> polls{false};
        theirs.before([&](std::string_view what) {
            if (what == "entries") support::eventually([&] { return polls.load(); });
        });
        // The first check waits until all three are due, so that one finds them together.
        std::atomic<bool> checking{false};
        std::atomic<bool> released{false};
        std::atomic<bool> serving{false};
        network.before([&](std::string_view what) {
            if (what == "names_with_waiters" && !checking.exchange(true)) {
                support::eventually([&] { return released.load(); });
            }
            if (what == "next_waiter" && !serving.exchange(true)) {
                // The destructor has begun by then, and waits for this thread.
                std::this_thread::sleep_for(300ms);
            }
        });
        another.release();
        REQUIRE(eventually([&] { return checking.load(); }));
        for (auto& each : held) each.release();
        std::this_thread::sleep_for(50ms);  // longer than a release waits for its check
        released = true;
        REQUIRE(eventually([&] { return serving.load(); }));
        holder.reset();
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
        polls = true;
        for (auto& each : waiting) each.get();
        theirs.before({});
    }
}

namespace {

/// How long a waiter waits for a lease that was released before its entry was committed: from the
/// commit on. Its client goes straight to the queue, as it expects one.
milliseconds until_found_after_late_commit(support::lock_database& database) {
    auto options = database.options({.poll_interval = 10s});
    options.wake_ups = wakeup_mode::automatic;
    interception network;
    client holder{network.wrap(database.source()), options};
    client waiter{database.source(), options};
    auto theirs = holder.acquire("job");
    auto first = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(places(database, 1));
    theirs.release();
    auto held = first.get();  // it listens from now on
    auto next = std::async(std::launch::async, [&] { return acquire_soon(holder, "job"); });
    REQUIRE(places(database, 1));
    held.release();  // to a waiter: it expects another the next time
    theirs = next.get();
    std::atomic<int> checks{0};
    network.after([&](std::string_view what) {
        if (what == "names_with_waiters") ++checks;
    });
    const auto blocker = database.connect();
    blocker->query("select pg_advisory_lock(4711)", support::soon());
    auto waiting = std::async(std::launch::async, [&] {
        auto got = acquire_soon(waiter, "job");
        return steady::now();
    });
    REQUIRE(eventually([&] {
        return database.number(
                   "select count(*) from pg_locks where locktype = 'advisory' and "
                   "objid = 4711 and not granted") == 1;
    }));
    theirs.release();
    REQUIRE(eventually([&] { return checks > 0; }));
    const auto committed = steady::now();
    blocker->query("select pg_advisory_unlock(4711)", support::soon());
    const auto got = waiting.get();
    network.after({});
    return std::chrono::floor<milliseconds>(got - committed);
}

}  // namespace

// shows: promise-9
TEST_CASE("a waiter whose entry was committed late looks at the lease once more") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const auto& prefix = database.prefix();
        database.run("create function " + prefix +
                     "stall() returns trigger language plpgsql as "
                     "'begin perform pg_advisory_xact_lock(4711); return null; end'");
        database.run("create constraint trigger stall after insert on " + prefix +
                     "ticket deferrable initially deferred for each row execute function " +
                     prefix + "stall()");
        // A waiter that is notified polls after 250 ms.
        constexpr milliseconds bound = 150ms;
        CHECK(at_best(bound, [&] { return until_found_after_late_commit(database); }) < bound);
    }
}

// shows: promise-9
TEST_CASE("waiters survive the loss of every connection, including the waiter loop's") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client holder{database.source(), database.options()};
        client waiter{network.wrap(database.source()),
                      database.options({.poll_interval = far_poll(database)})};
        auto lease = holder.acquire("job");
        std::optional<rowlock::lease> got;
        auto waiting = std::async(std::launch::async, [&] { got = acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
        network.break_connections();
        if (database.which() == support::backend::postgresql) {
            CHECK(database.number("select count(*) from (select pg_terminate_backend(pid) from "
                                  "pg_stat_activity where (query ilike 'listen %' or query like "
                                  "'%rowlock entries%') and pid <> pg_backend_pid() and "
                                  "client_port in " +
                                  support::ports_of_this_process() + ") as gone") > 0);
        }
        const auto start = steady::now();
        lease.release();
        waiting.get();
        CHECK(steady::now() - start < at_once);
        CHECK(got->held());
        CHECK(waiter.stats().sessions == 1);
    }
}

// shows: promise-9
ROWLOCK_SIMULATED_CASE("a time limit or a stop ends a wait at once, and the queue entry is deleted",
                       database) {
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options({.poll_interval = 10s})};
    const auto lease = holder.acquire("job");
    SUBCASE("a time limit") {
        const auto limited = at_best(250ms, [&] {
            const auto start = steady::now();
            CHECK_FALSE(waiter.try_acquire_for("job", 200ms));
            return steady::now() - start;
        });
        CHECK(limited >= 200ms);
        CHECK(limited < 250ms);
    }
    SUBCASE("a stop") {
        // 40 ms of it may pass in the wait for the database's answer, the rest is for threads
        // that a busy machine runs late.
        CHECK(at_best(150ms, [&] {
                  std::stop_source stop;
                  auto waiting = std::async(std::launch::async, [&] {
                      CHECK_FALSE(waiter.acquire("job", stop.get_token()));
                      return steady::now();
                  });
                  CHECK(places(database, 1));
                  const auto start = steady::now();
                  stop.request_stop();
                  return waiting.get() - start;
              }) < 150ms);
    }
    SUBCASE("a wait with a time limit of zero adds no queue entry") {
        CHECK_FALSE(waiter.try_acquire_for("job", 0ms));
        CHECK(waiter.stats().queued == 0);
    }
    CHECK(places(database, 0));
    // The waiting thread may have returned before the answer to its cancellation.
    CHECK(eventually([&] { return waiter.stats().waiting == 0; }));
}

namespace {

/// Holds a client's statements back while it hangs; but none within a transaction, whose locks
/// would hold up those of the test.
class hanging_network {
public:
    hanging_network() {
        network_.before([this](std::string_view what) {
            thread_local bool in_transaction = false;
            if (!in_transaction) {
                std::unique_lock lock{mutex_};
                changed_.wait(lock, [this] { return !hangs_; });
            }
            const bool ends = what == "commit" || what == "rollback";
            in_transaction = what.starts_with("begin") || (in_transaction && !ends);
        });
    }
    [[nodiscard]] sql::connection_source wrap(sql::connection_source inner) {
        return network_.wrap(std::move(inner));
    }
    void hang() { set(true); }
    void go_on() { set(false); }

private:
    void set(bool hangs) {
        {
            const std::lock_guard lock{mutex_};
            hangs_ = hangs;
        }
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool hangs_ = false;
    interception network_;
};

}  // namespace

// shows: promise-9
TEST_CASE("a wait ends in time although the database hangs") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        const auto stop_while_it_hangs = [&] {
            hanging_network network;
            auto lease = holder.acquire("job");
            client waiter{network.wrap(database.source()), database.options()};
            const support::at_end goes_on{[&] { network.go_on(); }};
            std::stop_source stop;
            auto waiting = std::async(std::launch::async, [&] {
                CHECK_FALSE(waiter.acquire("job", stop.get_token()));
                return steady::now();
            });
            CHECK(places(database, 1));
            CHECK(eventually([&] { return waiter.stats().polls > 0; }));
            network.hang();
            const auto start = steady::now();
            stop.request_stop();
            const auto took = waiting.get() - start;
            // The client gives a grant back as soon as the database answers.
            lease.release();
            network.go_on();
            CHECK(places(database, 0));
            CHECK(nobody_holds(database));
            return took;
        };
        // The statements hang until the thread has returned, which waits 40 ms for their answer. A
        // busy machine may run it late.
        CHECK(at_best(150ms, stop_while_it_hangs) < 150ms);
    }
}

namespace {

/// A thread waits for "job" and is asked to stop. A thread of another client waits behind it. The
/// holder releases at a moment that the test chooses.
struct withdrawal {
    explicit withdrawal(support::lock_database& database)
        : waiter{network.wrap(database.source()),
                 database.options({.poll_interval = far_poll(database)})},
          holder{database.source(), database.options()},
          next{database.source(), database.options({.poll_interval = far_poll(database)})},
          held{holder.acquire("job")},
          hand{database} {
        waiting = std::async(std::launch::async, [this] {
            auto got = waiter.try_acquire_for("job", patience, stop.get_token());
            returned = true;
            return got;
        });
        REQUIRE(places(database, 1));
        behind = std::async(std::launch::async, [this] { return acquire_soon(next, "job"); });
        REQUIRE(places(database, 2));
        REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
    }

    void release_before_cancel() {
        network.before([this](std::string_view what) {
            if ((what == "cancel" || what == "tickets") && !released.exchange(true)) hand_over();
        });
    }
    /// Releases only after the thread has stopped waiting for the result of its cancellation.
    void release_before_late_cancel() {
        network.before([this](std::string_view what) {
            if ((what != "cancel" && what != "tickets") || released.exchange(true)) return;
            CHECK(eventually([&] { return returned.load(); }));
            hand_over();
        });
    }
    void release_after_cancel() {
        network.after([this](std::string_view what) {
            if ((what == "cancel" || what == "delete_ticket") && !released.exchange(true)) {
                held.release();
            }
        });
    }
    /// Releases and grants. On MySQL a release that expects no waiter does not hand over.
    void hand_over() {
        held.release();
        (void)hand.grant_next("job");
    }
    std::optional<lease> give_up() {
        stop.request_stop();
        return waiting.get();
    }

    interception network;
    std::atomic<bool> released{false};
    std::atomic<bool> returned{false};  ///< the thread that was asked to stop has returned
    std::stop_source stop;
    client waiter, holder, next;
    lease held;
    const support::protocol_connection hand;
    std::future<std::optional<lease>> waiting;
    std::future<lease> behind;
};

/// Whether the thread kept the grant that came before its cancellation.
bool keeps_earlier_grant(support::lock_database& database) {
    withdrawal at{database};
    at.release_before_cancel();
    auto kept = at.give_up();
    const bool was_kept = kept && kept->held() && !has_ended(at.behind);
    kept.reset();
    CHECK(at.behind.get().held());
    CHECK(at.released);
    return was_kept;
}

}  // namespace

// shows: promise-9
TEST_CASE("a thread that is stopped keeps a grant that precedes its cancellation") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        // The thread waits 40 ms for the result, which may take longer on a busy machine.
        bool kept = false;
        for (int round = 0; round < 30 && !kept; ++round) kept = keeps_earlier_grant(database);
        CHECK(kept);
        CHECK(places(database, 0));
        CHECK(nobody_holds(database));
    }
}

// shows: promise-9
ROWLOCK_SIMULATED_CASE("a grant that reaches a stopped thread too late goes to the next waiter",
                       database) {
    withdrawal at{database};
    SUBCASE("granted first, but answered too late") {
        at.release_before_late_cancel();
    }
    SUBCASE("cancelled first") {
        at.release_after_cancel();
    }
    CHECK_FALSE(at.give_up());
    CHECK(at.behind.get().held());
    CHECK(at.released);
    CHECK(places(database, 0));
    CHECK(nobody_holds(database));
}

// shows: promise-9
TEST_CASE("a waiter whose own session was ended fails with lock_lost") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        auto lease = holder.acquire("job");
        client waiter{database.source(), database.options({.ttl = 30s,
                                                           .heartbeat = 1s,
                                                           .poll_interval = 10s,
                                                           .when_cut_off = when_cut_off::fail})};
        errc kind{};
        auto waiting = std::async(std::launch::async, [&] {
            kind = kind_of([&] { static_cast<void>(acquire_soon(waiter, "job")); });
            return steady::now();
        });
        REQUIRE(places(database, 1));
        const auto start = steady::now();
        database.run(std::string{"update rowlock_session set ended = "} +
                     (database.speaks() == sql::dialect::postgresql ? "true" : "1") +
                     " where id in (select session from rowlock_ticket)");
        CHECK(waiting.get() - start < at_once);  // one heartbeat
        CHECK(kind == errc::lock_lost);
        lease.release();
        CHECK(waiter.try_acquire_for("job", patience));  // in a new session
    }
}

ROWLOCK_SIMULATED_CASE("a lost reply to an enqueue or a release loses no queue entry", database) {
    interception network;
    client holder{network.wrap(database.source()), database.options()};
    client waiter{network.wrap(database.source()),
                  database.options({.poll_interval = far_poll(database)})};
    auto lease = holder.acquire("job");
    std::atomic<bool> once{false};
    const auto lose = [&](std::string_view wanted) {
        network.after([&, wanted](std::string_view what) {
            if (what == wanted && !once.exchange(true)) interception::lose_reply();
        });
    };
    SUBCASE("the enqueue") {
        lose("enqueue");
        auto waiting =
            std::async(std::launch::async, [&] { acquire_soon(waiter, "job").release(); });
        REQUIRE(eventually([&] { return waiter.stats().waiting == 1; }));
        REQUIRE(eventually([&] { return once.load(); }));
        lease.release();
        waiting.get();
    }
    SUBCASE("the release") {
        auto waiting =
            std::async(std::launch::async, [&] { acquire_soon(waiter, "job").release(); });
        REQUIRE(places(database, 1));
        lose(database.speaks() == sql::dialect::postgresql ? "hand_over" : "release");
        lease.release();
        waiting.get();
    }
    CHECK(places(database, 0));
    CHECK(nobody_holds(database));
    CHECK(eventually([&] { return waiter.stats().unresolved == 0; }, 60s));
}

// The waiter's ticket was drawn long before it committed. An update of `served` stands for the
// later tickets that were served meanwhile.
// shows: promise-9
TEST_CASE("a queue entry behind the watermark is still served by the next release") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options({.poll_interval = 100ms})};
        for (const bool known : {false, true}) {
            CAPTURE(known);
            auto held = holder.acquire("job");
            auto waiting = std::async(std::launch::async, [&] {
                return waiter.try_acquire_for("job", patience).has_value();
            });
            REQUIRE(places(database, 1));
            database.run(
                "update rowlock_lock set served = 300 + (select ticket from rowlock_ticket)");
            if (known) {
                CHECK(eventually([&] {
                    return database.number(
                               "select count(*) from rowlock_lock, rowlock_ticket "
                               "where served - 256 < ticket") == 1;
                }));
            }
            held.release();
            CHECK(waiting.get());
            CHECK(places(database, 0));
            CHECK(nobody_holds(database));
        }
    }
}

// shows: fault-vanished-entry
TEST_CASE("a waiter whose queue entry vanished enqueues again") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options({.poll_interval = 50ms})};
        auto lease = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 1));
        database.run("delete from rowlock_ticket");
        REQUIRE(places(database, 1));
        // The row is visible before the waiter has the answer.
        CHECK(eventually([&] { return waiter.stats().queued == 2; }));
        lease.release();
        CHECK(waiting.get().held());
    }
}

ROWLOCK_SIMULATED_CASE("a queued lease keeps its own deadline, which counts from the grant",
                       database) {
    client holder{database.source(), database.options()};
    client waiter{database.source(),
                  database.options({.ttl = 60s, .poll_interval = far_poll(database)})};
    auto held = holder.acquire("job");
    auto waiting = std::async(std::launch::async,
                              [&] { return acquire_soon(waiter, "job", {.max_duration = 20s}); });
    REQUIRE(places(database, 1));
    std::this_thread::sleep_for(300ms);  // the deadline counts from the grant, not the request
    held.release();
    const auto lease = waiting.get();
    CHECK(lease.remaining() > 10s);
    CHECK(lease.remaining() < 20s);
}

TEST_CASE("a queued lease that its client learns of late has the margin of its whole duration") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        std::atomic<bool> cut_off{false};
        interception network;
        network.before([&](std::string_view) { CHECK(eventually([&] { return !cut_off; })); });
        client holder{database.source(), database.options()};
        client waiter{network.wrap(database.source()), database.options({.ttl = 60s})};
        auto held = holder.acquire("job");
        auto waiting = std::async(
            std::launch::async, [&] { return acquire_soon(waiter, "job", {.max_duration = 24s}); });
        REQUIRE(places(database, 1));
        cut_off = true;
        held.release();
        REQUIRE(eventually([&] {
            return database.number(
                       "select count(*) from rowlock_lock where deadline is not null") == 1;
        }));
        // As if 12 seconds had passed.
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        database.run(std::string{"update rowlock_lock set deadline = deadline - "} +
                     (postgresql ? "interval '12 seconds'" : "12000000"));
        cut_off = false;
        // A sixth of 24 s, not of what was left.
        CHECK(waiting.get().remaining() <= 8s);
    }
}

TEST_CASE("events report a waiter's position and the time it has waited") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        auto held = holder.acquire("job");
        std::mutex guard;
        std::vector<event> events;
        client waiter{database.source(),
                      database.options({.poll_interval = 30ms, .on_event = [&](const event& what) {
                                            const std::lock_guard lock{guard};
                                            events.push_back(what);
                                        }})};
        const auto seen = [&](event_kind kind, std::int64_t position) {
            return eventually([&] {
                const std::lock_guard lock{guard};
                return std::ranges::any_of(events, [&](const event& each) {
                    return each.kind == kind && each.position == position && each.name == "job" &&
                           each.waited > 0us;
                });
            });
        };
        std::stop_source stop;
        client first{database.source(), database.options()};
        auto ahead = std::async(std::launch::async, [&] {
            return first.try_acquire_for("job", patience, stop.get_token());
        });
        REQUIRE(places(database, 1));
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        CHECK(seen(event_kind::waiting, 2));
        stop.request_stop();
        CHECK_FALSE(ahead.get());
        CHECK(seen(event_kind::waiting, 1));
        held.release();
        CHECK(waiting.get().held());
        CHECK(seen(event_kind::lease_acquired, 0));
        CHECK(to_string(event_kind::waiting) == "waiting");
    }
}

namespace {

/// Holds one lock and waits for the next. Returns false if this thread is the deadlock victim.
bool holds_and_waits(client& locks, const std::string& first, const std::string& second,
                     std::latch& all_hold) {
    rowlock::mutex mine{locks, first};
    rowlock::mutex wanted{locks, second};
    const std::lock_guard lock{mine};
    all_hold.arrive_and_wait();
    try {
        const std::lock_guard both{wanted};
        return true;
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::deadlock);
        CHECK(std::string_view{failure.what()}.find(second) != std::string_view::npos);
        return false;
    }
}

}  // namespace

// shows: deadlocks
ROWLOCK_SIMULATED_CASE("a deadlock cycle has exactly one victim, and the other waiters go on",
                       database) {
    constexpr auto parties = 3;
    std::vector<std::unique_ptr<client>> clients;
    bool one_client = false;
    auto detection = deadlock_detection::by_thread;
    SUBCASE("threads of one client") {
        one_client = true;
    }
    SUBCASE("clients") {}
    SUBCASE("clients, each one node of the wait graph") {
        detection = deadlock_detection::by_client;
    }
    for (int i = 0; i < parties; ++i) {
        clients.push_back(std::make_unique<client>(
            database.source(),
            database.options({.poll_interval = 200ms, .deadlock_detection = detection})));
    }
    for (const int members : {2, parties}) {
        std::latch all_hold{members};
        std::atomic<int> got_both{0};
        std::vector<std::future<void>> threads;
        for (int i = 0; i < members; ++i) {
            threads.push_back(std::async(std::launch::async, [&, i] {
                auto& locks = *clients.at(one_client ? 0 : static_cast<std::size_t>(i));
                got_both += holds_and_waits(locks, "lock " + std::to_string(i),
                                            "lock " + std::to_string((i + 1) % members), all_hold);
            }));
        }
        for (auto& each : threads) each.get();
        CHECK(got_both == members - 1);
    }
    std::uint64_t victims = 0;
    for (const auto& each : clients) victims += each->stats().deadlocks;
    CHECK(victims == 2);
    CHECK(places(database, 0));
    CHECK(nobody_holds(database));
}

ROWLOCK_SIMULATED_CASE(
    "a waiter whose grants repeatedly arrive after the lease's own deadline fails with timed_out",
    database) {
    interception network;
    client slow{network.wrap(database.source()), database.options({.poll_interval = 200ms})};
    client other{database.source(), database.options({.poll_interval = 200ms})};
    const auto self = std::this_thread::get_id();
    network.after([&](std::string_view) {  // only the grants are delayed
        if (std::this_thread::get_id() != self) std::this_thread::sleep_for(60ms);
    });
    std::atomic<bool> over{false};
    std::latch taken{1};
    auto busy = std::async(std::launch::async, [&] {
        for (bool first = true; !over; first = false) {
            const auto held = acquire_soon(other, "job");
            if (first) taken.count_down();
            eventually(
                [&] { return over || database.number("select count(*) from rowlock_ticket") > 0; },
                1s);
        }
    });
    taken.wait();
    CHECK(kind_of([&] { (void)slow.acquire("job", {.max_duration = 50ms}); }) == errc::timed_out);
    over = true;
    busy.get();
}

// shows: deadlocks
TEST_CASE("a cancelled queue entry that is deleted a moment later makes no deadlock cycle") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto& queue = database.queue();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 60s},
                                 support::soon());
        interception network;
        client locks{network.wrap(database.source()), database.options({.poll_interval = 10s})};
        auto held = locks.acquire("ours");
        const protocol::grant_request theirs{"theirs", session_id{1}, grant_id{11}, "u",
                                             "",       std::nullopt};
        REQUIRE(protocol.acquire(*db, theirs, support::soon()).what ==
                protocol::attempt::outcome::granted);
        // The holder of "theirs" has stopped waiting for "ours", and goes on.
        queue.enqueue(*db, {"ours", session_id{1}, grant_id{22}, "u", "", std::nullopt},
                      support::soon());
        std::atomic<int> looks{0};
        network.after([&](std::string_view what) {
            if (what != "deadlocks" || ++looks > 1) return;
            const std::vector given_up{grant_id{22}};
            queue.cancel(*database.connect(), given_up, support::soon());
        });
        auto other = std::async(std::launch::async, [&] {
            CHECK(eventually([&] { return looks > 1; }));
            CHECK(queue.release(*db, "theirs", session_id{1}, grant_id{11}, true, support::soon())
                      .next.has_value());
        });
        const auto both = locks.try_acquire_for("theirs", patience);
        other.get();
        CHECK(both);
        CHECK(locks.stats().deadlocks == 0);
    }
}

// shows: deadlocks
ROWLOCK_SIMULATED_CASE(
    "threads that do not wait for each other make no deadlock cycle, unless their client is one "
    "node",
    database) {
    auto detection = deadlock_detection::by_thread;
    bool cycle = false;
    SUBCASE("by thread") {}
    SUBCASE("control: by client") {
        detection = deadlock_detection::by_client;
        cycle = true;
    }
    SUBCASE("off") {
        detection = deadlock_detection::off;
    }
    const auto options = database.options({.poll_interval = 50ms, .deadlock_detection = detection});
    client left{database.source(), options};
    client right{database.source(), options};
    auto a = left.acquire("a");
    auto b = right.acquire("b");
    std::atomic<int> victims{0};
    const auto wait_for = [&](client& locks, const char* name) {
        return std::async(std::launch::async, [&locks, name, &victims] {
            try {
                acquire_soon(locks, name).release();
            } catch (const error& failure) {
                if (failure.kind() == errc::deadlock) ++victims;
            }
        });
    };
    // Each client waits in one thread for what the other holds in another.
    auto first = wait_for(left, "b");
    REQUIRE(places(database, 1));
    auto second = wait_for(right, "a");
    if (cycle) {
        REQUIRE(eventually([&] { return victims == 1; }));
    } else {
        REQUIRE(places(database, 2));
        const auto polls = left.stats().polls + right.stats().polls;
        REQUIRE(eventually([&] { return left.stats().polls + right.stats().polls > polls + 4; }));
    }
    a.release();
    b.release();
    first.get();
    second.get();
    CHECK(victims == (cycle ? 1 : 0));
}

ROWLOCK_SIMULATED_CASE("without deadlock detection only the time limits end a cycle", database) {
    const auto options =
        database.options({.poll_interval = 50ms, .deadlock_detection = deadlock_detection::off});
    client left{database.source(), options};
    client right{database.source(), options};
    std::latch all_hold{2};
    const auto run = [&](client& locks, const char* mine, const char* wanted) {
        return std::async(std::launch::async, [&, mine, wanted] {
            const auto held = locks.acquire(mine);
            all_hold.arrive_and_wait();
            const bool got = locks.try_acquire_for(wanted, 500ms).has_value();
            all_hold.wait();
            return got;
        });
    };
    auto first = run(left, "a", "b");
    auto second = run(right, "b", "a");
    const bool one = first.get();
    const bool other = second.get();
    CHECK_FALSE((one && other));
    CHECK(left.stats().deadlocks + right.stats().deadlocks == 0);
}

// The case below runs this one in its own process. It waits and reports the outcome.
TEST_CASE("helper: a waiter that will be stopped" * doctest::skip()) {
    client locks{
        open(getenv("ROWLOCK_TEST_URL")).with_tables({.prefix = getenv("ROWLOCK_TEST_PREFIX")}),
        {.ttl = 1s, .when_cut_off = when_cut_off::fail}};
    char said = '?';
    try {
        const auto lease = acquire_soon(locks, "job");
        said = lease.held() ? 'h' : 'n';
    } catch (const error& failure) {
        said = failure.kind() == errc::lock_lost ? 'l' : 'e';
    }
    CHECK(write(STDOUT_FILENO, &said, 1) == 1);
}

// shows: promise-9
TEST_CASE("a process that was stopped while it was granted the lease reports no success") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        auto held = holder.acquire("job");
        int told[2];
        REQUIRE(pipe2(told, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, told[1], STDOUT_FILENO);
        setenv("ROWLOCK_TEST_URL", database.url().c_str(), 1);
        setenv("ROWLOCK_TEST_PREFIX", database.prefix().c_str(), 1);
        std::string program = "/proc/self/exe";
        std::string name = "-tc=helper: a waiter that will be stopped";
        std::string options = "-ns";
        std::string quiet = "-o=/dev/null";
        char* arguments[] = {program.data(), name.data(), options.data(), quiet.data(), nullptr};
        pid_t waiter = 0;
        REQUIRE(posix_spawn(&waiter, program.c_str(), &actions, nullptr, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        close(told[1]);
        // A machine that stalls may end its short session before it is stopped.
        REQUIRE(eventually([&] {
            siginfo_t exited{};
            waitid(P_PID, static_cast<id_t>(waiter), &exited, WEXITED | WNOHANG | WNOWAIT);
            return exited.si_pid == waiter ||
                   database.number("select count(*) from rowlock_ticket") == 1;
        }));
        kill(waiter, SIGSTOP);
        held.release();  // hands over to the stopped process, whose session still lives
        CHECK(places(database, 0));
        const auto next = holder.try_acquire_for("job", patience);
        CHECK(next);
        kill(waiter, SIGCONT);
        char said = 0;
        CHECK(read(told[0], &said, 1) == 1);
        CHECK(said == 'l');
        CHECK(next->held());
        close(told[0]);
        int status = -1;
        waitpid(waiter, &status, 0);
        CHECK(status == 0);
    }
}

TEST_CASE("a lease released in the caller's transaction goes to the waiter soon after the commit") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options({.poll_interval = 10s})};
        auto lease = holder.acquire("job");
        auto waiting =
            std::async(std::launch::async, [&] { acquire_soon(waiter, "job").release(); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
        const auto db = database.connect();
        db->query("begin", support::soon());
        release_on_commit(*db, lease);
        db->query("commit", support::soon());
        CHECK(waiting.wait_for(at_once) == std::future_status::ready);
        lease.release();
        waiting.get();
    }
}

TEST_CASE("a destroyed client ends the calls that still wait in it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        auto lease = holder.acquire("job");
        std::optional<client> waiter{std::in_place, database.source(), database.options()};
        errc kind{};
        auto waiting = std::async(std::launch::async, [&] {
            kind = kind_of([&] { static_cast<void>(acquire_soon(*waiter, "job")); });
        });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return waiter->stats().polls > 0; }));
        waiter.reset();
        waiting.get();
        CHECK(kind == errc::lock_lost);
        CHECK(places(database, 0));
    }
}

namespace {

constexpr int clients_in_turn = 4;

/// The statements, by the start of their names or texts, that four clients send which take one lock
/// in turn, so many times each.
std::map<std::string, int, std::less<>> sent_in_turn(support::lock_database& database,
                                                     client_options options, int rounds) {
    interception network;
    std::mutex guard;
    std::map<std::string, int, std::less<>> sent;
    network.before([&](std::string_view what) {
        const std::lock_guard lock{guard};
        ++sent[std::string{what.substr(0, 20)}];
    });
    options.ttl = 60s;
    std::vector<std::unique_ptr<client>> clients;
    for (int i = 0; i < clients_in_turn; ++i) {
        clients.push_back(std::make_unique<client>(network.wrap(database.source()), options));
        clients.back()->acquire("warm").release();
    }
    {
        const std::lock_guard lock{guard};
        sent.clear();
    }
    std::latch start{clients_in_turn};
    std::vector<std::future<void>> threads;
    for (const auto& each : clients) {
        threads.push_back(std::async(std::launch::async, [&] {
            start.arrive_and_wait();
            for (int i = 0; i < rounds; ++i) {
                const auto lease = acquire_soon(*each, "job");
                std::this_thread::sleep_for(1ms);
            }
        }));
    }
    for (auto& each : threads) each.get();
    const std::lock_guard lock{guard};
    return sent;
}

/// Polls of all queue entries, for each grant.
double polls_for_a_grant(support::lock_database& database, const client_options& options) {
    constexpr int rounds = 40;
    return static_cast<double>(sent_in_turn(database, options, rounds)["entries"]) /
           (clients_in_turn * rounds);
}

}  // namespace

TEST_CASE("a grant between clients costs four statements on PostgreSQL") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        constexpr int rounds = 60;
        std::string list;
        const auto all_sent = [&] {
            int all = 0;
            list.clear();
            for (const auto& [what, count] :
                 sent_in_turn(database, database.options({.poll_interval = 10s}), rounds)) {
                all += count;
                list += what + " " + std::to_string(count) + ", ";
            }
            return all;
        };
        // The allowance covers the start, the end and a heartbeat or two.
        constexpr int bound = 4 * rounds * clients_in_turn + 60;
        const int all = at_best(bound, all_sent);
        INFO(list);
        CHECK(all < bound);
    }
}

// shows: wake-ups
TEST_CASE("a waiter that wake-ups have reached before does not poll as soon as it waits") {
    constexpr double few = 0.8;
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::sqlite) {
        auto options = database.options({.poll_interval = 10s});
        SUBCASE("by datagram") {
            options.wake_ups = wakeup_mode::automatic;
        }
        SUBCASE("by the database") {
            options.wake_ups = wakeup_mode::database;
        }
        // A client on SQLite that is not told by name watches the file, and polls at each commit.
        if (database.which() == support::backend::sqlite &&
            options.wake_ups == wakeup_mode::database) {
            continue;
        }
        // A wake-up that a busy machine delays past the first poll costs trust, and so more polls.
        CHECK(at_best(few, [&] { return polls_for_a_grant(database, options); }) < few);
        options.wake_ups = wakeup_mode::polling;
        options.poll_interval = 20ms;
        CHECK(polls_for_a_grant(database, options) > few);  // control
    }
}

namespace {

/// Hands over from one client to the other until the waiter got a grant without a poll.
bool comes_to_expect_wake_ups(support::lock_database& database, client& holder, client& waiter) {
    constexpr int most = 200;
    for (int i = 0; i < most; ++i) {
        auto held = holder.acquire("job");
        const auto before = waiter.stats().polls;
        auto waiting =
            std::async(std::launch::async, [&] { acquire_soon(waiter, "job").release(); });
        if (!places(database, 1)) return false;
        held.release();
        waiting.get();
        if (waiter.stats().polls == before) return true;
    }
    return false;
}

}  // namespace

// On PostgreSQL the statement that grants notifies.
// shows: wake-ups
TEST_CASE("a waiter that expects a wake-up polls early all the same, and so finds a silent grant") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::sqlite) {
        auto options = database.options({.poll_interval = 10s});
        options.wake_ups = wakeup_mode::automatic;
        interception network;
        client holder{database.source(), options};
        client waiter{network.wrap(database.source()), options};
        REQUIRE(comes_to_expect_wake_ups(database, holder, waiter));
        const support::protocol_session silent{database, session_id{7}};
        const support::protocol_connection hand{database};
        REQUIRE(hand.try_acquire("job", session_id{7}, grant_id{70}));
        std::atomic<bool> granted{false};
        std::mutex guard;
        network.before([&](std::string_view what) {
            if (what != "entries") return;
            // Not for a heartbeat, which reads the entries of a client as well.
            const std::lock_guard one_at_a_time{guard};
            const bool queued = database.number("select count(*) from rowlock_ticket") > 0;
            if (!queued || granted.exchange(true)) return;
            CHECK(hand.release("job", session_id{7}, grant_id{70}).next);
        });
        const auto start = steady::now();
        CHECK(acquire_soon(waiter, "job").held());
        CHECK(granted);
        CHECK(steady::now() - start < at_once);
    }
}

ROWLOCK_SIMULATED_CASE("a client that expects a queue which is gone gets the free lease at once",
                       database) {
    auto options = database.options({.poll_interval = 1h});
    options.wake_ups = wakeup_mode::automatic;
    client one{database.source(), options};
    client other{database.source(), options};
    constexpr int rounds = 20;
    const auto all_waits = [&] {
        milliseconds waited{0};
        for (int i = 0; i < rounds; ++i) {
            auto held = one.acquire("job");
            auto next =
                std::async(std::launch::async, [&] { acquire_soon(other, "job").release(); });
            REQUIRE(places(database, 1));
            held.release();  // to a waiter: its client expects another the next time
            next.get();
            const auto began = steady::now();
            const auto again = one.acquire("job");
            waited += std::chrono::floor<milliseconds>(steady::now() - began);
        }
        return waited;
    };
    // A notified waiter polls after 250 ms.
    constexpr milliseconds bound = rounds * 250ms / 2;
    CHECK(at_best(bound, all_waits) < bound);
}

// Queue entries and grants of threads that stopped waiting, and the cost of a wait without events.

#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;

namespace {

/// Whether this is the first of the statements that delete a ticket.
bool cancels(std::string_view what) {
    return what == "cancel" || what == "tickets";
}

/// Holds a client's cancellation back before it is sent.
struct cancel_held_up {
    std::promise<void> go;
    std::shared_ptr<std::atomic<bool>> reached = std::make_shared<std::atomic<bool>>(false);
    std::mutex mutex;
    std::vector<std::string> sent;  ///< statements since the cancellation

    explicit cancel_held_up(interception& network) {
        network.before(
            [this, gate = go.get_future().share(), there = reached](std::string_view what) {
                if (cancels(what) && !there->exchange(true)) gate.wait();
                if (!*there) return;
                const std::lock_guard lock{mutex};
                sent.emplace_back(what);
            });
    }
    std::vector<std::string> statements() {
        const std::lock_guard lock{mutex};
        return sent;
    }
};

/// Waits for the lease until the client has a ticket and has looked at it once, and then stops.
void wait_and_give_up(support::lock_database& database, client& waiter) {
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("job", support::patience, stop.get_token()).has_value();
    });
    CHECK(support::places(database, 1));
    CHECK(eventually([&] { return waiter.stats().polls > 0; }));
    stop.request_stop();
    CHECK_FALSE(waiting.get());
}

constexpr auto limited_entries =
    "select count(*) from rowlock_ticket where waits_until is not null";
constexpr auto pass_limits =
    "update rowlock_ticket set waits_until = enqueued_at where waits_until is not null";

/// Stops a client's loop twice: after it has read a grant, and before it gives one back.
class loop_held_up {
public:
    /// @param counted whether the grant is a counted hold, which no hand-over passes on
    loop_held_up(interception& network, bool counted) : network_{network} {
        network.after([seen = reading_](std::string_view what) {
            if (is_one_of(what, {"served", "confirm_and_read_next", "woken_for", "find_permits"})) {
                seen->pass();
            }
        });
        network.before([seen = giving_back_, counted](std::string_view what) {
            const bool gives_back = counted ? is_one_of(what, {"give_permits", "delete_permit"})
                                            : is_one_of(what, {"hand_over", "next_waiter"});
            if (gives_back) seen->pass();
        });
    }
    ~loop_held_up() {
        reading_->open();
        giving_back_->open();
        network_.before({});
        network_.after({});
    }
    loop_held_up(const loop_held_up&) = delete;
    loop_held_up& operator=(const loop_held_up&) = delete;

    void arm() { reading_->armed = giving_back_->armed = true; }
    [[nodiscard]] bool has_read() const {
        return eventually([&] { return reading_->reached.load(); });
    }
    void go_on() { reading_->open(); }
    [[nodiscard]] bool gives_back() const {
        return eventually([&] { return giving_back_->reached.load(); });
    }

private:
    struct gate {
        std::atomic<bool> armed{false}, reached{false};
        std::promise<void> go{};
        std::shared_future<void> opened = go.get_future().share();
        std::atomic<bool> is_open{false};
        void pass() {
            if (!armed || is_open) return;
            reached = true;
            opened.wait();
        }
        void open() {
            if (!is_open.exchange(true)) go.set_value();
        }
    };
    static bool is_one_of(std::string_view what, std::initializer_list<std::string_view> names) {
        return std::ranges::find(names, what) != names.end();
    }

    interception& network_;
    std::shared_ptr<gate> reading_ = std::make_shared<gate>(),
                          giving_back_ = std::make_shared<gate>();
};

/// A kind of hold of "job": how a thread waits for it until a stop, and takes it with another name.
struct kind_of_hold {
    const char* what;
    bool counted;
    std::function<std::function<void()>(client&)> hold;  ///< returns its release
    std::function<bool(client&, std::stop_token)> wait;
    std::function<bool(client&)> try_with_another;
};

kind_of_hold leases() {
    return {.what = "lease",
            .counted = false,
            .hold =
                [](client& locks) {
                    const auto held = std::make_shared<lease>(locks.acquire("job"));
                    return [held] { held->release(); };
                },
            .wait =
                [](client& locks, std::stop_token stop) {
                    return locks
                        .try_acquire_for("job", support::patience, std::move(stop),
                                         {.max_duration = 1h})
                        .has_value();
                },
            .try_with_another =
                [](client& locks) {
                    return locks.try_acquire_all({"another", "job"}).has_value();
                }};
}

kind_of_hold permits_of_one() {
    return {.what = "permits",
            .counted = true,
            .hold =
                [](client& locks) {
                    semaphore{locks, "job"}.create(1);
                    const auto held = std::make_shared<permits>(semaphore{locks, "job"}.acquire(1));
                    return [held] { held->release(); };
                },
            .wait =
                [](client& locks, std::stop_token stop) {
                    return semaphore{locks, "job"}
                        .try_acquire_for(1, support::patience, std::move(stop))
                        .has_value();
                },
            .try_with_another = [](client&) { return false; }};
}

kind_of_hold modes() {
    return {.what = "shared",
            .counted = true,
            .hold =
                [](client& locks) {
                    static_cast<void>(shared_mutex{locks, "another"}.acquire(lock_mode::exclusive));
                    const auto held = std::make_shared<mode_lease>(
                        shared_mutex{locks, "job"}.acquire(lock_mode::exclusive));
                    return [held] { held->release(); };
                },
            .wait =
                [](client& locks, std::stop_token stop) {
                    return shared_mutex{locks, "job"}
                        .try_acquire_for(lock_mode::shared, support::patience, std::move(stop))
                        .has_value();
                },
            .try_with_another =
                [](client& locks) {
                    return locks.try_acquire_all({"another", "job"}).has_value();
                }};
}

/// Waits until the client with a ttl of 60 s has been granted the lease, whether it knows or not.
bool served_to_ttl_60s(support::lock_database& database) {
    return eventually([&] {
        return database.number(
                   "select count(*) from rowlock_lock l join rowlock_session s on "
                   "s.id = l.session where s.ttl_us = 60000000") == 1;
    });
}

}  // namespace

TEST_CASE("a lease granted to a thread that stopped waiting goes on after one more statement") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool another_waits : {false, true}) {
            CAPTURE(another_waits);
            client holder{database.source(), database.options()};
            client other{database.source(), database.options({.poll_interval = 10s})};
            interception network;
            client slow{network.wrap(database.source()),
                        database.options({.ttl = 60s, .poll_interval = 1min})};
            auto job = holder.acquire("job");
            cancel_held_up cancel{network};
            CHECK_FALSE(slow.try_acquire("job"));  // opens its session
            wait_and_give_up(database, slow);
            REQUIRE(eventually([&] { return cancel.reached->load(); }));
            std::future<lease> waiting;
            if (another_waits) {
                waiting = std::async(std::launch::async,
                                     [&] { return support::acquire_soon(other, "job"); });
                REQUIRE(support::places(database, 2));
            }
            job.release();
            REQUIRE(served_to_ttl_60s(database));
            if (!another_waits) CHECK_FALSE(other.try_acquire("job"));
            cancel.go.set_value();
            if (another_waits) {
                CHECK(waiting.get().held());
            } else {
                CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
            }
            // The cancellation, a probe on some databases, and the release or the hand-over.
            const auto sent = cancel.statements();
            CHECK(std::ranges::find(sent, "heartbeat") == sent.end());
            CHECK(std::ranges::find(sent, "served") == sent.end());
            CHECK(eventually([&] { return slow.stats().held == 0; }));
            network.before({});
        }
    }
}

TEST_CASE("a grant that comes after its caller has left counts as held by no thread") {
    ROWLOCK_FOR_A_CLIENT(database) {
        for (const auto& kind : {leases(), permits_of_one(), modes()}) {
            CAPTURE(std::string{kind.what});
            // A name that was made a semaphore stays one.
            for (const char* table : {"hold", "lock"}) {
                database.run(std::string{"delete from rowlock_"} + table);
            }
            client holder{database.source(), database.options()};
            interception network;
            client leaving{network.wrap(database.source()),
                           database.options({.ttl = 60s, .poll_interval = 1min})};
            const auto release = kind.hold(holder);
            loop_held_up loop{network, kind.counted};
            std::stop_source stop;
            struct answers {
                bool granted = true, held = true, asserted = true, with_another = true;
                std::size_t leases = 1;
            };
            auto calling = std::async(std::launch::async, [&] {
                answers got{.granted = kind.wait(leaving, stop.get_token())};
                loop.go_on();
                REQUIRE(loop.gives_back());
                got.held = leaving.holds("job");
                got.asserted =
                    support::kind_of([&] { leaving.assert_held("job"); }) != errc::not_owner;
                got.leases = leaving.stats().held;
                got.with_another = kind.try_with_another(leaving);  // throws if it would wait
                return got;
            });
            REQUIRE(eventually([&] { return leaving.stats().queued == 1; }));
            REQUIRE(eventually([&] { return leaving.stats().polls > 0; }));
            loop.arm();
            release();
            REQUIRE(loop.has_read());
            stop.request_stop();
            const auto got = calling.get();
            CHECK_FALSE(got.granted);
            CHECK_FALSE(got.held);
            CHECK_FALSE(got.asserted);
            CHECK(got.leases == 0);
            CHECK_FALSE(got.with_another);
        }
    }
}

ROWLOCK_SIMULATED_CASE("reclaimed leases count as held once reclaim() returns them", database) {
    const auto options = database.options({.owner = "worker"});
    const support::protocol_connection predecessor{database};
    predecessor.open(session_id{1}, {.owner = "worker"});
    REQUIRE(predecessor.try_acquire("a", session_id{1}, grant_id{10}));
    REQUIRE(predecessor.try_acquire("b", session_id{1}, grant_id{20}));
    interception network;
    client successor{network.wrap(database.source()), options};
    std::atomic<bool> early{false};
    std::atomic<int> statements{0};
    network.before([&, caller = std::this_thread::get_id()](std::string_view) {
        if (std::this_thread::get_id() != caller) return;
        ++statements;
        if (successor.holds("a") || successor.holds("b")) early = true;
    });
    const auto taken = successor.reclaim().leases;
    CHECK(taken.size() == 2);
    CHECK(statements > 2);
    CHECK_FALSE(early);
    CHECK(successor.holds("a"));
    CHECK(successor.holds("b"));
    network.before({});
}

// The loss of the session comes between the two: the first is a grant by then, and the second is
// not, so that whoever declares the loss does not see it.
ROWLOCK_SIMULATED_CASE(
    "a lease that is lost while it is reclaimed is returned as lost, and reported", database) {
    const support::protocol_connection predecessor{database};
    predecessor.open(session_id{1}, {.owner = "worker"});
    REQUIRE(predecessor.try_acquire("a", session_id{1}, grant_id{10}));
    REQUIRE(predecessor.try_acquire("b", session_id{1}, grant_id{20}));
    interception network;
    support::event_log events;
    client successor{
        network.wrap(database.source()),
        database.options({.heartbeat = 200ms, .owner = "worker", .on_event = events.callback()})};
    std::atomic<int> found{0};
    network.after([&, caller = std::this_thread::get_id()](std::string_view what) {
        if (std::this_thread::get_id() != caller || what != "find_grant" || ++found != 2) return;
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                     " where id <> 1");
        CHECK(eventually([&] { return events.has(event_kind::session_ended); }));
    });
    const auto taken = successor.reclaim().leases;
    network.after({});
    REQUIRE(found == 2);
    CHECK(taken.size() == 2);
    for (const auto& each : taken) {
        CHECK_FALSE(each.held());
        CHECK(each.lost().stop_requested());
    }
    CHECK(eventually([&] {
        return events.count(event_kind::lease_lost, loss_reason::session_ended) +
                   events.count(event_kind::lease_lost, loss_reason::trust_window_passed) ==
               2;
    }));
    CHECK(successor.stats().held == 0);
}

// shows: promise-9
TEST_CASE("a waiter whose limit has passed is skipped by the hand-over and by the poller") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool polled : {false, true}) {
            // The control: without its limit the entry is served although its caller has left.
            for (const bool limited : {true, false}) {
                CAPTURE(polled);
                CAPTURE(limited);
                client holder{database.source(), database.options()};
                client other{database.source(), database.options({.poll_interval = 50ms})};
                interception network;
                client gone{network.wrap(database.source()),
                            database.options({.ttl = 60s, .poll_interval = 1min})};
                auto job = holder.acquire("job");
                cancel_held_up cancel{network};
                CHECK_FALSE(gone.try_acquire("job"));  // opens its session
                // Its loop cannot delete the entry.
                wait_and_give_up(database, gone);
                REQUIRE(database.number(limited_entries) == 1);
                database.run(limited ? pass_limits
                                     : "update rowlock_ticket set waits_until = null");
                auto waiting = std::async(std::launch::async,
                                          [&] { return support::acquire_soon(other, "job"); });
                REQUIRE(support::places(database, 2));
                REQUIRE(eventually([&] { return other.stats().polls > 0; }));
                const auto before = job.token();
                if (polled) {
                    database.run("update rowlock_lock set session = null, grant_id = null");
                } else {
                    job.release();
                }
                if (limited) {
                    const auto next = waiting.get();
                    CHECK(next.token().value() == before.value() + 1);  // no grant in between
                    CHECK(next.held());
                    cancel.go.set_value();
                } else {
                    CHECK(served_to_ttl_60s(database));
                    cancel.go.set_value();
                    CHECK(waiting.get().token().value() > before.value() + 1);
                }
                CHECK(support::places(database, 0));
                network.before({});
            }
        }
    }
}

// A statement that serves the queue may have chosen this entry; or those behind it fit beside the
// counted holds.
ROWLOCK_SIMULATED_CASE("a client that gives up its place looks behind it", database) {
    interception network;
    std::atomic<bool> gives_up{false};
    std::atomic<int> looks{0};
    network.before([&](std::string_view what) {
        if (gives_up && (what == "names_with_waiters" || what == "next_waiter")) ++looks;
    });
    client holder{database.source(), database.options()};
    client leaving{network.wrap(database.source()), database.options()};
    client behind{database.source(), database.options()};
    auto held = holder.acquire("job");
    std::stop_source stop;
    auto first =
        std::async(std::launch::async, [&] { return leaving.acquire("job", stop.get_token()); });
    REQUIRE(eventually([&] { return holder.waiters("job").size() == 1; }));
    auto second = std::async(std::launch::async,
                             [&] { return behind.try_acquire_for("job", support::patience); });
    REQUIRE(eventually([&] { return holder.waiters("job").size() == 2; }));
    gives_up = true;
    stop.request_stop();
    CHECK_FALSE(first.get());
    CHECK(eventually([&] { return holder.waiters("job").size() == 1; }));
    CHECK(eventually([&] { return looks > 0; }));
    held.release();
    CHECK(second.get());
}

TEST_CASE("a waiter whose limit has passed keeps no newcomer from a free lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client newcomer{database.source(), database.options()};
        interception network;
        client gone{network.wrap(database.source()),
                    database.options({.ttl = 60s, .poll_interval = 1min})};
        auto job = holder.acquire("job");
        cancel_held_up cancel{network};
        wait_and_give_up(database, gone);
        REQUIRE(database.number(limited_entries) == 1);
        database.run(pass_limits);
        job.release();
        CHECK(newcomer.try_acquire("job").has_value());
        cancel.go.set_value();
        CHECK(support::places(database, 0));
        network.before({});
    }
}

ROWLOCK_SIMULATED_CASE("a destroyed client cancels the entry of an enqueue whose reply was lost",
                       database) {
    client holder{database.source(), database.options()};
    const auto held = holder.acquire("job");
    std::atomic<bool> lost{false};
    std::atomic<bool> ended{false};
    interception network;
    network.after([&](std::string_view what) {
        if (what == "enqueue" && !lost.exchange(true)) interception::lose_reply();
    });
    // Until the session ends no cancellation of the heartbeat's gets through.
    network.before([&](std::string_view what) {
        if (what == "end_session") ended = true;
        if (cancels(what) && !ended) throw error{errc::timed_out, "held up"};
    });
    {
        client slow{network.wrap(database.source()), database.options({.ttl = 60s})};
        std::stop_source stop;
        auto waiting = std::async(std::launch::async, [&] {
            return slow.try_acquire_for("job", support::patience, stop.get_token()).has_value();
        });
        CHECK(eventually([&] { return slow.stats().queued == 1; }));
        stop.request_stop();
        CHECK_FALSE(waiting.get());
        CHECK(lost);
        CHECK(slow.stats().unknown_outcomes == 1);
        CHECK(database.number("select count(*) from rowlock_ticket") >= 1);
    }
    CHECK(ended);
    CHECK(database.number("select count(*) from rowlock_ticket") == 0);
}

TEST_CASE("the client that ends an expired session deletes its entries in all queues") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection hand{database};
        for (const std::int64_t dead : {1, 2}) {
            const session_id session{dead};
            hand.open(session);
            REQUIRE(hand.try_acquire("job " + std::to_string(dead), session, grant_id{dead}));
            hand.enqueue("report", session, grant_id{10 + dead});
            hand.enqueue("backup", session, grant_id{20 + dead});
        }
        database.run("update rowlock_session set expires_at = opened_at");
        client other{database.source(), database.options()};
        CHECK(other.try_acquire_for("job 1", 10s).has_value());
        const auto entries_of = [&](int dead) {
            return database.number("select count(*) from rowlock_ticket where session = " +
                                   std::to_string(dead));
        };
        CHECK(eventually([&] { return entries_of(1) == 0; }));
        CHECK(entries_of(2) == 2);  // expired, but not ended
        CHECK(other.try_acquire_for("report", 10s).has_value());
    }
}

ROWLOCK_SIMULATED_CASE(
    "a grant to a thread that stopped waiting is released, however slow the statements are",
    database) {
    client holder{database.source(), database.options()};
    client other{database.source(), database.options()};
    interception network;
    client slow{network.wrap(database.source()), database.options({.ttl = 60s})};
    auto job = holder.acquire("job");
    cancel_held_up cancel{network};
    CHECK_FALSE(slow.try_acquire("job"));  // opens its session
    wait_and_give_up(database, slow);
    REQUIRE(eventually([&] { return cancel.reached->load(); }));
    job.release();
    REQUIRE(served_to_ttl_60s(database));
    CHECK_FALSE(other.try_acquire("job"));
    network.before([](std::string_view) { std::this_thread::sleep_for(160ms); });
    cancel.go.set_value();
    CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
    network.before({});
}

ROWLOCK_SIMULATED_CASE("a call that stopped waiting does not count as waiting", database) {
    client holder{database.source(), database.options()};
    const auto job = holder.acquire("job");
    interception network;
    client giving_up{network.wrap(database.source()), database.options()};
    cancel_held_up cancel{network};
    CHECK_FALSE(giving_up.try_acquire("job"));  // opens its session
    wait_and_give_up(database, giving_up);
    CHECK(giving_up.stats().waiting == 0);
    cancel.go.set_value();
    CHECK(support::places(database, 0));
    network.before({});
}

ROWLOCK_SIMULATED_CASE("a client that waits without events sends few statements", database) {
    client holder{database.source(), database.options()};
    const auto job = holder.acquire("job");
    interception network;
    const auto sent = std::make_shared<std::atomic<int>>(0);
    client waiter{network.wrap(database.source()), database.options({.ttl = 60s})};
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("job", 2min, stop.get_token()).has_value();
    });
    CHECK(support::places(database, 1));
    std::this_thread::sleep_for(1s);  // all connections are open and set up
    network.before([sent](std::string_view) { ++*sent; });
    const auto in_four_seconds = [&] {
        const int before = *sent;
        std::this_thread::sleep_for(4s);
        return *sent - before;
    };
    // One poll a second, and on MariaDB a sleep in the server every two seconds.
    const int too_many = database.speaks() == sql::dialect::mysql ? 9 : 6;
    CHECK(support::at_best(too_many, in_four_seconds) < too_many);
    network.before({});
    stop.request_stop();
    CHECK_FALSE(waiting.get());
}

TEST_CASE("a SQLite file in a folder that does not exist is refused at once") {
    client locks{sqlite::open("sqlite:/nowhere/at/all.db")};
    try {
        (void)locks.try_acquire("job");
        FAIL("it was opened");
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::invalid_url);
        CHECK(std::string{failure.what()}.find("/nowhere/at") != std::string::npos);
    }
    CHECK(locks.stats().retries == 0);
}

// Leases that a client retains after their release, for its own threads (client_options::retain).
// shows: promise-21, fault-dead-keeper

#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

/// Polls so seldom that only a recall and a wake-up end a wait in time.
client_options plain(const support::lock_database& database) {
    auto options = database.options({.poll_interval = 1h});
    options.wake_ups = wakeup_mode::automatic;  // by datagram, as between clients on one machine
    return options;
}

/// Keeps leases for so long that a test which waits for that fails.
client_options keeping(const support::lock_database& database,
                       std::chrono::milliseconds longest = 10s) {
    auto options = plain(database);
    options.retain = retain_options{.longest = longest};
    return options;
}

bool is_kept(client& locks, const std::string& name) {
    const auto seen = locks.inspect(name);
    return seen && seen->holder && seen->holder->retained;
}

/// Takes and releases the lease until the client keeps it. Returns the latest token.
std::int64_t until_kept(client& locks, const std::string& name) {
    std::int64_t token = 0;
    bool kept = is_kept(locks, name);
    for (int i = 0; i < 20 && !kept; ++i) {
        token = locks.acquire(name).token().value();
        kept = is_kept(locks, name);
    }
    REQUIRE(kept);
    return token;
}

std::int64_t entries(support::lock_database& database) {
    return database.number("select count(*) from rowlock_ticket");
}

std::int64_t row_token(support::lock_database& database, const std::string& name) {
    return database.number("select token from rowlock_lock where name = '" + name + "'");
}

/// As if the process of the session had vanished.
void expire(support::lock_database& database, session_id session) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    database.run("update rowlock_session set expires_at = expires_at - " +
                 std::string{postgresql ? "interval '1 day'" : "86400000000"} +
                 " where id = " + to_string(session));
}

/// Shorter than the ten seconds for which keeping() keeps a lease, and longer than a stall.
constexpr auto before_its_time = 8s;

/// Ends all sessions, as another client that found them expired.
void end_sessions(support::lock_database& database) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    database.run("update rowlock_session set ended = " + std::string{postgresql ? "true" : "1"});
}

/// A client that uses a lease a part of the time, and retains it in between.
class user_now_and_then {
public:
    user_now_and_then(client& locks, std::string name) : locks_{locks}, name_{std::move(name)} {
        until_kept(locks_, name_);
        user_ = std::jthread{[this](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                static_cast<void>(locks_.try_acquire(name_));
                std::this_thread::sleep_for(5ms);  // most of its time the lease is idle
            }
        }};
    }

private:
    client& locks_;
    const std::string name_;
    std::jthread user_;
};

/// A call of another client, which waits.
class waiting_acquire {
public:
    waiting_acquire(client& locks, const std::string& name)
        : lease_{std::async(std::launch::async,
                            [&locks, name] { return locks.try_acquire_for(name, 30s); })} {}
    [[nodiscard]] bool has_it(std::chrono::milliseconds within = before_its_time) {
        return lease_.wait_for(within) == std::future_status::ready;
    }
    lease get() { return std::move(*lease_.get()); }

private:
    std::future<std::optional<lease>> lease_;
};

}  // namespace

TEST_CASE(
    "a lease that one client takes again and again costs no round trips, and its tokens rise") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), keeping(database)};
        client other{database.source(), plain(database)};
        std::int64_t last = until_kept(locks, "job");
        network.statements = 0;
        for (int i = 0; i < 200; ++i) {
            auto held = locks.acquire("job", {.note = "pair"});
            REQUIRE(held.held());
            REQUIRE(held.token().value() > last);
            last = held.token().value();
            held.release();
            REQUIRE_FALSE(held.held());
            REQUIRE(held.token().value() == last);
        }
        CHECK(network.statements < 10);  // each reserves a block of tokens
        CHECK(locks.stats().local_grants >= 190);
        CHECK(locks.stats().held == 0);
        CHECK(row_token(database, "job") >= last);
        const auto seen = other.inspect("job");
        REQUIRE(seen->holder);
        CHECK(seen->holder->retained);
        CHECK(seen->holder->thread.empty());
    }
}

TEST_CASE("a mutex and a recursive_mutex lock what their client retains, without a round trip") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), keeping(database)};
        const auto lock_again = [&](auto& which) {
            until_kept(locks, which.name());
            network.statements = 0;
            std::int64_t last = 0;
            for (int i = 0; i < 200; ++i) {
                const std::lock_guard once{which};
                REQUIRE(which.held());
                REQUIRE(which.token().value() > last);
                last = which.token().value();
            }
            CHECK(network.statements < 10);  // each reserves a block of tokens
            CHECK(is_kept(locks, which.name()));
        };
        rowlock::mutex once{locks, "job"};
        lock_again(once);
        rowlock::recursive_mutex again{locks, "another job"};
        lock_again(again);
        const std::lock_guard outer{again};
        const std::lock_guard inner{again};
        CHECK(again.held());
    }
}

ROWLOCK_SIMULATED_CASE(
    "a try by another thread of the client that uses its retained lease fails at once", database) {
    interception network;
    client locks{network.wrap(database.source()), keeping(database)};
    client other{database.source(), plain(database)};
    until_kept(locks, "job");
    auto held = locks.acquire("job");
    std::atomic<int> sent{0};
    network.before([&](std::string_view) { ++sent; });
    const auto tries = [&] {
        return std::async(std::launch::async, [&] { return locks.try_acquire("job"); });
    };
    const auto busy = locks.stats().busy;
    for (int i = 0; i < 200; ++i) REQUIRE_FALSE(tries().get());
    CHECK(sent < 20);  // heartbeats
    CHECK(locks.stats().busy == busy + 200);
    CHECK(locks.stats().recalls == 0);
    held.release();
    CHECK(is_kept(locks, "job"));
    // Another client recalls it: the lease is not kept any more, and a try asks the database.
    held = locks.acquire("job");
    CHECK_FALSE(other.try_acquire("job"));
    CHECK(eventually([&] { return locks.stats().recalls == 1; }));
    const int before = sent;
    CHECK_FALSE(tries().get());
    CHECK(sent > before);
    held.release();
    CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
}

ROWLOCK_SIMULATED_CASE(
    "a try finds a retained lease free although a thread that has lost it still uses it",
    database) {
    auto options = keeping(database);
    options.heartbeat = 100ms;
    client locks{database.source(), options};
    until_kept(locks, "job");
    const auto local = locks.stats().local_grants;
    const auto held = locks.acquire("job");
    REQUIRE(locks.stats().local_grants == local + 1);
    const auto is_free = [&] {
        return std::async(std::launch::async, [&] { return locks.try_acquire("job").has_value(); })
            .get();
    };
    REQUIRE_FALSE(is_free());
    SUBCASE("with its session") {
        end_sessions(database);
        CHECK(eventually(is_free, before_its_time));
        CHECK(eventually([&] { return !held.held(); }));
    }
    SUBCASE("since its own client freed it") {
        REQUIRE(locks.force_release("job"));
        CHECK(is_free());
    }
}

TEST_CASE("tries by another thread do not end the retention of a lease, whenever they come") {
    ROWLOCK_FOR_A_CLIENT(database) {
        client locks{database.source(), keeping(database, 2s)};
        until_kept(locks, "job");
        std::atomic<bool> over{false};
        auto pairs = std::async(std::launch::async, [&] {
            while (!over) {
                if (auto held = locks.try_acquire("job")) held->release();
            }
        });
        const auto end = std::chrono::steady_clock::now() + 3s;  // three renewals
        int vain = 0;
        while (std::chrono::steady_clock::now() < end) {
            if (!locks.try_acquire("job")) ++vain;
        }
        over = true;
        pairs.get();
        CHECK(vain > 0);
        CHECK(locks.stats().recalls == 0);
        // The control: such tries of another client.
        client other{database.source(), plain(database)};
        CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
        CHECK(locks.stats().recalls > 0);
    }
}

ROWLOCK_SIMULATED_CASE("a client retains at most as many leases as `names` allows", database) {
    auto options = keeping(database);
    options.retain->names = 1;
    client locks{database.source(), options};
    until_kept(locks, "one");
    for (int i = 0; i < 20; ++i) locks.acquire("another").release();
    CHECK_FALSE(is_kept(locks, "another"));
    CHECK(is_kept(locks, "one"));
    client other{database.source(), plain(database)};
    other.acquire("one").release();  // recalls it: there is room again soon
    CHECK(eventually([&] {
        locks.acquire("another").release();
        return is_kept(locks, "another");
    }));
}

TEST_CASE("a client without `retain` retains nothing (control)") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), plain(database)};
        { const auto first = locks.acquire("job"); }
        network.statements = 0;
        for (int i = 0; i < 20; ++i) {
            const auto held = locks.acquire("job");
            CHECK_FALSE(is_kept(locks, "job"));
        }
        CHECK(network.statements >= 40);
        CHECK(locks.stats().local_grants == 0);
    }
}

TEST_CASE("another client gets an idle retained lease at once, with a greater token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        const auto last = until_kept(locks, "job");
        waiting_acquire call{other, "job"};
        REQUIRE(call.has_it());
        const auto held = call.get();
        CHECK(held.token().value() > last);
        CHECK(locks.stats().recalls == 1);
        CHECK_FALSE(locks.try_acquire("job"));
        CHECK_FALSE(is_kept(locks, "job"));
    }
}

TEST_CASE("a reader gets an idle retained lease at once, of another client or its own") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr auto shared = lock_mode::shared;
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        const auto until_kept_again = [&] {
            REQUIRE(eventually([&] {
                locks.acquire("job").release();
                return is_kept(locks, "job");
            }));
        };
        const auto reads_soon = [&](client& by) {
            return shared_mutex{by, "job"}.try_acquire_for(shared, before_its_time).has_value();
        };
        until_kept_again();
        CHECK(reads_soon(other));
        until_kept_again();
        CHECK(reads_soon(locks));
        until_kept_again();
        for (client* by : {&other, &locks}) {
            CHECK(by->try_acquire_all_for({{"another", shared}, {"job", shared}}, before_its_time));
            until_kept_again();
        }
        CHECK(eventually(
            [&] {
                return shared_mutex{other, "job"}.try_acquire(shared).has_value();
            },
            before_its_time));
    }
}

TEST_CASE("a reader recalls a lease that was retained between its attempt and its entry") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        interception network;
        client other{network.wrap(database.source()), plain(database)};
        auto held = locks.acquire("job");
        bool once = true;
        network.before([&](std::string_view what) {
            if (what != "enqueue" || !std::exchange(once, false)) return;
            held.release();
            until_kept(locks, "job");
        });
        CHECK(shared_mutex{other, "job"}.try_acquire_for(lock_mode::shared, before_its_time));
        CHECK_FALSE(once);
    }
}

TEST_CASE("PostgreSQL passes a recall on where there is no datagram") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        auto options = keeping(database);
        options.wake_ups = wakeup_mode::database;
        options.heartbeat = 1s;
        client locks{database.source(), options};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        // With its next heartbeat, which is due at once, the client listens: behind that is
        // another.
        REQUIRE(eventually([&] { return locks.stats().heartbeats > 1; }));
        waiting_acquire call{other, "job"};
        CHECK(call.has_it());
        CHECK(locks.stats().recalls == 1);
    }
}

TEST_CASE("a retained lease that is in use is handed over at its release, and not before") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        auto held = locks.acquire("job", {.note = "in use"});
        const auto local = locks.stats().local_grants;
        waiting_acquire call{other, "job"};
        REQUIRE(eventually([&] { return locks.stats().recalls == 1; }));
        // Its row names the thread that holds it again.
        REQUIRE(eventually([&] { return !is_kept(other, "job"); }));
        CHECK(other.inspect("job")->holder->note == "in use");
        CHECK_FALSE(other.inspect("job")->holder->thread.empty());
        CHECK_FALSE(call.has_it(50ms));
        CHECK(held.held());
        held.release();
        CHECK(call.has_it());
        CHECK(call.get().token() > held.token());
        CHECK(locks.stats().local_grants == local);
    }
}

TEST_CASE("a try of another client takes an idle retained lease, and none that is in use") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        std::optional<lease> taken;
        // A try waits 50 ms for the recall: more than a loaded machine may need.
        CHECK(eventually([&] { return (taken = other.try_acquire("job")).has_value(); },
                         before_its_time));
        taken.reset();

        until_kept(locks, "busy");
        const auto held = locks.acquire("busy");
        CHECK_FALSE(other.try_acquire("busy"));
        CHECK_FALSE(other.try_acquire("busy", {.queueing = queueing::barging}));
        REQUIRE(eventually([&] { return !is_kept(other, "busy"); }));
        CHECK_FALSE(other.try_acquire("busy"));
        CHECK(held.held());
    }
}

ROWLOCK_SIMULATED_CASE(
    "a client that no recall reaches gives a lease that it uses now and then back to tries",
    database) {
    auto deaf = plain(database);
    deaf.wake_ups = wakeup_mode::polling;  // sends no recall
    client locks{database.source(), keeping(database, 1s)};
    client other{database.source(), deaf};
    std::optional<lease> taken;
    SUBCASE("a try") {
        until_kept(locks, "job");
        CHECK(eventually([&] {
            static_cast<void>(locks.acquire("job"));
            return (taken = other.try_acquire("job")).has_value();
        }));
    }
    SUBCASE("a client outside the queue") {
        const user_now_and_then user{locks, "job"};
        CHECK((taken = other.try_acquire_for(
                   "job", before_its_time,
                   {.queueing = queueing::barging, .spin = {.longest = 20ms}})));
    }
    SUBCASE("a wait that ends before the client looks") {
        const user_now_and_then user{locks, "job"};
        if (!other.try_acquire_for("job", 200ms)) {
            CHECK(eventually(
                [&] {
                    return database.number(
                               "select count(*) from rowlock_lock where name = 'job' and "
                               "session is null") == 1;
                },
                before_its_time));
        }
    }
    SUBCASE("a try for several") {
        const user_now_and_then user{locks, "job"};
        CHECK(eventually(
            [&] {
                return other.try_acquire_all({"another", "job"}).has_value();
            },
            before_its_time));
    }
    SUBCASE("a client outside the queues, for several") {
        const user_now_and_then user{locks, "job"};
        CHECK(
            other.try_acquire_all_for({"another", "job"}, before_its_time,
                                      {.queueing = queueing::barging, .spin = {.longest = 20ms}}));
    }
}

ROWLOCK_SIMULATED_CASE(
    "tries that neither recall nor mark find a lease that is used now and then always held "
    "(control)",
    database) {
    interception network;
    auto deaf = plain(database);
    deaf.wake_ups = wakeup_mode::polling;  // sends no recall
    client locks{database.source(), keeping(database, 1s)};
    client other{network.wrap(database.source()), deaf};
    network.before([](std::string_view what) {
        if (what == "withdraw_retention") interception::refuse_to_send();
    });
    std::function<bool()> tries = [&] { return other.try_acquire("job").has_value(); };
    SUBCASE("one") {}
    SUBCASE("several") {
        tries = [&] { return other.try_acquire_all({"another", "job"}).has_value(); };
    }
    const user_now_and_then user{locks, "job"};
    CHECK_FALSE(eventually(tries, 1500ms));  // longer than the lease is retained unrenewed
    network.before({});
    CHECK(eventually(tries));
}

TEST_CASE("an idle retained lease that is released by force is granted locally no more") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        for (const bool by_token : {false, true}) {
            const std::string name = by_token ? "named" : "job";
            until_kept(locks, name);
            const auto seen = other.inspect(name);
            REQUIRE(seen);
            CHECK((by_token ? other.force_release(name, seen->token) : other.force_release(name)));
            const auto taken = other.try_acquire(name);
            REQUIRE(taken);
            CHECK(taken->token() > seen->token);
            CHECK_FALSE(locks.try_acquire(name));
            CHECK(taken->held());
        }
    }
}

TEST_CASE("a retained lease in use is released by force, and its client's next grant waits") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        auto held = locks.acquire("job");
        CHECK(other.force_release("job"));
        const auto taken = other.try_acquire("job");
        REQUIRE(taken);
        CHECK(taken->token() > held.token());
        CHECK(eventually([&] { return !held.held(); }));
        CHECK_FALSE(locks.try_acquire("job"));
        CHECK(taken->held());
    }
}

ROWLOCK_SIMULATED_CASE("a client detects that the token of a lease that it keeps idle was lowered",
                       database) {
    for (const char* lowered : {"0", "1"}) {
        CAPTURE(lowered);
        auto options = keeping(database);
        options.heartbeat = 100ms;
        client locks{database.source(), options};
        const auto last = until_kept(locks, "job");
        const auto reserved = row_token(database, "job");
        database.run("update rowlock_lock set token = " + std::string{lowered});
        CHECK(eventually(
            [&] { return database.number("select floor from rowlock_token_floor") >= reserved; }));
        client other{database.source(), plain(database)};
        const auto next = other.acquire("job");
        CHECK(next.token().value() > last);
        CHECK(next.token().value() > reserved);
    }
}

TEST_CASE("a client outside the queue recalls a retained lease, too") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        CHECK(other.try_acquire_for("job", before_its_time, {.queueing = queueing::barging}));
    }
}

TEST_CASE("a retained lease is given back when it was not used for a while") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        support::event_log events;
        auto options = keeping(database, 200ms);
        options.on_event = events.callback();
        client locks{database.source(), options};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        CHECK(eventually([&] { return !other.is_locked("job"); }));
        const auto stats = locks.stats();
        CHECK(stats.acquired == stats.released);
        CHECK(stats.lost == 0);
        CHECK(locks.try_acquire("job"));
    }
}

TEST_CASE("a lost recall delays another client by no more than `longest`") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database, 300ms)};
        // Neither sends recalls, nor needs a wake-up.
        client other{database.source(),
                     database.options({.poll_interval = 20ms, .wake_ups = wakeup_mode::polling})};
        until_kept(locks, "job");
        const std::jthread again{[&](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                if (auto held = locks.try_acquire("job")) held->release();
            }
        }};
        CHECK(other.try_acquire_for("job", support::patience));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a client that vanishes with a retained lease blocks others for its ttl, and repeats no "
    "token",
    database) {
    interception network;
    client locks{network.wrap(database.source()), keeping(database)};
    client other{database.source(), plain(database)};
    until_kept(locks, "job");
    const auto last = locks.acquire("job").token().value();
    const auto session = other.inspect("job")->holder->session;
    SUBCASE("the tokens are in its row") {
        expire(database, session);
        const auto held = other.acquire("job");
        CHECK(held.token().value() > last);
    }
    SUBCASE("were they not, another client would get one of them (control)") {
        // A heartbeat that finds the row so would mend it.
        network.before([](std::string_view what) {
            if (what == "lift_floor") interception::refuse_to_send();
        });
        database.run("update rowlock_lock set token = 1 where name = 'job'");
        expire(database, session);
        const auto held = other.acquire("job");
        CHECK(held.token().value() <= last);
        network.before({});
    }
}

TEST_CASE("a ticket that comes before the tokens are reserved gets the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), keeping(database)};
        client other{database.source(), plain(database)};
        std::optional<waiting_acquire> call;
        network.before([&](std::string_view what) {
            if (what != "retain" || call) return;
            call.emplace(other, "job");
            REQUIRE(eventually([&] { return entries(database) == 1; }));
        });
        for (int i = 0; i < 20 && !call; ++i) static_cast<void>(locks.acquire("job"));
        REQUIRE(call);
        CHECK(call->has_it());
        CHECK(locks.stats().local_grants == 0);
        CHECK(locks.stats().recalls == 0);  // it was never retained
    }
}

ROWLOCK_SIMULATED_CASE(
    "a recall that comes before the reply of the statement that reserves tokens is not lost",
    database) {
    interception network;
    client locks{network.wrap(database.source()), keeping(database)};
    client other{database.source(), plain(database)};
    std::optional<waiting_acquire> call;
    network.after([&](std::string_view what) {
        if (what != "retain" || call) return;
        call.emplace(other, "job");
        REQUIRE(eventually([&] { return locks.stats().recalls == 1; }));
    });
    for (int i = 0; i < 20 && !call; ++i) static_cast<void>(locks.acquire("job"));
    REQUIRE(call);
    CHECK(call->has_it());
    CHECK(locks.stats().local_grants == 0);
}

ROWLOCK_SIMULATED_CASE("a lost reply of the statement that reserves tokens leaves the lease free",
                       database) {
    interception network;
    client locks{network.wrap(database.source()), keeping(database)};
    client other{database.source(), plain(database)};
    std::atomic<int> lost{0};
    SUBCASE("it was carried out") {
        network.after([&](std::string_view what) {
            if (what == "retain" && lost++ == 0) interception::lose_reply();
        });
    }
    SUBCASE("it was not") {
        network.before([&](std::string_view what) {
            if (what == "retain" && lost++ == 0) interception::refuse_to_send();
        });
    }
    std::int64_t last = 0;
    for (int i = 0; i < 20 && lost == 0; ++i) {
        auto held = locks.acquire("job");
        last = held.token().value();
        held.release();
    }
    REQUIRE(lost == 1);
    CHECK(locks.stats().local_grants == 0);
    std::optional<lease> taken;
    REQUIRE(eventually([&] { return (taken = other.try_acquire("job")).has_value(); }));
    CHECK(taken->token().value() > last);
}

TEST_CASE("a fenced lease is not retained, and a fence of a released one is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        auto held = locks.acquire("job");
        const auto db = database.connect();
        db->query("begin", soon());
        fence(*db, held, {.statement_timeout = 20s});
        db->query("commit", soon());
        held.release();
        CHECK_FALSE(is_kept(other, "job"));

        until_kept(locks, "job");
        auto over = locks.acquire("job");
        over.release();
        CHECK(is_kept(other, "job"));
        db->query("begin", soon());
        CHECK(kind_of([&] { fence(*db, over); }) == errc::not_owner);
        db->query("rollback", soon());
    }
}

TEST_CASE("a fence that is about to be sent keeps the lease from the next local grant") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        until_kept(locks, "job");
        auto held = locks.acquire("job");
        interception network;
        const auto db = network.wrap(database.source()).connect(soon());
        db->query("begin", soon());
        bool released = false;
        network.before([&](std::string_view what) {
            if (what.find("fence") == std::string_view::npos || released) return;
            released = true;
            // Its thread sleeps here; another one releases the lease and takes it again.
            if (database.speaks() == sql::dialect::sqlite) return;
            held.release();
            const auto local = locks.stats().local_grants;
            const auto next = locks.acquire("job");
            CHECK(locks.stats().local_grants == local);
        });
        if (database.speaks() == sql::dialect::sqlite) {
            fence(*db, held, {.statement_timeout = 20s});  // one writer: nothing comes in between
        } else {
            CHECK(kind_of([&] { fence(*db, held); }) == errc::lock_lost);
        }
        db->query("rollback", soon());
    }
}

TEST_CASE(
    "a lease that an operator breaks is granted locally no more, once its client has learned of "
    "it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        support::event_log events;
        auto options = keeping(database);
        options.heartbeat = 100ms;
        options.on_event = events.callback();
        client locks{database.source(), options};
        client other{database.source(), plain(database)};
        const auto last = until_kept(locks, "job");
        REQUIRE(other.force_release("job"));
        std::optional<lease> held;
        REQUIRE(eventually([&] {
            const auto local = locks.stats().local_grants;
            held.reset();
            held = locks.try_acquire("job");
            return held && locks.stats().local_grants == local;
        }));
        CHECK(held->held());
        CHECK(held->token().value() > last);
        CHECK(row_token(database, "job") >= held->token().value());
    }
}

TEST_CASE("a retained lease whose release is asked for is given back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        auto options = keeping(database);
        options.heartbeat = 100ms;
        client locks{database.source(), options};
        client other{database.source(), plain(database)};
        until_kept(locks, "job");
        const auto seen = other.inspect("job");
        REQUIRE(other.request_release("job", seen->token, {.within = 1h, .reason = "maintenance"}));
        CHECK(eventually([&] { return !other.is_locked("job"); }, before_its_time));
    }
}

ROWLOCK_SIMULATED_CASE("a retained lease that is asked for at once is granted locally no more",
                       database) {
    auto options = keeping(database);
    options.heartbeat = 100ms;
    client locks{database.source(), options};
    client other{database.source(), plain(database)};
    until_kept(locks, "job");
    std::jthread busy;
    SUBCASE("while it is idle") {}
    SUBCASE("while threads take it again and again") {
        busy = std::jthread{[&](const std::stop_token& stop) {
            while (!stop.stop_requested()) static_cast<void>(locks.try_acquire("job"));
        }};
    }
    const auto seen = other.inspect("job");
    REQUIRE(seen);
    const auto asked = other.request_release("job", seen->token);
    // Not if it has a later grant by now: then there is nothing to show.
    if (asked) {
        const auto session = seen->holder->session;
        CHECK(eventually([&] {
            const auto now = other.inspect("job");
            return !now->holder || now->token != seen->token || !now->holder->retained ||
                   now->holder->session != session;
        }));
    }
}

ROWLOCK_SIMULATED_CASE("a lease is retained again after a retention that ended with its session",
                       database) {
    auto options = keeping(database);
    options.heartbeat = 100ms;
    client locks{database.source(), options};
    until_kept(locks, "job");
    auto held = locks.acquire("job");
    end_sessions(database);
    REQUIRE(eventually([&] { return held.lost().stop_requested(); }));
    CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
    until_kept(locks, "job");
}

TEST_CASE("a fence of a local grant is refused in a transaction that began before the grant") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        client locks{database.source(), keeping(database)};
        until_kept(locks, "job");
        const auto db = database.connect();
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        if (!postgresql) db->query("set transaction isolation level repeatable read", soon());
        db->query(postgresql ? "begin isolation level repeatable read" : "begin", soon());
        static_cast<void>(
            db->query("select count(*) from " + database.prefix() + "session", soon()));
        { const auto before = locks.acquire("job"); }  // it may write, and commit
        const auto held = locks.acquire("job");
        REQUIRE(locks.stats().local_grants >= 2);
        CHECK(kind_of([&] { fence(*db, held); }) == errc::conflict);
        db->query("rollback", soon());
        db->query("begin", soon());
        CHECK_NOTHROW(fence(*db, held));
        db->query("commit", soon());
        CHECK(held.held());
    }
}

TEST_CASE("two fences of one local grant at once are both accepted, and its holder stays one") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        for (int i = 0; i < 10; ++i) {
            until_kept(locks, "job");
            const auto held = locks.acquire("job");
            std::atomic<int> ready{0};
            const auto fenced = [&] {
                const auto db = database.connect();
                db->query("begin", soon());
                ++ready;
                while (ready < 2) std::this_thread::yield();
                const auto failed = kind_of([&] { fence(*db, held); });
                db->query("commit", soon());
                return failed;
            };
            auto one = std::async(std::launch::async, fenced);
            const auto another = fenced();
            CHECK(one.get() == errc{});
            CHECK(another == errc{});
            CHECK_FALSE(other.try_acquire("job"));
            CHECK(held.held());
        }
    }
}

TEST_CASE(
    "a first fence beside the answer to a recall is accepted, whichever of them comes first") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        for (const bool fence_first : {true, false}) {
            CAPTURE(fence_first);
            const std::string name = fence_first ? "fenced" : "answered";
            interception network;
            auto options = keeping(database);
            options.statement_timeout = 20s;  // for what a test does in a statement
            client locks{network.wrap(database.source()), options};
            client other{database.source(), plain(database)};
            until_kept(locks, name);
            auto held = locks.acquire(name);
            const auto token = row_token(database, name);
            // Both name the thread that holds it. The one that comes later names an older token.
            std::atomic<bool> stalled{false};
            std::atomic<bool> let_go{false};
            std::atomic<int> done{0};
            std::atomic<std::chrono::steady_clock::duration> stalled_for{0s};
            network.before([&](std::string_view what) {
                if (what != "end_retention" || stalled.exchange(true)) return;
                const auto began = std::chrono::steady_clock::now();
                eventually([&] { return let_go.load(); });
                stalled_for = std::chrono::steady_clock::now() - began;
            });
            network.after([&](std::string_view what) {
                if (what == "end_retention") ++done;
            });
            const auto db = database.connect();
            db->query("begin", soon());
            const auto fenced = [&] {
                const auto failed = kind_of([&] { fence(*db, held, {.statement_timeout = 20s}); });
                db->query(failed == errc{} ? "commit" : "rollback", soon());
                return failed;
            };
            std::future<errc> fencing;
            if (!fence_first) {
                fencing = std::async(std::launch::async, fenced);
                REQUIRE(eventually([&] { return stalled.load(); }));
            }
            waiting_acquire call{other, name};  // recalls it
            if (fence_first) {
                REQUIRE(eventually([&] { return stalled.load(); }));
                CHECK(fenced() == errc{});
            } else {
                REQUIRE(eventually([&] { return done == 1; }));
                CHECK(row_token(database, name) == token);
            }
            let_go = true;
            if (!fence_first) CHECK(fencing.get() == errc{});
            // The answer to a recall has 250 ms: later it is not sent, and the fence has said all.
            const auto too_late = [&] { return fence_first && stalled_for.load() > 200ms; };
            CHECK(eventually([&] { return done == 2 || too_late(); }));
            CHECK(row_token(database, name) == token + 1);
            CHECK_FALSE(is_kept(other, name));
            CHECK(held.held());
            CHECK_FALSE(call.has_it(0s));
            const auto last = held.token();
            held.release();
            REQUIRE(call.has_it());
            CHECK(call.get().token() > last);
            network.before({});
            network.after({});
        }
    }
}

TEST_CASE(
    "a ticket that is committed beside the statement that reserves tokens gets the lease soon") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception theirs;
        client locks{database.source(), keeping(database)};
        client other{theirs.wrap(database.source()), plain(database)};
        auto held = std::make_shared<lease>(locks.acquire("job"));
        std::atomic<bool> once{false};
        // Its attempt has found the lease held, and not kept.
        theirs.before([&](std::string_view what) {
            if (what != "enqueue" || once.exchange(true)) return;
            held->release();
            until_kept(locks, "job");
        });
        waiting_acquire call{other, "job"};
        CHECK(call.has_it());
    }
}

TEST_CASE("a try for several leases takes those that its client retains idle") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        until_kept(locks, "b");
        CHECK(eventually(
            [&] {
                return locks.try_acquire_all({"a", "b"}).has_value();
            },
            before_its_time));
    }
}

TEST_CASE("a try for several leases takes those that another client retains idle") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client third{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        until_kept(locks, "b");
        until_kept(third, "c");
        const auto tries = [&](const acquire_options& how) {
            return other.try_acquire_all({"a", "b", "c"}, how).has_value();
        };
        SUBCASE("while all others are free") {
            CHECK(eventually([&] { return tries({}); }, before_its_time));
        }
        SUBCASE("past the queues") {
            CHECK(eventually([&] { return tries({.queueing = queueing::barging}); },
                             before_its_time));
        }
        SUBCASE("and recalls none while one is in use") {
            const auto held = locks.acquire("a");
            for (int i = 0; i < 10; ++i) CHECK_FALSE(tries({}));
            CHECK(is_kept(other, "b"));
            CHECK(is_kept(other, "c"));
            CHECK(locks.stats().recalls + third.stats().recalls == 0);
        }
    }
}

TEST_CASE("a call that waits for several leases recalls those that another client retains idle") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), keeping(database)};
        client other{database.source(), plain(database)};
        const auto waits = [&] {
            return std::async(std::launch::async, [&] {
                return other.try_acquire_all_for({"a", "b"}, 30s);
            });
        };
        const auto has_them = [](auto& call) {
            return call.wait_for(before_its_time) == std::future_status::ready;
        };
        SUBCASE("while all others are free") {
            until_kept(locks, "b");
            auto call = waits();
            CHECK(has_them(call));
        }
        SUBCASE("also while one is in use") {
            auto held = locks.acquire("a");
            until_kept(locks, "b");
            auto call = waits();
            CHECK(eventually([&] { return !is_kept(locks, "b"); }, before_its_time));
            held.release();
            CHECK(has_them(call));
        }
    }
}

ROWLOCK_SIMULATED_CASE(
    "a session that is over takes its retained leases along, and reports no loss", database) {
    support::event_log events;
    auto options = keeping(database);
    options.heartbeat = 100ms;
    options.on_event = events.callback();
    client locks{database.source(), options};
    const auto last = until_kept(locks, "job");
    end_sessions(database);
    REQUIRE(eventually([&] {
        return events.has(event_kind::session_ended) || locks.stats().sessions == 2 ||
               (static_cast<void>(locks.try_acquire("x")), false);
    }));
    const auto held = locks.acquire("job");
    CHECK(held.held());
    CHECK(held.token().value() > last);
    CHECK(locks.stats().lost == 0);
}

TEST_CASE("a client takes a lease that it retains together with others") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), keeping(database)};
        until_kept(locks, "b");
        const auto both = locks.acquire_all({"a", "b"});
        CHECK(both.held());
    }
}

ROWLOCK_SIMULATED_CASE("a cycle through a retained lease in use is found", database) {
    auto options = keeping(database, 500ms);
    options.poll_interval = 50ms;
    auto theirs = plain(database);
    theirs.poll_interval = 50ms;
    std::function<void(const lease&)> use = [](const lease&) {};
    SUBCASE("a recall has its row name the thread") {}
    SUBCASE("so does the end of the time, if the recall is lost") {
        theirs.wake_ups = wakeup_mode::polling;
    }
    SUBCASE("also if it was fenced") {
        use = [&](const lease& held) {
            const auto db = database.connect();
            db->query("begin", soon());
            fence(*db, held, {.statement_timeout = 20s});
            db->query("commit", soon());
        };
    }
    SUBCASE("also if its fence failed") {
        use = [&](const lease& held) {
            const auto db = database.connect();  // without a transaction
            REQUIRE(kind_of([&] { fence(*db, held); }) == errc::invalid_options);
        };
    }
    client locks{database.source(), options};
    client other{database.source(), theirs};
    until_kept(locks, "x");
    const auto crossed = [&](client& of, const std::string& first, const std::string& second,
                             std::atomic<int>& ready) {
        const auto held = of.acquire(first);
        if (&of == &locks) use(held);
        ++ready;
        eventually([&] { return ready == 2; });
        return kind_of([&] { static_cast<void>(of.try_acquire_for(second, support::patience)); });
    };
    std::atomic<int> ready{0};
    auto one = std::async(std::launch::async, [&] { return crossed(locks, "x", "y", ready); });
    const auto two = crossed(other, "y", "x", ready);
    const auto first = one.get();
    CHECK((first == errc::deadlock) != (two == errc::deadlock));
}

ROWLOCK_SIMULATED_CASE(
    "a retained lease that is just given back does not count as held by its client", database) {
    constexpr int count = 80;  // more than are given back by two statements
    interception network;
    client locks{network.wrap(database.source()), keeping(database, 1s)};
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back("job " + std::to_string(i));
    const auto holds = [&] {
        return std::ranges::count_if(names, [&](const auto& each) { return locks.holds(each); });
    };
    const auto self = std::this_thread::get_id();
    std::atomic<bool> filled{false};
    std::atomic<int> releases{0};
    std::atomic<std::int64_t> held{0};
    network.before([&](std::string_view what) {
        if (std::this_thread::get_id() == self) return;
        // By then the time of all others is up, and the next step finds them together.
        if (what.starts_with("release") && releases++ == 0) std::this_thread::sleep_for(1200ms);
        if (filled && releases > 1) held = std::max<std::int64_t>(held, holds());
    });
    for (const auto& each : names) {
        locks.acquire(each).release();
        locks.acquire(each).release();
    }
    filled = true;
    // Of releases that were slow the heartbeat does the rest, which stats() does not count.
    REQUIRE(eventually([&] {
        return database.number("select count(*) from rowlock_lock where session is not null") == 0;
    }));
    CHECK(releases > 2);
    CHECK(held == 0);
    network.before({});
    const auto again = locks.acquire(names.front());
    CHECK(holds() == 1);  // control
}

ROWLOCK_SIMULATED_CASE(
    "a call does not wait beyond its time for a lease that its client gives back", database) {
    interception network;
    client locks{network.wrap(database.source()), keeping(database, 300ms)};
    until_kept(locks, "job");
    const auto self = std::this_thread::get_id();
    std::atomic<bool> begun{false};
    std::atomic<bool> let_go{false};
    std::atomic<int> ours{0};
    network.before([&](std::string_view what) {
        if (std::this_thread::get_id() == self) {
            ++ours;
        } else if (what.starts_with("release")) {
            begun = true;
            support::eventually([&] { return let_go.load(); });
        }
    });
    const auto begins = [&] {
        // In a stall its time was over before.
        const bool over = !begun && !is_kept(locks, "job");
        if (over) static_cast<void>(locks.try_acquire_for("job", 20ms));
        return begun.load();
    };
    REQUIRE(eventually(begins));
    ours = 0;
    CHECK_FALSE(locks.try_acquire_for("job", 20ms));
    CHECK(ours == 0);  // no attempt after the limit
    let_go = true;
    CHECK(locks.try_acquire_for("job", support::patience));
    network.before({});
}

TEST_CASE("a client that retains leases ends in time although their table is locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        constexpr auto statement = 500ms;
        auto options = keeping(database, 300ms);
        options.statement_timeout = statement;
        options.ttl = 60s;
        options.heartbeat = 20s;
        // The statement that runs, one more, and the end of the session; not one for each lease.
        constexpr std::chrono::steady_clock::duration bound = 4 * statement + 500ms;
        int last = 0;
        const auto time_to_end = [&] {
            interception network;
            std::optional<client> locks{std::in_place, network.wrap(database.source()), options};
            for (int i = 0; i < 8; ++i) until_kept(*locks, "job " + std::to_string(++last));
            std::atomic<bool> begun{false};
            const auto self = std::this_thread::get_id();
            network.before([&](std::string_view what) {
                if (std::this_thread::get_id() != self && what.starts_with("release")) begun = true;
            });
            const auto db = database.connect();
            db->query("begin", soon());
            db->query("lock table " + database.prefix() + "lock in access exclusive mode", soon());
            auto took = bound;  // if in a stall all were given back before
            if (eventually([&] { return begun.load(); }, 3s)) {
                const auto began = std::chrono::steady_clock::now();
                locks.reset();
                took = std::chrono::steady_clock::now() - began;
            }
            db->query("rollback", soon());
            return took;
        };
        CHECK(support::at_best(bound, time_to_end) < bound);
    }
}

TEST_CASE("a first fence waits for another one of its lease no longer than its time") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        interception network;
        auto options = keeping(database);
        options.statement_timeout = 20s;  // for what a test does in a statement
        client locks{network.wrap(database.source()), options};
        until_kept(locks, "job");
        until_kept(locks, "another");
        const auto held = locks.acquire("job");
        const auto another = locks.acquire("another");
        std::atomic<bool> stalled{false};
        std::atomic<bool> let_go{false};
        network.before([&](std::string_view what) {
            if (what != "end_retention" || stalled.exchange(true)) return;
            support::eventually([&] { return let_go.load(); });
        });
        const auto fenced = [&](const lease& with, std::chrono::milliseconds limit) {
            const auto db = database.connect();
            db->query("begin", soon());
            const auto failed = kind_of([&] { fence(*db, with, {.statement_timeout = limit}); });
            db->query(failed == errc{} ? "commit" : "rollback", soon());
            return failed;
        };
        auto first = std::async(std::launch::async, [&] { return fenced(held, 20s); });
        REQUIRE(eventually([&] { return stalled.load(); }));
        CHECK(fenced(another, 20s) == errc{});
        CHECK(fenced(held, 100ms) == errc::timed_out);
        let_go = true;
        CHECK(first.get() == errc{});
        CHECK(fenced(held, 20s) == errc{});
        network.before({});
    }
}

ROWLOCK_SIMULATED_CASE("a retained lease whose holder was lost makes room for others", database) {
    auto options = keeping(database, 200ms);
    options.heartbeat = 100ms;
    options.retain->names = 1;
    client locks{database.source(), options};
    until_kept(locks, "one");
    auto held = locks.acquire("one");
    // The time is up: the row names the holder.
    REQUIRE(eventually([&] { return !is_kept(locks, "one"); }));
    end_sessions(database);
    REQUIRE(eventually([&] { return held.lost().stop_requested(); }));
    CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
    // Others are kept for 200 ms from now on.
    CHECK(eventually([&] {
        locks.acquire("another").release();
        return is_kept(locks, "another");
    }));
}

ROWLOCK_SIMULATED_CASE(
    "each retained lease is looked at for waiters some time after its tokens were reserved",
    database) {
    using clock = std::chrono::steady_clock;
    interception network;
    client locks{network.wrap(database.source()), keeping(database)};
    until_kept(locks, "job");  // the thread runs by now
    std::mutex mutex;
    clock::time_point latest_look{};
    clock::time_point latest_reserve{};
    network.before([&](std::string_view what) {
        const std::lock_guard lock{mutex};
        if (what == "names_with_waiters") latest_look = clock::now();
    });
    network.after([&](std::string_view what) {
        const std::lock_guard lock{mutex};
        if (what == "retain") latest_reserve = clock::now();
    });
    for (int i = 0; i < 10; ++i) {
        const auto name = [&](char which) { return which + std::to_string(i); };
        for (const char which : {'a', 'b'}) locks.acquire(name(which)).release();
        locks.acquire(name('a')).release();
        const auto first = [&] {
            const std::lock_guard lock{mutex};
            return latest_reserve;
        }();
        std::this_thread::sleep_until(first + 4ms);
        locks.acquire(name('b')).release();
        CHECK(eventually(
            [&] {
                const std::lock_guard lock{mutex};
                return latest_look >= latest_reserve + 5ms - 1ms;
            },
            before_its_time));
    }
    network.before({});
    network.after({});
}

TEST_CASE("threads of two retaining clients and a plain one exclude each other, and tokens rise") {
    ROWLOCK_FOR_A_CLIENT(database) {
        client a{database.source(), keeping(database, 200ms)};
        client b{database.source(), keeping(database, 200ms)};
        client c{database.source(), plain(database)};
        struct name {
            std::string text;
            std::atomic<int> inside{0};
            std::atomic<std::int64_t> token{0};
        };
        std::array<name, 3> names{{{"one"}, {"two"}, {"three"}}};
        std::atomic<int> overlaps{0};
        std::atomic<int> falls{0};
        std::atomic<int> grants{0};
        const auto end = std::chrono::steady_clock::now() + 2s;
        const auto work = [&](client& locks, std::size_t at, std::chrono::microseconds rest) {
            for (; std::chrono::steady_clock::now() < end; ++at) {
                auto& which = names[at % names.size()];
                // Several in a row, so that leases are kept.
                for (int i = 0; i < 20; ++i) {
                    const auto held = locks.try_acquire_for(which.text, 20s);
                    if (!held) continue;
                    if (which.inside++ != 0) ++overlaps;
                    if (which.token.exchange(held->token().value()) >= held->token().value()) {
                        ++falls;
                    }
                    ++grants;
                    --which.inside;
                }
                std::this_thread::sleep_for(rest);
            }
        };
        {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < 3; ++i) {
                threads.emplace_back([&, i] { work(a, i, 0us); });
                threads.emplace_back([&, i] { work(b, i + 1, 300us); });
            }
            threads.emplace_back([&] { work(c, 2, 5ms); });
        }
        CHECK(overlaps == 0);
        CHECK(falls == 0);
        CHECK(grants > 0);
        MESSAGE(grants.load() << " grants, " << a.stats().local_grants + b.stats().local_grants
                              << " of them local, " << a.stats().recalls + b.stats().recalls
                              << " recalls");
    }
}

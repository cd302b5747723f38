// The promises of a lease, on every database through every driver.

#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::event_log;
using support::eventually;
using support::interception;
using support::kind_of;

namespace {

/// The statement that grants a new name to a client outside a batch.
std::string_view insertion(const support::lock_database& in) {
    return in.speaks() == sql::dialect::mysql ? "insert_lease" : "acquire";
}

/// Tables that a URL with these parameters names, for as long as this lives.
class named_tables {
public:
    named_tables(const support::lock_database& in, const std::string& parameters)
        : source{
              open(in.url() + (in.url().find('?') == std::string::npos ? "?" : "&") + parameters)} {
        CHECK_FALSE(migrate(source).empty());
        record_history(source, true);
    }
    named_tables(const named_tables&) = delete;
    named_tables& operator=(const named_tables&) = delete;
    ~named_tables() {
        try {
            migrate(source, {}, 0);
        } catch (const std::exception& failure) {
            MESSAGE("tables of a test were left behind: ", failure.what());
        }
    }

    const sql::connection_source source;
};

void check_separate(const support::lock_database& database, const std::string& one,
                    const std::string& other) {
    CAPTURE(one);
    const named_tables a{database, one};
    const named_tables b{database, other};
    client here{a.source, database.options({.reaper = reaper_options{}})};
    client there{b.source, database.options()};
    const auto lease = here.acquire("job");
    CHECK(there.list().empty());
    const auto twin = there.try_acquire("job");
    REQUIRE(twin);
    CHECK(here.list().size() == 1);

    const auto db = a.source.connect(support::soon());
    db->query(a.source.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin",
              support::soon());
    CHECK_NOTHROW(fence(*db, lease, {.statement_timeout = 20s}));
    db->query("rollback", support::soon());

    const versions counted{a.source.tables()};
    const versions not_counted{b.source.tables()};
    CHECK(counted.create(*db, "report"));
    CHECK_FALSE(not_counted.read(*db, "report"));

    {
        row_session session{a.source, {.statement_timeout = 20s}};
        session.lock_resource("tenant");
        session.commit();
    }
    CHECK(counted.read(*db, "tenant"));
    CHECK_FALSE(not_counted.read(*db, "tenant"));
    if (a.source.speaks() != sql::dialect::sqlite) {  // which has one writer
        row_session session{a.source, {.statement_timeout = 20s}};
        session.lock_resource("tenant");
        row_session beside{b.source, {.statement_timeout = 20s}};
        CHECK_NOTHROW(beside.lock_resource("tenant", row_wait::nowait()));
    }

    CHECK(there.force_release("job"));
    CHECK(lease.held());
    CHECK(here.inspect("job")->holder.has_value());
    CHECK(read_history(a.source, {.name = "job"}).size() == 1);
    CHECK(read_history(b.source, {.name = "job"}).size() == 2);
    CHECK_NOTHROW((void)reap(a.source));
    CHECK(schema_status(a.source).current());
}

}  // namespace

// shows: promise-1
TEST_CASE("a free lock is granted, held until released, and then free for another owner") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client a{database.source(), database.options()};
        client b{database.source(), database.options()};

        auto lease = a.try_acquire("job", {.note = "nightly ☾"});
        REQUIRE(lease);
        CHECK(lease->held());
        CHECK(lease->name() == "job");
        CHECK(lease->token().value() >= 1);
        CHECK(lease->remaining() > 10s);
        CHECK_FALSE(lease->lost().stop_requested());
        CHECK_FALSE(b.try_acquire("job"));
        CHECK(b.try_acquire("another job"));

        lease->release();
        CHECK_FALSE(lease->held());
        CHECK_FALSE(lease->lost().stop_requested());
        {
            const auto next = b.try_acquire("job");
            REQUIRE(next);
            CHECK(next->token() > lease->token());
            CHECK_FALSE(a.try_acquire("job"));
        }
        CHECK(a.try_acquire("job"));  // the destructor has waited for the database
    }
}

// shows: promise-1
TEST_CASE("two threads of one client exclude each other, each grant with its own token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto first = locks.try_acquire("job");
        REQUIRE(first);
        CHECK_FALSE(std::async(std::launch::async, [&] {
                        return locks.try_acquire("job").has_value();
                    }).get());

        int inside = 0;
        int most = 0;
        std::set<std::int64_t> tokens;
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int round = 0; round < 5; ++round) {
                    const auto lease = locks.acquire("counter");
                    most = std::max(most, ++inside);  // protected by the lease alone
                    tokens.insert(lease.token().value());
                    --inside;
                }
            });
        }
        for (auto& thread : threads) thread.join();
        CHECK(most == 1);
        CHECK(tokens.size() == 20);
    }
}

TEST_CASE("names are compared byte by byte") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        const std::vector<std::string> names{"job",
                                             "Job",
                                             "job ",
                                             " job",
                                             "jöb",
                                             std::string{"jo\xCC\x88"} + "b",
                                             "it's \"quoted\"",
                                             "per%cent_",
                                             "back\\slash",
                                             "☾🌙",
                                             "$1 ? :p1",
                                             std::string(255, 'x')};
        std::vector<lease> held;
        for (const auto& name : names) {
            auto lease = locks.try_acquire(name);
            REQUIRE_MESSAGE(lease, name);
            held.push_back(*std::move(lease));
        }
        for (const auto& name : names) {
            const auto info = locks.inspect(name);
            REQUIRE(info);
            CHECK(info->name == name);
            CHECK(info->holder);
        }
    }
}

TEST_CASE("an uncontended acquire and release cost the promised round trips, the rest none") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        interception counted;
        client locks{counted.wrap(database.source()), database.options()};
        locks.acquire("job").release();  // opens the session and inserts the row

        const int most = database.speaks() == sql::dialect::mysql ? 2 : 1;
        for (const char* name : {"job", "a new name"}) {
            counted.statements = 0;
            auto lease = locks.acquire(name);
            CHECK(counted.statements <= most);

            counted.statements = 0;
            for (int i = 0; i < 100; ++i) {
                static_cast<void>(lease.held());
                static_cast<void>(lease.token());
                static_cast<void>(lease.remaining());
            }
            CHECK(counted.statements == 0);

            lease.release();
            CHECK(counted.statements == 1);
        }
    }
}

TEST_CASE("a waiter gets the lock soon after its release, within its time limit, or stops") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client a{database.source(), database.options()};
        client b{database.source(), database.options({.poll_interval = 50ms})};
        auto first = a.acquire("job");

        CHECK_FALSE(b.try_acquire_for("job", 60ms));
        CHECK_FALSE(b.try_acquire_for("job", -1s));
        std::stop_source stop;
        auto stopped = std::async(std::launch::async,
                                  [&] { return b.acquire("job", stop.get_token()).has_value(); });
        stop.request_stop();
        CHECK_FALSE(stopped.get());

        auto waiting =
            std::async(std::launch::async, [&] { return acquire_soon(b, "job").token(); });
        CHECK(waiting.wait_for(100ms) == std::future_status::timeout);
        first.release();
        CHECK(waiting.get() > first.token());
    }
}

// shows: promise-2
TEST_CASE("a holder that vanished is replaced after its ttl, with a greater token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client vanishing{network.wrap(database.source()), database.options({.ttl = 600ms})};
        client next{database.source(), database.options({.poll_interval = 1min})};
        auto lease = vanishing.acquire("job");
        network.before([](std::string_view) { interception::refuse_to_send(); });

        // The limit is shorter than the poll interval: the waiter wakes at the holder's expiry.
        const auto taken = next.try_acquire_for("job", support::patience);
        REQUIRE(taken);
        CHECK_FALSE(lease.held());
        CHECK(taken->token() > lease.token());
        CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
        CHECK(taken->held());
    }
}

// shows: promise-2
ROWLOCK_SIMULATED_CASE("heartbeats keep a lease beyond its ttl, with the same token", database) {
    client holder{database.source(),
                  database.options({.ttl = 8s, .heartbeat = 300ms, .margin = 100ms})};
    client other{database.source(), database.options()};
    const auto lease = holder.acquire("job");
    const auto before = holder.inspect("job");
    CHECK_FALSE(other.try_acquire_for("job", 11s));
    CHECK(lease.held());
    CHECK(holder.inspect("job")->token == before->token);
    CHECK(holder.stats().heartbeats >= 3);
}

// shows: promise-6
ROWLOCK_SIMULATED_CASE("the reply to an acquire is lost after the commit: one hold, its own token",
                       database) {
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    locks.acquire("warm up").release();
    const auto grants_before =
        database.number("select coalesce(max(token), 0) from rowlock_lock where name = 'job'");
    std::atomic<int> lost{0};
    network.after([&](std::string_view name) {
        const bool granting = name == "acquire" || name == "take" || name == "insert_lease";
        if (granting && lost.fetch_add(1) == 0) interception::lose_reply();
    });

    const auto lease = locks.try_acquire("job");
    REQUIRE(lease);
    CHECK(lost == 1);  // the client found its grant, and was not granted another
    CHECK(lease->held());
    CHECK(lease->token().value() ==
          database.number("select token from rowlock_lock where name = 'job'"));
    CHECK(lease->token().value() == grants_before + 1);
    CHECK(lease->grant_id() ==
          grant_id{database.number("select grant_id from rowlock_lock where name = 'job'")});
}

// shows: promise-6
ROWLOCK_SIMULATED_CASE(
    "a committed acquire whose call failed is released, not kept alive by heartbeats", database) {
    interception network;
    client locks{network.wrap(database.source()), database.watchful({.retry = {.attempts = 1}})};
    locks.acquire("warm up").release();
    network.after([&](std::string_view name) {
        if (name == "acquire" || name == "take" || name == "insert_lease") {
            interception::lose_reply();
        }
    });
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job")); }) == errc::outcome_unknown);
    network.after({});

    client other{database.source(), database.options({.poll_interval = 20ms})};
    const auto lease = other.try_acquire_for("job", support::patience);
    CHECK(lease);
    CHECK(locks.stats().sessions == 1);  // the same session: its end did not free the lease
    CHECK(locks.stats().unknown_outcomes == 1);
}

// shows: promise-6, fault-late-statement
TEST_CASE("an acquire that the server runs only after the call failed is released too") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        event_log events;
        interception network;
        client locks{network.wrap(database.source()),
                     database.watchful({.on_event = events.callback(), .retry = {.attempts = 1}})};
        const auto kept = locks.acquire("warm up");
        std::int64_t late = 0;
        network.before([&](std::string_view name) {
            if (name != insertion(database)) return;
            late = interception::parameter(3);
            interception::lose_reply();
        });
        CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job")); }) ==
              errc::outcome_unknown);
        network.before({});
        const auto beats = locks.stats().heartbeats;
        REQUIRE(eventually([&] { return locks.stats().heartbeats > beats + 1; }));

        // The delayed statement arrives now.
        database.write_late_grant("job", kept.session_id(), grant_id{late});
        CHECK(eventually([&] {
            return database.number(
                       "select count(*) from rowlock_lock where session is not null and name = "
                       "'job'") == 0;
        }));
        CHECK(eventually([&] { return events.has(event_kind::resolved); }));
        CHECK(kept.held());
    }
}

// shows: promise-6
TEST_CASE("a release whose reply was lost is repeated, and never frees a newer grant") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        for (const bool of_the_same_session : {false, true}) {
            CAPTURE(of_the_same_session);
            interception network;
            client a{network.wrap(database.source()), database.options()};
            client b{database.source(), database.options()};
            auto lease = a.acquire("job");
            std::optional<rowlock::lease> newer;
            std::atomic<bool> once{true};
            network.after([&](std::string_view name) {
                if (!name.starts_with("release") || !once.exchange(false)) return;
                // Between the release and its repetition.
                newer = (of_the_same_session ? a : b).try_acquire("job");
                interception::lose_reply();
            });
            lease.release();
            REQUIRE(newer);
            CHECK(newer->held());
            CHECK(database.number("select token from rowlock_lock where name = 'job' "
                                  "and session is not null") == newer->token().value());
            CHECK(a.stats().released == 1);
            network.after({});
            newer->release();
        }
    }
}

// shows: promise-6
ROWLOCK_SIMULATED_CASE(
    "a release that the database forgot in a crash is repeated after the reconnect", database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 20s, .heartbeat = 300ms})};
    auto lease = locks.acquire("job");
    const auto other = locks.acquire("still held");
    lease.release();
    // On its first connection the heartbeat compares the leases released so far. A late one
    // beats on a connection of a thread.
    const bool sqlite = database.speaks() == sql::dialect::sqlite;
    REQUIRE(eventually([&] { return sqlite || locks.stats().connections >= 2; }));
    const auto first = locks.stats().heartbeats;
    REQUIRE(eventually([&] { return locks.stats().heartbeats > first + 1; }));

    // The state after a crash: the committed release is lost and every connection is broken.
    const auto undo = [&] {
        database.run("update rowlock_lock set session = " + to_string(lease.session_id()) +
                     ", grant_id = " + to_string(lease.grant_id()) + " where name = 'job'");
    };
    const auto held_rows = [&] {
        return database.number(
            "select count(*) from rowlock_lock where name = 'job' and session is not null");
    };
    undo();
    // The control: without a reconnect the heartbeats keep that row alive.
    const auto beats = locks.stats().heartbeats;
    REQUIRE(eventually([&] { return locks.stats().heartbeats > beats + 1; }));
    REQUIRE(held_rows() == 1);

    network.break_connections();
    CHECK(eventually([&] { return held_rows() == 0; }));
    CHECK(other.held());
    CHECK(locks.stats().sessions == 1);
}

ROWLOCK_SIMULATED_CASE("a comparison during the end of a release is repeated", database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 20s, .heartbeat = 300ms})};
    auto lease = locks.acquire("job");
    const auto session = to_string(lease.session_id());
    const auto held_rows = [&] {
        return database.number(
            "select count(*) from rowlock_lock where name = 'job' and session is not null");
    };
    std::atomic<bool> once{true};
    bool compared = false;
    network.after([&](std::string_view name) {
        if (!name.starts_with("release") || !once.exchange(false)) return;
        // The answer has arrived, its thread is stopped, and a crash undoes the release.
        database.run("update rowlock_lock set session = " + session +
                     ", grant_id = " + to_string(lease.grant_id()) + " where name = 'job'");
        // Makes the heartbeat compare the rows once, as a reconnect does.
        database.run("update rowlock_session set revision = revision + 1 where id = " + session);
        const auto beats = locks.stats().heartbeats;
        compared = eventually([&] { return locks.stats().heartbeats > beats + 1; });
        CHECK(held_rows() == 1);  // the client still knows the lease
    });
    lease.release();
    REQUIRE(compared);
    CHECK(eventually([&] { return held_rows() == 0; }));
    CHECK(locks.stats().sessions == 1);
}

// shows: promise-2
TEST_CASE("a forced release raises the token, and the old holder learns with its next heartbeat") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        event_log events;
        client holder{database.source(), database.watchful({.on_event = events.callback()})};
        client breaker{database.source(), database.options()};
        auto lease = holder.acquire("job");
        auto bystander = holder.acquire("other");
        const auto lost = lease.lost();

        CHECK(breaker.force_release("job"));
        CHECK_FALSE(breaker.force_release("job"));
        CHECK_FALSE(breaker.force_release("never locked"));
        CHECK(breaker.inspect("job")->token > lease.token());
        CHECK(eventually([&] { return lost.stop_requested(); }));
        CHECK_FALSE(lease.held());
        CHECK(eventually(
            [&] { return events.has(event_kind::lease_lost, loss_reason::forced_release); }));
        CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
        CHECK(bystander.held());
        const auto next = breaker.try_acquire("job");
        REQUIRE(next);
        CHECK(next->token() > lease.token());
    }
}

TEST_CASE("a grant that another client ended while its answer was under way is not believed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool several : {false, true}) {
            CAPTURE(several);
            interception network;
            client locks{network.wrap(database.source()), database.watchful()};
            client breaker{database.source(), database.options()};
            locks.acquire("warm").release();  // opens the session
            std::atomic<bool> granted{false};
            std::atomic<int> beats{0};
            std::promise<void> go;
            const auto gone = go.get_future().share();
            network.after([&, gone](std::string_view what) {
                if (what == "heartbeat" && granted) ++beats;
                const bool takes = what == "acquire" || what == "insert_lease" ||
                                   what == "multi_take" || (several && what == "commit");
                if (takes && breaker.is_locked("job") && !granted.exchange(true)) gone.wait();
            });
            auto calling = std::async(std::launch::async, [&] {
                if (!several) return locks.acquire("job").token();
                return locks.acquire_all({"job", "other"})["job"].token();
            });
            REQUIRE(eventually([&] { return granted.load(); }));
            const auto token = breaker.inspect("job").value().token;
            REQUIRE(breaker.force_release("job"));
            // One is refused; the next confirms what was read then.
            beats = 0;
            CHECK(eventually([&] { return beats >= 3; }));
            go.set_value();
            CHECK(calling.get() > token);
            network.after({});
        }
    }
}

TEST_CASE("a release before the holder has learnt of a forced release fails with lock_lost") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client holder{database.source(), database.options()};
        client breaker{database.source(), database.options()};
        auto lease = holder.acquire("job");
        CHECK(breaker.force_release("job"));
        const auto next = breaker.try_acquire("job");
        CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
        CHECK(next->held());
        CHECK_FALSE(holder.try_acquire("job"));
    }
}

TEST_CASE("a restarted process with a stable owner reclaims its predecessor's leases at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        interception crash;
        event_log events;
        client before{crash.wrap(database.source()),
                      database.options({.owner = "billing-1", .on_event = events.callback()})};
        const auto a = before.acquire("a");
        const auto b = before.acquire("b", {.max_duration = 1h});
        client bystander{database.source(), database.options({.owner = "billing-2"})};
        const auto c = bystander.acquire("c");

        client after{database.source(), database.options({.owner = "billing-1"})};
        CHECK_FALSE(after.try_acquire("a"));  // only reclaim() takes them over
        auto reclaimed = after.reclaim().leases;
        REQUIRE(reclaimed.size() == 2);
        CHECK(reclaimed[0].name() == "a");
        CHECK(reclaimed[0].token() > a.token());
        CHECK(reclaimed[0].held());
        CHECK(reclaimed[1].token() > b.token());
        CHECK(after.reclaim().leases.empty());
        CHECK(c.held());
        CHECK_FALSE(bystander.try_acquire("a"));
        reclaimed[0].release();
        CHECK(bystander.try_acquire("a"));

        client nameless{database.source(), database.options()};
        CHECK(kind_of([&] { static_cast<void>(nameless.reclaim()); }) == errc::invalid_options);
    }
}

ROWLOCK_SIMULATED_CASE("a reclaim whose reply was lost is repeated, and returns every lease once",
                       database) {
    client before{database.source(), database.options({.owner = "billing-1"})};
    const auto a = before.acquire("a");
    interception network;
    client after{network.wrap(database.source()), database.options({.owner = "billing-1"})};
    std::atomic<bool> once{true};
    network.after([&](std::string_view name) {
        if (name == "commit" && once.exchange(false)) interception::lose_reply();
    });
    const auto reclaimed = after.reclaim().leases;
    REQUIRE(reclaimed.size() == 1);
    CHECK(reclaimed[0].held());
    CHECK(reclaimed[0].token().value() ==
          database.number("select token from rowlock_lock where name = 'a'"));
}

ROWLOCK_SIMULATED_CASE("a lease with a deadline ends by itself although its session lives",
                       database) {
    event_log events;
    client holder{database.source(), database.options({.on_event = events.callback()})};
    client other{database.source(), database.options()};
    auto lease = holder.acquire("job", {.max_duration = 3s});
    const auto endless = holder.acquire("other");
    const auto lost = lease.lost();
    CHECK(lease.remaining() <= 3s);
    const auto next = other.try_acquire_for("job", support::patience);
    REQUIRE(next);
    CHECK_FALSE(lease.held());  // by the client's clock, before the database granted it to another
    CHECK(next->token() > lease.token());
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(eventually(
        [&] { return events.has(event_kind::lease_lost, loss_reason::deadline_passed); }));
    CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
    CHECK(next->held());
    CHECK(endless.held());
}

TEST_CASE("a destroyed client frees its leases, and their objects become inert") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client other{database.source(), database.options()};
        std::optional<lease> orphan;
        {
            client locks{database.source(), database.options()};
            orphan = locks.acquire("job");
            const auto released = locks.acquire("other");
        }
        CHECK_FALSE(orphan->held());
        CHECK(orphan->lost().stop_requested());
        CHECK(kind_of([&] { orphan->release(); }) == errc::lock_lost);
        const auto next = other.try_acquire("job");
        CHECK(next);
        orphan.reset();
        CHECK(next->held());
    }
}

TEST_CASE("a client whose leases are all released leaves no session row behind") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        {
            client locks{database.source(), database.options()};
            locks.acquire("job").release();
        }
        CHECK(database.number("select count(*) from rowlock_session") == 0);
    }
}

TEST_CASE("inspect and list show holders, states and pages") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(),
                     database.options({.owner = "the owner", .program = "the program"})};
        std::vector<lease> held;
        for (const char* name : {"a/1", "a/2", "a/3", "b"}) {
            held.push_back(locks.acquire(name, {.note = "line 1\nline 2 \x1b[31m"}));
        }
        held[1].release();

        const auto info = locks.inspect("a/1");
        REQUIRE(info);
        REQUIRE(info->holder);
        CHECK(info->token == held[0].token());
        CHECK(info->holder->owner == "the owner");
        CHECK(info->holder->program == "the program");
        CHECK(info->holder->pid == getpid());
        CHECK_FALSE(info->holder->host.empty());
        CHECK(info->holder->note == "line 1\nline 2 \x1b[31m");
        CHECK(info->holder->session == held[0].session_id());
        CHECK(info->holder->grant_id == held[0].grant_id());
        CHECK(info->holder->remaining > 10s);
        CHECK(info->holder->remaining <= 30s);
        CHECK(info->holder->held_for < 1min);
        CHECK(info->changed < 1min);
        CHECK_FALSE(locks.inspect("a/2")->holder);
        CHECK_FALSE(locks.inspect("never locked"));

        const auto names = [](const std::vector<lease_info>& infos) {
            std::string all;
            for (const auto& each : infos) all += each.name + " ";
            return all;
        };
        CHECK(names(locks.list()) == "a/1 a/2 a/3 b ");
        CHECK(names(locks.list("a/")) == "a/1 a/2 a/3 ");
        CHECK(names(locks.list("a/", {.limit = 2})) == "a/1 a/2 ");
        CHECK(names(locks.list("a/", {.after = "a/2", .limit = 2})) == "a/3 ");
        CHECK(names(locks.list("a_")).empty());
        CHECK(kind_of([&] { static_cast<void>(locks.list("", {.limit = 0})); }) ==
              errc::invalid_options);
    }
}

TEST_CASE(
    "is_locked asks in one round trip, without a session, whether a live holder has the lock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client holder{database.source(), database.options()};
        interception counted;
        client asking{counted.wrap(database.source()), database.options()};
        CHECK_FALSE(asking.is_locked("job"));  // never locked
        auto held = holder.acquire("job");
        counted.statements = 0;
        CHECK(asking.is_locked("job"));
        CHECK(counted.statements == 1);
        held.release();
        CHECK_FALSE(asking.is_locked("job"));
        CHECK(asking.stats().sessions == 0);

        const support::protocol_session vanished{database, session_id{7}};
        REQUIRE(vanished.try_acquire("left behind", grant_id{70}));
        CHECK(asking.is_locked("left behind"));
        vanished.leases().sessions().extend(vanished.db(), vanished.id(), 1us, support::soon());
        CHECK_FALSE(asking.is_locked("left behind"));
        CHECK(asking.inspect("left behind")->holder);  // control: its row names the holder
    }
}

TEST_CASE("empty braces in the place of options stand for the default options") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const lease held = locks.acquire("job", {});
        CHECK(held.held());
        CHECK(held.remaining() > 10s);  // no max_duration
        CHECK_FALSE(locks.try_acquire("job", {}));
        CHECK_FALSE(locks.try_acquire_for("job", 0s, {}));
        CHECK_FALSE(locks.try_acquire_until("job", std::chrono::system_clock::now(), {}));
    }
}

ROWLOCK_SIMULATED_CASE("a stop ends a wait with a time limit", database) {
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options()};
    const auto held = holder.acquire("job");
    const auto far = std::chrono::system_clock::now() + 1h;
    std::stop_source stop;
    auto until = std::async(std::launch::async, [&] {
        return waiter.try_acquire_until("job", far, stop.get_token()).has_value();
    });
    auto limited = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("job", 1h, stop.get_token()).has_value();
    });
    CHECK(eventually([&] { return waiter.stats().waiting == 2; }));
    stop.request_stop();
    CHECK_FALSE(until.get());
    CHECK_FALSE(limited.get());
}

TEST_CASE(
    "a client can be constructed while the database is unreachable, and its calls report the "
    "error") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        interception network;
        network.before([](std::string_view) { interception::refuse_to_send(); });
        client locks{network.wrap(database.source()), database.options({.retry = {.attempts = 2}})};
        CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job")); }) ==
              errc::database_unreachable);
        network.before({});
        CHECK(locks.try_acquire("job"));
    }
}

TEST_CASE("the error for missing tables names them and says what to do") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source().with_tables({.prefix = "nothing_here_"}),
                     database.options()};
        try {
            static_cast<void>(locks.try_acquire("job"));
            FAIL("granted without tables");
        } catch (const error& failure) {
            CHECK(failure.kind() == errc::schema_outdated);
            CHECK(std::string{failure.what()}.find("rowlock migrate") != std::string::npos);
        }
    }
}

TEST_CASE("tables that the URL alone names are separate, for everything that uses tables") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        check_separate(database, "rowlock_prefix=" + database.prefix() + "a_",
                       "rowlock_prefix=" + database.prefix() + "b_");
        if (database.speaks() != sql::dialect::postgresql) continue;
        const auto schema = database.prefix() + "s";
        check_separate(database, "rowlock_schema=" + schema, "rowlock_prefix=" + schema);
        database.run("drop schema " + schema);
    }
}

ROWLOCK_SIMULATED_CASE("transient refusals are retried and do not reach the caller", database) {
    // Outlives the client, whose threads may still run the hook of the round before.
    std::atomic<int> failures{0};
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    locks.acquire("warm up").release();
    for (const errc kind : {errc::deadlock, errc::conflict, errc::timed_out, errc::out_of_resources,
                            errc::database_unreachable}) {
        failures = 2;
        network.before([&failures, kind](std::string_view) {
            if (failures.fetch_sub(1) > 0) throw error{kind, "made by the test"};
        });
        auto lease = locks.try_acquire("job");
        REQUIRE(lease);
        failures = 2;
        lease->release();
        CHECK(failures <= 0);
    }
    network.before([](std::string_view) { throw error{errc::access_denied, "made by the test"}; });
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job")); }) == errc::access_denied);
}

// shows: promise-11
ROWLOCK_SIMULATED_CASE("an exhausted pool costs no lease: the heartbeat has its own connection",
                       database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.watchful({.statement_timeout = 2s,
                                    .max_connections = 1,
                                    .retry = {.attempts = 3, .total = 1min}})};
    const auto lease = locks.acquire("job");
    std::promise<void> let_go;
    std::promise<void> stuck;
    auto blocked = let_go.get_future().share();
    std::atomic<bool> once{true};
    network.before([&](std::string_view name) {
        if (name != "inspect" || !once.exchange(false)) return;
        stuck.set_value();
        blocked.wait();
    });
    auto user = std::async(std::launch::async, [&] { return locks.inspect("job").has_value(); });
    stuck.get_future().wait();
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("other")); }) == errc::timed_out);
    const auto beats = locks.stats().heartbeats;
    CHECK(eventually([&] { return locks.stats().heartbeats > beats + 4; }));
    CHECK(lease.held());
    let_go.set_value();
    CHECK(user.get());
}

TEST_CASE("a connection that could not be rolled back is never used again") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client holder{database.source(), database.options()};
        const auto broken_later = holder.acquire("to be broken");
        client operator_{network.wrap(database.source()),
                         database.options({.max_connections = 1, .retry = {.attempts = 1}})};
        network.after([](std::string_view name) {
            if (name == "bump_revision") throw error{errc::timed_out, "made by the test"};
        });
        network.before([](std::string_view name) {
            if (name == "rollback") throw error{errc::timed_out, "made by the test"};
        });
        CHECK(kind_of([&] { static_cast<void>(operator_.force_release("to be broken")); }) ==
              errc::timed_out);
        network.after({});
        network.before({});
        // On a connection that is still inside the transaction this grant would be visible only to
        // the client itself.
        const auto lease = operator_.acquire("job");
        CHECK(database.number("select token from rowlock_lock where name = 'job'") ==
              lease.token().value());
        CHECK_FALSE(holder.try_acquire("job"));
        CHECK(operator_.force_release("to be broken"));
    }
}

ROWLOCK_SIMULATED_CASE(
    "an acquire whose deadline passes before the grant arrives fails, and the lock is free again",
    database) {
    interception slow;
    client locks{slow.wrap(database.source()), database.options()};
    (void)locks.acquire("warm-up");
    slow.after([](std::string_view) { std::this_thread::sleep_for(25ms); });
    CHECK(kind_of([&] { (void)locks.acquire("job", {.max_duration = 10ms}); }) == errc::timed_out);
    slow.after([](std::string_view) {});
    CHECK(locks.try_acquire_for("job", support::patience).has_value());
}

ROWLOCK_SIMULATED_CASE(
    "a grant that is looked up late has the deadline of the statement that made it", database) {
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    const auto other = locks.acquire("warm up");
    int attempts = 0;
    std::int64_t late = 0;
    network.before([&](std::string_view name) {
        if (name != insertion(database)) return;
        if (++attempts == 1) {
            late = interception::parameter(3);
            interception::lose_reply();  // the statement is still on its way
        }
        if (attempts != 2) return;
        std::this_thread::sleep_for(700ms);
        database.write_late_grant("job", other.session_id(), grant_id{late});
    });
    const auto lease = locks.acquire("job", {.max_duration = 20s});
    CHECK(lease.grant_id() == grant_id{late});
    CHECK(lease.token().value() == 7);
    CHECK(lease.remaining() <= 20s - 700ms);
}

ROWLOCK_SIMULATED_CASE(
    "a mutex whose lock was lost does not return the lease of the thread that holds it now",
    database) {
    client locks{database.source(), database.options()};
    rowlock::mutex lock{locks, "job"};
    lock.lock();
    const auto old = lock.token();
    REQUIRE(locks.force_release("job"));
    std::async(std::launch::async, [&] {
        lock.lock();
        CHECK(lock.held());
        CHECK(lock.token() > old);
    }).get();
    CHECK_FALSE(lock.held());
    CHECK(lock.token() == fencing_token{});
    CHECK_FALSE(lock.lost().stop_possible());
    CHECK(kind_of([&] { lock.release(); }) == errc::not_owner);
}

ROWLOCK_SIMULATED_CASE("reclaim does not adopt a grant that the client is giving back", database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.watchful({.owner = "billing-1", .retry = {.attempts = 1}})};
    const auto other = locks.acquire("warm up");
    const auto self = std::this_thread::get_id();
    std::int64_t late = 0;
    network.before([&](std::string_view name) {
        if (std::this_thread::get_id() != self || name != insertion(database)) return;
        late = interception::parameter(3);
        interception::lose_reply();
    });
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job")); }) == errc::outcome_unknown);
    network.before([&](std::string_view name) {
        if (std::this_thread::get_id() != self || name != "session_leases") return;
        // The delayed statement commits here.
        database.write_late_grant("job", other.session_id(), grant_id{late});
    });
    CHECK(locks.reclaim().leases.empty());
    network.before({});
    CHECK(eventually([&] {
        return database.number(
                   "select count(*) from rowlock_lock where name = 'job' and session is not "
                   "null") == 0;
    }));
}

// shows: promise-6
ROWLOCK_SIMULATED_CASE(
    "after an unknown outcome the rows are compared periodically, without a reconnect", database) {
    interception network;
    client locks{network.wrap(database.source()), database.watchful({.retry = {.attempts = 1}})};
    const auto other = locks.acquire("warm up");
    network.before([](std::string_view name) {
        if (name == "acquire" || name == "probe") interception::lose_reply();
    });
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire("job")); }) == errc::outcome_unknown);
    network.before({});
    // A server that was stopped may run a statement long after the client has stopped looking
    // for its id.
    database.write_late_grant("late", other.session_id(), grant_id{12345});
    CHECK(eventually([&] {
        return database.number(
                   "select count(*) from rowlock_lock where name = 'late' and session is not "
                   "null") == 0;
    }));
    CHECK(other.held());
}

ROWLOCK_SIMULATED_CASE("a lock that is neither granted nor held is an error, not an endless loop",
                       database) {
    client locks{database.source(), database.options()};
    const auto other = locks.acquire("warm up");
    database.run("delete from rowlock_token_floor");
    const errc kind = kind_of([&] { static_cast<void>(locks.try_acquire("job")); });
    CHECK((kind == errc::database_error || kind == errc::schema_outdated));
    CHECK(other.held());
}

TEST_CASE("round trips longer than the trust window never yield a lease, and the call ends") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    interception network;
    client locks{network.wrap(database.source()), database.options({.ttl = 100ms})};
    network.after([](std::string_view name) {
        if (name == "acquire" || name == "heartbeat") std::this_thread::sleep_for(120ms);
    });
    // The lock is busy, since the client's lost session may still hold it, or the error says to
    // raise the ttl.
    bool granted = false;
    const errc kind = kind_of([&] { granted = locks.try_acquire("job").has_value(); });
    CHECK_FALSE(granted);
    CHECK((kind == errc{} || kind == errc::database_error));
}

ROWLOCK_SIMULATED_CASE(
    "a forced release whose reply was lost is repeated, and leaves the next holder alone",
    database) {
    interception network;
    client first{database.source(), database.options()};
    client second{database.source(), database.options()};
    client operator_{network.wrap(database.source()), database.options()};
    const auto broken = first.acquire("job");
    std::optional<lease> next;
    network.after([&](std::string_view name) {
        if (name != "commit" || next) return;
        next = second.try_acquire("job");
        interception::lose_reply();
    });
    CHECK(operator_.force_release("job"));
    REQUIRE(next);
    CHECK(session_id{database.number(
              "select coalesce(session, 0) from rowlock_lock where name = 'job'")} ==
          next->session_id());
}

ROWLOCK_SIMULATED_CASE("reclaim does not adopt a lease that another thread releases at that moment",
                       database) {
    interception network;
    client locks{network.wrap(database.source()), database.options({.owner = "billing-1"})};
    auto lease = locks.acquire("job");
    const auto self = std::this_thread::get_id();
    std::atomic<bool> once{true};
    network.after([&](std::string_view name) {
        if (std::this_thread::get_id() != self || name != "session_leases") return;
        if (once.exchange(false)) {
            std::async(std::launch::async, [&] { lease.release(); }).get();
        }
    });
    CHECK(locks.reclaim().leases.empty());
    client other{database.source(), database.options()};
    CHECK(other.try_acquire("job"));
}

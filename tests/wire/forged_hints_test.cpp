// Wake-ups carry no authority: a program that cannot read rowlock's tables neither makes a client
// believe in a grant nor makes it query more often, although it knows all names and ids and
// listens.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/queues.hpp"
#include "support/stranger.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::address_of;
using support::eventually;
using support::interception;
using support::lies;
using support::places;
using support::soon;
using support::stranger;
using steady = std::chrono::steady_clock;

namespace {

/// Below the poll interval, which begins with a poll.
constexpr auto at_once = 8s;
/// A token that would pass every later fence.
constexpr std::int64_t forged_token = 4'000'000'000'000'000'000;

client_options by_datagram(const support::lock_database& database) {
    auto options = database.options({.poll_interval = 10s});
    options.wake_ups = wakeup_mode::automatic;
    return options;
}

/// A client that waits for "job" while another holds it.
struct scene {
    explicit scene(support::lock_database& database)
        : holder{database.source(), by_datagram(database)},
          waiter{network.wrap(database.source()), by_datagram(database)},
          held{holder.acquire("job")},
          waiting{std::async(std::launch::async, [this] { return acquire_soon(waiter, "job"); })} {
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
        victim =
            address_of(database, session_id{database.number("select session from rowlock_ticket")});
        grant_id = rowlock::grant_id{database.number("select grant_id from rowlock_ticket")};
        if (database.speaks() == sql::dialect::postgresql) {
            REQUIRE(eventually([&] { return support::listens(database, victim); }));
        }
    }

    [[nodiscard]] bool still_waits() { return waiting.wait_for(0s) == std::future_status::timeout; }
    lease serve() {
        const auto start = steady::now();
        held.release();
        auto got = waiting.get();
        CHECK(steady::now() - start < at_once);
        return got;
    }

    interception network;
    client holder, waiter;
    lease held;
    std::future<lease> waiting;
    wakeup::wake_address victim;
    rowlock::grant_id grant_id{};
};

}  // namespace

TEST_CASE("a program that knows all but the tables makes no waiter believe in a grant") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        stranger stranger{database};
        scene on{database};
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        if (postgresql) CHECK_FALSE(stranger.reads_our_tables());
        const auto polls = on.waiter.stats().polls;
        REQUIRE(stranger.say(on.victim, lies({on.grant_id, forged_token}), 20));
        CHECK(on.still_waits());
        CHECK(on.held.held());
        // Notifications arrive in order: after the hand-over the waiter has read all of them.
        const auto got = on.serve();
        CHECK(got.token().value() < 100);
        CHECK(got.held());
        CHECK(on.waiter.stats().wake_ups <= 1);
        // On MariaDB a waiter polls after each sleep in the server has begun, with growing pauses.
        if (database.speaks() != sql::dialect::mysql) {
            CHECK(on.waiter.stats().polls <= polls + 2);  // one in flight, and one as it listens
        }
        CHECK(on.waiter.stats().lost == 0);
    }
}

TEST_CASE(
    "control: a program with the secret of the waiter's row is believed until the table denies "
    "it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        stranger stranger{database};
        bool believed = false;
        // On a busy machine the table may deny it before the call returns, which then goes on
        // waiting.
        for (int attempt = 0; attempt < 5 && !believed; ++attempt) {
            scene on{database};
            REQUIRE(stranger.say(
                on.victim, {wakeup::encode_wakeup({on.grant_id, forged_token}, on.victim.secret)}));
            REQUIRE(eventually([&] { return on.waiter.stats().wake_ups > 0; }));
            if (database.speaks() == sql::dialect::sqlite) {
                // On SQLite the client always checks the row.
                CHECK(on.serve().token().value() < 100);
                break;
            }
            if (on.waiting.wait_for(at_once) == std::future_status::timeout) {
                CHECK(on.serve().token().value() < 100);
                continue;
            }
            auto got = on.waiting.get();
            believed = true;
            CHECK(got.token().value() == forged_token);
            CHECK(eventually([&] { return !got.held(); }, at_once));
            CHECK(on.held.held());
        }
        CHECK(believed == (database.speaks() != sql::dialect::sqlite));
    }
}

// Its control is the case above. A grant that an operator has ended since is one such: a client
// that stalls reads its wake-up after its own heartbeat has found the change.
TEST_CASE(
    "a wake-up that may be older than a change of the session's rows makes no waiter believe") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        stranger stranger{database};
        scene on{database};
        database.run(
            "update rowlock_session set revision = revision + 1 where id in (select session from "
            "rowlock_ticket)");
        // It makes the next heartbeat due, which is refused; the one after that is not.
        const auto beats = on.waiter.stats().heartbeats;
        REQUIRE(stranger.say(on.victim, {wakeup::encode_look(1, on.victim.secret)}));
        REQUIRE(eventually([&] { return on.waiter.stats().heartbeats > beats; }));
        REQUIRE(stranger.say(
            on.victim, {wakeup::encode_wakeup({on.grant_id, forged_token}, on.victim.secret)}));
        REQUIRE(eventually([&] { return on.waiter.stats().wake_ups > 0; }));
        CHECK(on.waiting.wait_for(200ms) == std::future_status::timeout);
        const auto got = on.serve();
        CHECK(got.token().value() < 100);
        CHECK(got.held());
        CHECK(on.waiter.stats().lost == 0);
    }
}

TEST_CASE("an overheard proof proves nothing else, and nothing once its grant has ended") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    stranger stranger{database};
    client holder{database.source(), database.options({.poll_interval = 10s})};
    client waiter{database.source(), database.options({.poll_interval = 10s})};
    std::vector<std::string> overheard;
    for (int round = 0; round < 3; ++round) {
        auto held = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
        const auto victim =
            address_of(database, session_id{database.number("select session from rowlock_ticket")});
        REQUIRE(eventually([&] { return support::listens(database, victim); }));
        const auto polls = waiter.stats().polls;
        const grant_id grant_id{database.number("select grant_id from rowlock_ticket")};
        if (round == 0) stranger.listen(victim);
        REQUIRE(stranger.say(victim, lies({grant_id, forged_token}, overheard)));
        static_cast<void>(stranger.heard());  // those were the stranger's own notifications
        CHECK(waiting.wait_for(0s) == std::future_status::timeout);
        CHECK(waiter.stats().polls <= polls + 2);  // one in flight, and one as it listens
        held.release();
        auto got = waiting.get();
        CHECK(got.token() > held.token());
        CHECK(got.token().value() < 100);
        const auto now = stranger.heard();
        REQUIRE(now.size() == 1);
        CHECK(now.front().starts_with(to_string(grant_id) + ' '));
        CHECK(now.front().find(victim.secret) == std::string::npos);
        overheard.push_back(now.front());
        // The stranger replays the notification, during the grant and after it.
        REQUIRE(stranger.say(victim, {now.front()}));
        CHECK(got.held());
        got.release();
        REQUIRE(stranger.say(victim, {now.front()}));
    }
    CHECK(waiter.stats().lost == 0);
    CHECK(waiter.stats().wake_ups <= 3);  // a poll may have found a grant first
}

TEST_CASE("a flood of unproved wake-ups does not make a waiter query the database more often") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        stranger stranger{database};
        scene on{database};
        std::atomic<int> asked{0};
        on.network.before([&](std::string_view) { ++asked; });
        const auto start = steady::now();
        auto texts = lies({on.grant_id, forged_token});
        texts.emplace_back(128, 'x');
        if (database.speaks() == sql::dialect::postgresql) texts.emplace_back();
        while (steady::now() - start < 1s) REQUIRE(stranger.say(on.victim, texts, 50));
        // Heartbeats, a sleep in the server every 2 s with its polls, and a poll every 10 s.
        CHECK(asked < 40);
        CHECK(on.still_waits());
        CHECK(on.serve().token().value() < 100);
    }
}

TEST_CASE("neither an address nor a visible query contains the secret that proves a wake-up") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    scene on{database};
    const auto session = database.number("select session from rowlock_ticket");
    CHECK(on.victim.number != session);
    const auto queries = database.admin().query("select query from pg_stat_activity", soon());
    for (std::size_t row = 0; row < queries.rows(); ++row) {
        if (queries.is_null(row, 0)) continue;
        const auto text = queries.text(row, 0);
        CHECK(text.find(on.victim.secret) == std::string_view::npos);
        CHECK(text.find(to_string(on.grant_id)) == std::string_view::npos);
    }
    CHECK(on.serve().held());
}

TEST_CASE(
    "a session without a mailbox is notified by the database, not by a socket with its number") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), by_datagram(database)};
        client waiter{database.source(), database.options({.poll_interval = 10s})};  // has none
        auto held = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 1));
        const session_id session{database.number("select session from rowlock_ticket")};
        const auto to = address_of(database, session);
        CHECK_FALSE(to.mailbox.has_value());
        // A stranger has opened a socket with its number, and reads what is sent there.
        const wakeup::mailbox trap{to.number};
        REQUIRE(eventually([&] {
            return database.speaks() == sql::dialect::postgresql
                       ? waiter.stats().polls > 0
                       : support::sleeper(database.admin(), session).has_value();
        }));
        const auto start = steady::now();
        held.release();
        CHECK(waiting.get().held());
        CHECK(steady::now() - start < at_once);
        CHECK(trap.take().empty());
    }
}

TEST_CASE("a grant's id does not reveal the next one") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        std::vector<std::int64_t> ids;
        for (int i = 0; i < 8; ++i) {
            const auto lease = locks.acquire("job");
            ids.push_back(static_cast<std::int64_t>(lease.grant_id()));
            CHECK(lease.grant_id() > grant_id{});
        }
        std::set<std::int64_t> steps;
        for (std::size_t i = 1; i < ids.size(); ++i) steps.insert(ids[i] - ids[i - 1]);
        CHECK(steps.size() == ids.size() - 1);
    }
}

// A queue on an SQLite file: its first waiters watch the file, the others rest and are notified by
// name. The tests decide whether a waiter is notified. In tests of wake-ups the poll interval is
// 10 s.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include "support/serving.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using support::acquire_soon;
using support::at_best;
using support::eventually;
using support::interception;
using support::places;
using support::soon;
using steady = std::chrono::steady_clock;

namespace {

constexpr auto at_once = 8s;

/// Sends and receives no wake-ups, like a client in another network namespace or behind SOCI.
class silent_connection final : public sql::connection {
public:
    explicit silent_connection(std::unique_ptr<sql::connection> inner) : inner_{std::move(inner)} {}

    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return inner_->execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return inner_->query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return inner_->transaction();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::unique_ptr<sql::connection> inner_;
};

sql::connection_source silent(const sql::connection_source& inner) {
    return sql::connection_source{
        sql::dialect::sqlite,
        [inner](sql::deadline until) {
            return std::make_unique<silent_connection>(inner.connect(until));
        },
        inner.description()}
        .with_tables(inner.tables());
}

/// Session 7, without a client: it holds "job" and has further entries in its queue.
class crowd {
public:
    crowd(support::lock_database& database, int in_line)
        : database_{database},
          protocol_{database.protocol()},
          queue_{database.queue()},
          db_{database.connect()} {
        protocol_.sessions().open(*db_, {session_id{7}, "owner", "host", "program", 1, 60s},
                                  soon());
        for (std::int64_t id = 70; id <= 70 + in_line; ++id) {
            queue_.enqueue(*db_, {"job", session_id{7}, grant_id{id}, "", "", std::nullopt},
                           soon());
        }
        CHECK(serve_next());
    }

    /// Deletes its entries and frees the lease, without a wake-up.
    void vanish() {
        database_.run("delete from rowlock_ticket where session = 7");
        database_.run("update rowlock_lock set session = null, grant_id = null");
    }
    std::optional<protocol::handed_over> serve_next() {
        return support::serve_one(queue_, *db_, "job", soon());
    }
    void tell(const protocol::handed_over& next) const {
        queue_.notify_grantee(*db_, next, soon());
    }

private:
    support::lock_database& database_;
    const protocol::lease_protocol& protocol_;
    const protocol::queue_protocol& queue_;
    std::unique_ptr<sql::connection> db_;
};

/// Has the waiter woken by name once. From then on it relies on that.
void be_told_once(support::lock_database& database, client& waiter) {
    client speaker{database.source(), database.options()};
    REQUIRE(eventually([&] {
        const auto told = waiter.stats().wake_ups;
        auto lease = speaker.acquire("another");
        auto waiting =
            std::async(std::launch::async, [&] { acquire_soon(waiter, "another").release(); });
        CHECK(places(database, 1));
        lease.release();
        waiting.get();
        return waiter.stats().wake_ups > told;  // else it saw the commit before the datagram
    }));
}

/// Waits until the client has polled after a pause of 160 ms or more. Its next pause is longer.
void until_polls_are_rare(const client& waiter) {
    constexpr int rare = 80;  // samples, 2 ms or more apart: a stall of this thread is one
    const auto end = std::chrono::steady_clock::now() + 20s;
    auto polls = waiter.stats().polls;
    for (int unchanged = 0; std::chrono::steady_clock::now() < end; ++unchanged) {
        std::this_thread::sleep_for(2ms);
        const auto seen = waiter.stats().polls;
        if (std::exchange(polls, seen) == seen) continue;
        if (unchanged >= rare) return;
        unchanged = -1;
    }
    FAIL("the client goes on polling often");
}

}  // namespace

// shows: wake-ups
TEST_CASE("only the first waiters of a queue on an SQLite file poll after commits of others") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client holder{database.source(), database.options()};
    auto held = holder.acquire("job");
    constexpr int many = 8;
    std::vector<std::unique_ptr<client>> clients;
    std::vector<std::future<void>> waiting;
    for (int i = 0; i < many; ++i) {
        clients.push_back(
            std::make_unique<client>(database.source(), database.options({.poll_interval = 10s})));
        waiting.push_back(std::async(std::launch::async, [&mine = *clients.back()] {
            acquire_soon(mine, "job").release();
        }));
        REQUIRE(places(database, i + 1));
    }
    database.run("create table noise (n)");
    // All waiters have seen the enqueues. Only the commits that follow count.
    const auto looks = [&](const auto& which) { return which->stats().polls; };
    const auto first_before = looks(clients.front());
    const auto last_before = looks(clients.back());
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    // The first looks after each commit, the last after a time that grows with each look.
    const auto looks_more_often = [&] {
        database.run("insert into noise values (1)");
        first = looks(clients.front()) - first_before;
        last = looks(clients.back()) - last_before;
        return first > 100 && last * 4 < first;
    };
    CHECK(eventually(looks_more_often));
    MESSAGE("looks: ", first, " of the first, ", last, " of the last");
    const auto start = steady::now();
    held.release();
    for (auto& each : waiting) each.get();
    // Each becomes one of the first in its turn. That one far back is notified: see below.
    CHECK(steady::now() - start < at_once);
}

TEST_CASE("a waiter far back in the queue is notified by name when it is served") {
    {
        const support::lock_database database{support::backend::sqlite};
        if (!database.there()) return;
    }
    bool notified = true;
    SUBCASE("notified") {}
    SUBCASE("control: not notified") {
        notified = false;
    }
    // Whether the notification alone woke it. A stall may reach the next poll, which finds the
    // grant, too.
    const auto is_woken_by_name = [&]() -> bool {
        support::lock_database database{support::backend::sqlite};
        client waiter{database.source(), database.options({.poll_interval = 10s})};
        be_told_once(database, waiter);
        crowd others{database, 6};
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 7));
        until_polls_are_rare(waiter);  // the queue does not move
        const auto told = waiter.stats().wake_ups;
        others.vanish();
        const auto next = others.serve_next();
        REQUIRE(next);
        const auto start = steady::now();
        const bool waits = notified || waiting.wait_for(500ms) == std::future_status::timeout;
        others.tell(*next);
        CHECK(waiting.get().held());
        if (!notified) return waits;
        CHECK(steady::now() - start < at_once);
        return waiter.stats().wake_ups == told + 1;
    };
    bool done = false;
    for (int tries = 0; tries < 5 && !done; ++tries) done = is_woken_by_name();
    CHECK(done);
}

// shows: wake-ups
TEST_CASE(
    "a waiter that is not notified finds within a poll interval that all entries before its own "
    "are gone") {
    constexpr auto interval = 800ms;
    const auto found_after = [&]() -> steady::duration {
        support::lock_database database{support::backend::sqlite};
        if (!database.there()) return 0s;
        client waiter{database.source(), database.options({.poll_interval = interval})};
        be_told_once(database, waiter);
        crowd others{database, 6};
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 7));
        until_polls_are_rare(waiter);
        const auto start = steady::now();
        others.vanish();
        CHECK(waiting.get().held());
        return steady::now() - start;
    };
    CHECK(at_best(2 * interval, found_after) < 2 * interval);
}

TEST_CASE(
    "a waiter at the head of the queue watches the file, although the client before it notifies "
    "none") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client mute{silent(database.source()), database.options({.poll_interval = 50ms})};
    client waiter{database.source(), database.options({.poll_interval = 10s})};
    be_told_once(database, waiter);
    auto first = mute.acquire("job");
    auto between = std::async(std::launch::async, [&] { return acquire_soon(mute, "job"); });
    REQUIRE(places(database, 1));
    auto last = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(places(database, 2));
    until_polls_are_rare(waiter);
    first.release();
    auto second = between.get();
    until_polls_are_rare(waiter);
    database.run("create table noise (n)");
    const auto slowest_of_three = [&] {
        steady::duration most{0};
        for (int n = 0; n < 3; ++n) {
            const auto looks = waiter.stats().polls;
            database.run("insert into noise values (1)");
            const auto committed = steady::now();
            CHECK(eventually([&] { return waiter.stats().polls > looks; }));
            most = std::max(most, steady::now() - committed);
        }
        return most;
    };
    CHECK(at_best(100ms, slowest_of_three) < 100ms);
    const auto start = steady::now();
    second.release();
    CHECK(last.get().held());
    CHECK(steady::now() - start < at_once);
}

// shows: wake-ups
TEST_CASE("a forged datagram is not believed, and a malformed one does no harm") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options({.poll_interval = 10s})};
    auto held = holder.acquire("job");
    auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(places(database, 1));
    const session_id session{database.number("select session from rowlock_ticket")};
    const grant_id grant_id{database.number("select grant_id from rowlock_ticket")};
    const auto victim = support::address_of(database, session);
    const auto sender = support::mailbox_sender(victim);
    const std::array<std::string, 9> texts{
        "1 1",
        to_string(grant_id) + " 99",
        wakeup::encode_wakeup({grant_id, 99}, std::string(32, '0')),
        wakeup::encode_wakeup({grant_id, 99}, victim.secret),  // by a reader of the file
        " ",
        "x",
        "1",
        "99999999999999999999999 1",
        std::string(128, '\xff')};
    for (const auto& text : texts) CHECK(sender.post(text));
    CHECK(waiting.wait_for(300ms) == std::future_status::timeout);
    CHECK(held.held());
    const auto token = held.token();
    const auto start = steady::now();
    held.release();
    const auto got = waiting.get();
    CHECK(steady::now() - start < at_once);
    CHECK(got.held());
    CHECK(got.token() > token);
    CHECK(got.token().value() < 99);
}

TEST_CASE("a client grants a free lease to its own waiter, however slow its statements are") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    const support::protocol_connection hand{database};
    hand.open(session_id{1});
    REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{10}));
    interception network;
    client slow{network.wrap(database.source()),
                database.options({.ttl = 60s, .poll_interval = 100ms})};
    auto waiting = std::async(std::launch::async, [&] { return acquire_soon(slow, "job"); });
    REQUIRE(places(database, 1));
    // The statements of one hand-over take longer than the loop first gives it.
    network.before([](std::string_view) { std::this_thread::sleep_for(90ms); });
    REQUIRE(hand.free("job", session_id{1}, grant_id{10}));
    CHECK(waiting.wait_for(15s) == std::future_status::ready);
    network.before({});
    CHECK(waiting.get().held());
}

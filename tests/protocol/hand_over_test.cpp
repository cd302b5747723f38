// On MySQL and MariaDB a transaction that is sent as one text hands a lease over. These tests
// interrupt it at each point, and compare it with the same transaction sent statement by statement.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "lock/wakeup/mysql_wait.hpp"
#include "sql/in_transaction.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/queues.hpp"
#include "support/server_address.hpp"
#include "support/servers.hpp"
#include "support/serving.hpp"
#include "support/tcp_relay.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/forwarding_connection.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using support::backend;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

std::unique_ptr<sql::connection> connected(const support::lock_database& database) {
    auto made = database.connect();
    database.protocol().sessions().set_up(*made, 5s, soon());
    return made;
}

/// Session 1 holds "job", 2 and 3 wait for it with the tickets of grants 22 and 33. Their numbers
/// name user-level locks of the server, which other programs share.
struct line {
    explicit line(support::lock_database& which, bool whole_transactions = true)
        : database{which}, leases{which.protocol()}, queue{which.queue()} {
        network.transactions = whole_transactions;
        db = network.wrap(which.source()).connect(soon());
        leases.sessions().set_up(*db, 10s, soon());
        other = connected(which);
        const std::array offsets{&first, &second, &third};
        for (std::int64_t i = 0; i < 3; ++i) {
            *offsets.at(static_cast<std::size_t>(i)) =
                session_id{3'000'000'000'000'000'000 + ::getpid() * std::int64_t{1000} + i};
        }
        for (const auto id : {first, second, third}) {
            leases.sessions().open(*other, {id, "owner", "host", "program", 1, 60s}, soon());
        }
        token =
            leases
                .acquire(*other, {"job", first, grant_id{11}, "", "", std::nullopt, false}, soon())
                .token;
        REQUIRE(token > 0);
        queue.enqueue(*other, {"job", second, grant_id{22}, "thread", "a note", 30'000'000},
                      soon());
        queue.enqueue(*other, {"job", third, grant_id{33}, "", "", std::nullopt}, soon());
    }

    [[nodiscard]] protocol::release_outcome release() const {
        return queue.release(*db, "job", first, grant_id{11}, true, soon());
    }
    /// Locks the row of the lease.
    void block() const {
        other->query("begin", soon());
        other->query("select * from " + database.prefix() + "lock for update", soon());
    }
    void unblock() const { other->query("rollback", soon()); }
    [[nodiscard]] bool untouched() const {
        return database.number("select count(*) from rowlock_ticket") == 2 &&
               database.number("select grant_id from rowlock_lock") == 11 &&
               database.number("select token from rowlock_lock") == token;
    }
    [[nodiscard]] static bool in_transaction(sql::connection& of) {
        return sql::transaction_of(of, soon()) == sql::transaction_state::open;
    }
    [[nodiscard]] std::int64_t number_of(sql::connection& of) const {
        return of.query("select connection_id()", soon()).integer(0, 0);
    }
    support::lock_database& database;
    const protocol::lease_protocol& leases;
    const protocol::queue_protocol& queue;
    interception network;
    std::unique_ptr<sql::connection> db, other;
    session_id first{}, second{}, third{};
    std::int64_t token = 0;
};

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

/// As a program may wrap a connection; what the calling thread alone knows is lost.
class by_another_thread final : public sql::forwarding_connection {
public:
    using forwarding_connection::forwarding_connection;
    std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                 sql::deadline until) override {
        return in_background(
                   [&] { return forwarding_connection::transact(steps, afterwards, until); })
            .get();
    }
};

/// A connection on which `session` sleeps, behind its own wait lock.
struct mysql_wait_thread {
    mysql_wait_thread(const line& at, session_id who, std::unique_ptr<sql::connection> made)
        : session{who},
          wait_lock{static_cast<std::int64_t>(who) + 500},
          keeper{connected(at.database)},
          db{std::move(made)} {
        REQUIRE(mysql_wait::take_wait_lock(*keeper, wait_lock, soon()));
        mysql_wait::prepare_to_sleep(*db, session, soon());
    }
    [[nodiscard]] auto sleep(const line& at) const {
        auto ended = in_background(
            [this] { return mysql_wait::sleep_until_woken(*db, session, wait_lock, 10s, soon()); });
        REQUIRE(
            eventually([&] { return support::sleeper(at.database.admin(), session).has_value(); }));
        return ended;
    }

    session_id session;
    std::int64_t wait_lock;
    std::unique_ptr<sql::connection> keeper, db;
};

const std::vector<std::string> job{"job"};

}  // namespace

TEST_CASE("a holder that knows the next waiter hands the lease to it by compare-and-set") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    bool whole = false;
    SUBCASE("statement by statement") {}
    SUBCASE("as a whole") {
        whole = true;
    }
    CAPTURE(whole);
    const line at{database, whole};
    const auto settled =
        at.queue.confirm_and_read_next(*at.db, "job", at.first, grant_id{11}, false, soon());
    REQUIRE(settled);
    CHECK(settled->granted.token == at.token);
    REQUIRE(settled->next);
    CHECK(settled->next->session == at.second);
    CHECK_FALSE(
        at.queue.confirm_and_read_next(*at.db, "job", at.first, grant_id{12}, false, soon()));
    const auto hand_over_to = [&] {
        return at.queue.hand_over_to(*at.db, "job", at.first, grant_id{11}, *settled->next, {},
                                     soon());
    };
    SUBCASE("if nothing has changed") {
        const auto served = hand_over_to();
        REQUIRE(served);
        CHECK(served->grant_id == grant_id{22});
        CHECK(served->token == at.token + 1);
        CHECK(database.number("select count(*) from rowlock_lock where grant_id = 22 and thread = "
                              "'thread' and note = 'a note' and deadline is not null") == 1);
        CHECK(database.number("select count(*) from rowlock_ticket") == 1);
        CHECK_FALSE(hand_over_to());  // the session does not hold it any more
        CHECK(database.number("select grant_id from rowlock_lock") == 22);
    }
    SUBCASE("not if that waiter has cancelled: the release finds the one behind it") {
        const std::array gone{grant_id{22}};
        REQUIRE(at.queue.cancel(*at.other, gone, soon()).size() == 1);
        CHECK_FALSE(hand_over_to());
        CHECK_FALSE(line::in_transaction(*at.db));
        CHECK(database.number("select grant_id from rowlock_lock") == 11);
        CHECK(at.release().next->grant_id == grant_id{33});
    }
    SUBCASE("not if the lease was released by force and granted meanwhile") {
        protocol::victim victim;
        REQUIRE(at.leases.force_release(*at.other, "job", victim, soon()));
        REQUIRE(support::serve_one(at.queue, *at.other, "job", soon()));
        CHECK_FALSE(hand_over_to());
        CHECK(database.number("select grant_id from rowlock_lock") == 22);
    }
}

TEST_CASE("a hand-over has the same effect sent as one text and statement by statement") {
    std::vector<std::string> effects;
    std::vector<std::uint64_t> trips;
    for (const bool whole : {true, false}) {
        support::lock_database database{backend::mariadb};
        if (!database.there()) return;
        const line at{database, whole};
        const auto before = at.db->round_trips();
        const auto done = at.release();
        trips.push_back(at.db->round_trips() - before);
        CHECK(done.freed);
        REQUIRE(done.next.has_value());
        CHECK(done.next->session == at.second);
        CHECK(done.next->grant_id == grant_id{22});
        CHECK(done.next->token == at.token + 1);
        const auto rows = database.run(
            "select name, token, grant_id, thread, note, abs(changed_at - acquired_at) < 1000000, "
            "deadline - acquired_at > 29000000 from rowlock_lock where session = " +
            to_string(at.second));
        REQUIRE(rows.rows() == 1);
        std::string effect;
        for (std::size_t i = 0; i < rows.columns(); ++i)
            effect += std::string{rows.text(0, i)} + "|";
        effects.push_back(effect);
        CHECK(database.number("select count(*) from rowlock_ticket where grant_id = 33") == 1);
        // A release that is repeated frees nothing and serves no waiter.
        CHECK_FALSE(at.release().freed);
        CHECK_FALSE(at.release().next.has_value());
        CHECK(database.number("select count(*) from rowlock_ticket") == 1);
        // The last waiter has none behind it.
        REQUIRE(at.queue.release(*at.db, "job", at.second, grant_id{22}, true, soon())
                    .next.has_value());
        const auto last = at.queue.release(*at.db, "job", at.third, grant_id{33}, true, soon());
        CHECK(last.freed);
        CHECK_FALSE(last.next.has_value());
        CHECK(database.number("select count(*) from rowlock_lock where session is null and "
                              "grant_id is null and deadline is null") == 1);
        CHECK_FALSE(line::in_transaction(*at.db));
    }
    CHECK(effects.at(0) == effects.at(1));
    CHECK(trips.at(0) == 1);  // the server chooses the waiter
    CHECK(trips.at(1) == 5);
}

// shows: promise-9
TEST_CASE("a hand-over in one text frees a lease without a waiter, in one round trip") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    SUBCASE("because there is none") {
        database.run("delete from rowlock_ticket");
    }
    SUBCASE("because their limits have passed") {
        database.run("update rowlock_ticket set waits_until = enqueued_at");
    }
    SUBCASE("because the first asks for several leases") {
        database.run("update rowlock_ticket set members = 2 where grant_id = 22");
    }
    const auto waiting = database.number("select count(*) from rowlock_ticket");
    const auto before = at.db->round_trips();
    const auto done = at.release();
    CHECK(at.db->round_trips() - before == 1);
    CHECK(done.freed);
    CHECK_FALSE(done.next.has_value());
    CHECK(database.number("select count(*) from rowlock_lock where session is null and grant_id "
                          "is null and acquired_at is null") == 1);
    CHECK(database.number("select token from rowlock_lock") == at.token);
    CHECK(database.number("select count(*) from rowlock_ticket") == waiting);
    CHECK_FALSE(at.release().freed);
    CHECK_FALSE(line::in_transaction(*at.db));
}

// shows: promise-9
TEST_CASE("a waiter that cannot be served any more when the lease's row is locked is passed over") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.block();
    // It has chosen the first, and waits for the row.
    auto releasing = in_background([&] { return at.release(); });
    REQUIRE(support::somebody_waits_for_a_row(database));
    std::int64_t served = 33;
    SUBCASE("its limit has passed") {
        database.run("update rowlock_ticket set waits_until = enqueued_at where grant_id = 22");
    }
    SUBCASE("it was cancelled, which did not wait") {
        const auto third = connected(database);
        CHECK(at.queue.cancel(*third, std::array{grant_id{22}}, soon()).size() == 1);
    }
    SUBCASE("the control: nothing has happened to it") {
        served = 22;
    }
    at.unblock();
    const auto done = releasing.get();
    REQUIRE(done.next.has_value());
    CHECK(done.next->grant_id == grant_id{served});
    CHECK(done.next->token == at.token + 1);
    CHECK(database.number("select grant_id from rowlock_lock") == served);
    CHECK(database.number("select count(*) from rowlock_ticket where grant_id = " +
                          std::to_string(served)) == 0);
    CHECK_FALSE(line::in_transaction(*at.db));
}

// shows: promise-9
TEST_CASE("a hand-over in one text locks the lease's row and the ticket, and nothing else") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    const auto third = connected(database);
    third->query("set session innodb_lock_wait_timeout = 1", soon());
    const auto session_is_locked = [&] {
        return kind_of([&] {
                   third->query("update " + database.prefix() + "session set beats = beats + 1",
                                soon());
               }) == errc::timed_out;
    };
    // It has the lease's row, and waits for the ticket.
    at.other->query("begin", soon());
    at.other->query("select * from " + database.prefix() +
                        "ticket where ticket = (select "
                        "min(ticket) from " +
                        database.prefix() + "ticket) for update",
                    soon());
    auto releasing = in_background([&] { return at.release(); });
    REQUIRE(support::somebody_waits_for_a_row(database));
    CHECK_FALSE(session_is_locked());
    at.queue.enqueue(*third, {"job", at.third, grant_id{44}, "", "", std::nullopt}, soon());
    CHECK(at.queue.cancel(*third, std::array{grant_id{33}}, soon()).size() == 1);
    at.unblock();
    CHECK(releasing.get().next->grant_id == grant_id{22});
    // The control: SET locks what it reads, also at READ COMMITTED.
    at.other->query("begin", soon());
    at.other->query("set @chosen = (select max(m.beats) from " + database.prefix() + "session m)",
                    soon());
    CHECK(session_is_locked());
    at.unblock();
}

// shows: promise-9
TEST_CASE("a free lease goes to the waiter that is the first when the server comes to it") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    line at{database};
    const wakeup::mailbox box{static_cast<std::int64_t>(at.second)};
    database.run("update rowlock_session set wake_address = " + to_string(at.second) +
                 ", mailbox = " + std::to_string(wakeup::network_namespace().value()));
    database.run("update rowlock_lock set session = null, grant_id = null");
    std::int64_t served = 33;
    bool changed = false;
    at.network.before([&](std::string_view what) {
        if (what != "transaction" || std::exchange(changed, true)) return;
        // It was read before this.
        SUBCASE("the limit of another has passed") {
            database.run("update rowlock_ticket set waits_until = enqueued_at where grant_id = 22");
        }
        SUBCASE("the limits of all have passed") {
            database.run("update rowlock_ticket set waits_until = enqueued_at");
            served = 0;
        }
        SUBCASE("another client was faster") {
            REQUIRE(support::serve_one(at.queue, *at.other, "job", soon()).has_value());
            served = 0;
        }
        SUBCASE("nothing has happened") {
            served = 22;
        }
    });
    const auto before = at.db->round_trips();
    const auto next = support::serve_one(at.queue, *at.db, "job", soon());
    CHECK(changed);
    CHECK(next.has_value() == (served != 0));
    if (!next) return;
    CHECK(at.db->round_trips() - before == 2);
    CHECK(next->grant_id == grant_id{served});
    CHECK(next->token == at.token + 1);
    CHECK(database.number("select grant_id from rowlock_lock") == served);
}

// shows: promise-9
TEST_CASE(
    "a free lease is served through a connection that sends its transactions from a thread of its "
    "own") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    line at{database};
    const wakeup::mailbox box{static_cast<std::int64_t>(at.second)};
    database.run("update rowlock_session set wake_address = " + to_string(at.second) +
                 ", mailbox = " + std::to_string(wakeup::network_namespace().value()));
    database.run("update rowlock_lock set session = null, grant_id = null");
    by_another_thread db{connected(database)};
    const auto next =
        support::serve_one(at.queue, db, "job", std::chrono::steady_clock::now() + 10s);
    REQUIRE(next.has_value());
    CHECK(next->grant_id == grant_id{22});
    CHECK(next->token == at.token + 1);
    CHECK(database.number("select grant_id from rowlock_lock") == 22);
}

TEST_CASE("a hand-over that cannot lock the lease's row changes nothing") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.db->query("set session innodb_lock_wait_timeout = 1", soon());
    at.block();
    CHECK(kind_of([&] { (void)at.release(); }) == errc::timed_out);
    CHECK(at.db->alive());
    CHECK_FALSE(line::in_transaction(*at.db));
    at.unblock();
    CHECK(at.untouched());
    CHECK(at.release().next.has_value());
}

// shows: promise-9
TEST_CASE("a hand-over that is interrupted changes nothing") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.block();
    SUBCASE("by KILL QUERY") {
        const auto number = at.number_of(*at.db);
        auto releasing = in_background([&] { return kind_of([&] { (void)at.release(); }); });
        REQUIRE(support::somebody_waits_for_a_row(database));
        database.admin().query("kill query " + std::to_string(number), soon());
        CHECK(releasing.get() == errc::timed_out);
    }
    if (!support::mysql_alone()) {  // MySQL limits no statement that writes
        SUBCASE("by the limit on a statement's time") {
            at.db->query("set session max_statement_time = 0.2", soon());
            CHECK(kind_of([&] { (void)at.release(); }) == errc::timed_out);
            at.db->query("set session max_statement_time = 0", soon());
        }
    }
    CHECK(at.db->alive());
    CHECK_FALSE(line::in_transaction(*at.db));
    at.unblock();
    CHECK(at.untouched());
    CHECK(at.release().next.has_value());
}

// shows: promise-9
TEST_CASE("a hand-over whose connection is cut changes nothing") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.block();
    const auto number = at.number_of(*at.db);
    auto releasing = in_background([&] { return kind_of([&] { (void)at.release(); }); });
    REQUIRE(support::somebody_waits_for_a_row(database));
    database.admin().query("kill " + std::to_string(number), soon());
    CHECK(releasing.get() == errc::outcome_unknown);
    CHECK_FALSE(at.db->alive());
    at.unblock();
    CHECK(at.untouched());
    const auto again = connected(database);
    CHECK(at.queue.release(*again, "job", at.first, grant_id{11}, true, soon()).next.has_value());
}

// shows: promise-9
TEST_CASE("a lost reply to a hand-over loses no waiter's grant") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    interception network;
    network.transactions = true;
    const auto made = [&](std::chrono::milliseconds poll) {
        return client{network.wrap(database.source()),
                      database.options({.poll_interval = poll, .wake_ups = wakeup_mode::database})};
    };
    client holder = made(1s);
    client waiter = made(5s);
    // The waiter sleeps in the server, where the hand-over wakes it.
    const auto queued = [&](client& of) {
        auto waiting = in_background([&of] { return support::acquire_soon(of, "job"); });
        REQUIRE(eventually(
            [&] { return database.number("select count(*) from rowlock_ticket") == 1; }));
        const session_id session{database.number("select max(session) from rowlock_ticket")};
        REQUIRE(
            eventually([&] { return support::sleeper(database.admin(), session).has_value(); }));
        return waiting;
    };
    for (const std::string lost : {"transaction", "woken_for"}) {
        CAPTURE(lost);
        // A client's thread may still use it after this round.
        const auto seen = std::make_shared<std::atomic<int>>(0);
        // On a busy machine a poll may find the lease before the wake-up is read.
        for (int round = 0; round < 10 && *seen == 0; ++round) {
            auto first = holder.acquire("job");
            auto waiting = queued(waiter);
            first.release();
            auto second = waiting.get();  // a client that waited expects further waiters
            waiting = queued(holder);
            network.after([lost, seen](std::string_view what) {
                if (what == lost && (*seen)++ == 0) interception::lose_reply();
            });
            second.release();
            auto third = waiting.get();
            CHECK(third.held());
            CHECK(database.number("select count(*) from rowlock_lock where session is not null") ==
                  1);
            third.release();
            network.after({});
            CHECK(database.number("select count(*) from rowlock_lock where session is not null") ==
                  0);
        }
        CHECK(*seen > 0);
    }
}

// shows: promise-9
TEST_CASE("a waiter with either driver that the hand-over wakes finds its grant") {
    for (const auto driver : {backend::mariadb, backend::soci_mariadb}) {
        support::lock_database database{backend::mariadb};
        support::lock_database other_driver{driver};
        if (!database.there() || !other_driver.there()) return;
        CAPTURE(support::to_string(driver));
        const line at{database};
        database.run("update rowlock_session set wake_secret = '" +
                     wakeup::random_wake_address().secret + "'");
        // The same server and session, through the other driver.
        const mysql_wait_thread asleep{at, at.second, other_driver.source().connect(soon())};
        REQUIRE(at.queue.cancel(*at.other, std::array{grant_id{33}}, soon()).size() == 1);
        std::int64_t last = 100;
        grant_id held{11};
        for (int round = 0; round < 20; ++round) {
            auto ended = asleep.sleep(at);
            const auto done = at.queue.release(*at.db, "job", at.first, held, true, soon());
            REQUIRE(done.next.has_value());
            at.queue.notify_grantee(*at.db, *done.next, soon());
            REQUIRE(ended.get() == mysql_wait::ending::woken);
            const auto found = at.queue.served_of(*asleep.db, at.second, job, soon());
            REQUIRE(found.size() == 1);
            CHECK(found[0].grant_id == done.next->grant_id);
            CHECK(found[0].durable);
            // Set up the next round.
            const auto next = done.next->grant_id;
            REQUIRE(at.queue.release(*at.other, "job", at.second, next, false, soon()).freed);
            held = grant_id{++last};
            REQUIRE(at.leases
                        .acquire(*at.other, {"job", at.first, held, "", "", std::nullopt, false},
                                 soon())
                        .what == attempt::outcome::granted);
            at.queue.enqueue(*at.other, {"job", at.second, grant_id{++last}, "", "", std::nullopt},
                             soon());
        }
    }
}

TEST_CASE("a name, a note and a thread may hold any characters in the one text") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    const std::string name = "it's \"q\" \\ ? $1 \xF0\x9F\x94\x92 ; --";
    const std::string note(1000, 'n');
    REQUIRE(
        at.leases
            .acquire(*at.other, {name, at.first, grant_id{71}, "", "", std::nullopt, false}, soon())
            .what == attempt::outcome::granted);
    at.queue.enqueue(*at.other, {name, at.second, grant_id{72}, name, note, std::nullopt}, soon());
    at.queue.enqueue(*at.other, {name, at.third, grant_id{73}, "", "", std::nullopt}, soon());
    REQUIRE(at.queue.release(*at.db, name, at.first, grant_id{71}, true, soon()).next.has_value());
    const auto info = at.leases.inspect(*at.other, name, soon());
    REQUIRE(info->holder.has_value());
    CHECK(info->holder->thread == name);
    CHECK(info->holder->note == note);
    CHECK(at.queue.served_of(*at.db, at.second, std::vector{name}, soon()).size() == 1);
    REQUIRE(at.queue.release(*at.db, name, at.second, grant_id{72}, true, soon()).next.has_value());
    CHECK(at.leases.inspect(*at.other, name, soon())->holder->note.empty());
}

// shows: promise-9
TEST_CASE("a transaction sent as one text changes one row with each statement, or nothing") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    database.run(
        "insert into rowlock_ticket (name, session, grant_id, enqueued_at) "
        "select 'other', session, grant_id + 1000, enqueued_at from rowlock_ticket");
    const sql::statement one{"/* rowlock one */ update " + database.prefix() +
                             "lock set token = token + 1 where name = $1"};
    const sql::statement several{"/* rowlock several */ delete from " + database.prefix() +
                                 "ticket where name = $1"};
    const sql::statement broken{"/* rowlock broken */ delete from nothing where name = $1"};
    const sql::statement foreign{"update " + database.prefix() + "lock set token = token + 1"};
    const std::array here{sql::value{"job"}};
    const std::array there{sql::value{"other"}};
    const std::array nowhere{sql::value{"nowhere"}};
    const auto token = [&] { return database.number("select token from rowlock_lock"); };
    const auto waiters = [&] { return database.number("select count(*) from rowlock_ticket"); };
    const auto transact = [&](const sql::statement& what, std::span<const sql::value> parameters,
                              std::string_view afterwards = "") {
        const std::array steps{sql::step{one, here}, sql::step{what, parameters}};
        return at.db->transact(steps, afterwards, soon());
    };
    CHECK(transact(several, there) == false);
    CHECK(transact(several, nowhere) == false);
    CHECK(transact(one, nowhere) == false);
    CHECK(kind_of([&] { (void)transact(broken, here); }) == errc::schema_outdated);
    CHECK_FALSE(transact(foreign, {}).has_value());  // not a statement of rowlock
    CHECK(token() == at.token);
    CHECK(waiters() == 4);
    CHECK(at.db->alive());
    CHECK_FALSE(line::in_transaction(*at.db));
    // The result of the text after the commit does not matter.
    CHECK(transact(one, here, "kill query null") == true);
    CHECK(token() == at.token + 2);
    CHECK(transact(one, here, "select 1 union select 2") == true);
    CHECK(token() == at.token + 4);
    CHECK(at.db->query("select 7", soon()).integer(0, 0) == 7);
}

TEST_CASE("where several statements in one text are refused, a hand-over sends them one by one") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    auto address = contract::address_of(support::server::mariadb);
    support::tcp_relay proxy{address.port};
    // A proxy that hides CLIENT_MULTI_STATEMENTS: a bit of the greeting's flags, which follow its
    // header of four bytes.
    proxy.alter_first([](std::string& greeting) {
        constexpr unsigned multi_statements = 1;
        greeting.at(6) =
            static_cast<char>(static_cast<unsigned char>(greeting.at(6)) & ~multi_statements);
    });
    const line at{database};
    address.host = "127.0.0.1";
    address.port = proxy.port();
    const auto through = rowlock::open(address.url()).connect(soon());
    at.leases.sessions().set_up(*through, 10s, soon());
    const auto before = through->round_trips();
    const auto done = at.queue.release(*through, "job", at.first, grant_id{11}, true, soon());
    REQUIRE(done.next.has_value());
    CHECK(done.next->grant_id == grant_id{22});
    CHECK_FALSE(done.next->woken);
    CHECK(through->round_trips() - before ==
          7);  // the probe, the text, a rollback, then one by one
    const auto again = through->round_trips();
    CHECK(at.queue.release(*through, "job", at.second, grant_id{22}, true, soon()).next->grant_id ==
          grant_id{33});
    CHECK(through->round_trips() - again <= 8);  // statements that were sent before are prepared
    CHECK(through->alive());
    CHECK_FALSE(line::in_transaction(*through));
}

// shows: promise-9
TEST_CASE("a caller's text is one statement") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    const std::string waiters = database.prefix() + "ticket";
    for (const auto& text : std::vector<std::string>{
             "select 1; delete from " + waiters, "select 1;delete from " + waiters + ";",
             "select ';'; delete from " + waiters, "select 1 /* ; */; delete from " + waiters,
             "/* rowlock select */ select 1; delete from " + waiters,
             "create temporary table t (a int); delete from " + waiters}) {
        CAPTURE(text);
        CHECK(kind_of([&] { (void)at.db->query(text, soon()); }) == errc::database_error);
        CHECK(kind_of([&] { (void)at.db->execute(sql::statement{text}, {}, soon()); }) ==
              errc::database_error);
        CHECK(database.number("select count(*) from rowlock_ticket") == 2);
    }
    CHECK(at.db->query("select ';', 'a;b'", soon()).text(0, 1) == "a;b");
    CHECK(at.db->query("select 5; \n", soon()).integer(0, 0) == 5);
    CHECK(at.db->alive());
}

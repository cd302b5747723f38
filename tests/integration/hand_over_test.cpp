// MariaDB hands over in one compound statement, which has a transaction, a wake-up and a user-level
// lock in it. Here it is cut off at every place, and compared with the form in single statements.

#include "strategy/queue_protocol.hpp"
#include "strategy/wake_up.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
namespace wake_up = strategy::wake_up;
using strategy::attempt;
using support::backend;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

/// Session 1 holds "job", 2 and 3 wait for it with the tickets of grants 22 and 33. Their numbers
/// name user-level locks of the server, which other programs share.
struct line {
    explicit line(support::lock_database& which, bool compounds = true)
        : database{which}, leases{which.protocol()} {
        network.compounds = compounds;
        db = network.wrap(support::compounding(which)).connect(soon());
        leases.set_up(*db, 10s, soon());
        other = support::connect_compounding(which);
        const std::array offsets{&first, &second, &third};
        for (std::int64_t i = 0; i < 3; ++i) {
            *offsets.at(static_cast<std::size_t>(i)) =
                3'000'000'000'000'000'000 + ::getpid() * std::int64_t{1000} + i;
        }
        for (const auto id : {first, second, third}) {
            leases.open_session(*other, {id, "owner", "host", "program", 1, 60s}, soon());
        }
        token =
            leases.acquire(*other, {"job", first, 11, "", "", std::nullopt, false}, soon()).token;
        REQUIRE(token > 0);
        queue.enqueue(*other, {"job", second, 22, "thread", "a note", 30'000'000}, soon());
        queue.enqueue(*other, {"job", third, 33, "", "", std::nullopt}, soon());
    }

    [[nodiscard]] strategy::release_outcome release() const {
        return queue.release(*db, "job", first, 11, true, soon());
    }
    /// The statement itself, without what surrounds it.
    sql::result compound() const {
        const std::array<sql::value, 5> parameters{sql::value{"job"}, sql::value{first},
                                                   sql::value{11}, sql::value{1}, sql::value{0}};
        return db->execute(*leases.sql().hand_over_compound, parameters, soon());
    }
    /// Keeps the row of the lease for itself.
    void block() const {
        other->query("begin", soon());
        other->query("select * from " + database.prefix() + "lease for update", soon());
    }
    void unblock() const { other->query("rollback", soon()); }
    [[nodiscard]] bool untouched() const {
        return database.number("select count(*) from rowlock_waiter") == 2 &&
               database.number("select grant_id from rowlock_lease") == 11 &&
               database.number("select token from rowlock_lease") == token;
    }
    [[nodiscard]] static bool in_transaction(sql::connection& of) {
        return of.query("select @@in_transaction", soon()).integer(0, 0) == 1;
    }
    [[nodiscard]] std::int64_t number_of(sql::connection& of) const {
        return of.query("select connection_id()", soon()).integer(0, 0);
    }
    [[nodiscard]] bool kept_for_reading(std::int64_t session) const {
        return !other
                    ->query("select is_used_lock('rowlock_serve_" + std::to_string(session) + "')",
                            soon())
                    .is_null(0, 0);
    }

    support::lock_database& database;
    interception network;
    strategy::lease_protocol leases;
    strategy::queue_protocol queue{leases};
    std::unique_ptr<sql::connection> db, other;
    std::int64_t first = 0, second = 0, third = 0, token = 0;
};

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

/// A connection on which `session` sleeps, before a gate of its own.
struct sleeper {
    sleeper(const line& at, std::int64_t who, std::unique_ptr<sql::connection> made)
        : session{who},
          gate{who + 500},
          keeper{support::connect_compounding(at.database)},
          db{std::move(made)} {
        REQUIRE(wake_up::shut_gate(*keeper, gate, soon()));
        wake_up::prepare_to_sleep(*db, session, soon());
    }
    [[nodiscard]] auto sleep(const line& at) const {
        auto ended = in_background(
            [this] { return wake_up::sleep_until_woken(*db, session, gate, 10s, soon()); });
        REQUIRE(eventually([&] {
            return at.database.admin()
                       .query(
                           "select count(*) from information_schema.processlist where "
                           "state = 'User lock' and info like '%as rowlock#_wake#_" +
                               std::to_string(session) + "' escape '#'",
                           soon())
                       .integer(0, 0) == 1;
        }));
        return ended;
    }

    std::int64_t session, gate;
    std::unique_ptr<sql::connection> keeper, db;
};

bool waits_for_a_user_lock(support::lock_database& database, const std::string& what) {
    return eventually([&] {
        return database.admin()
                   .query(
                       "select count(*) from information_schema.processlist "
                       "where state = 'User lock' and info like '%" +
                           what + "%'",
                       soon())
                   .integer(0, 0) > 0;
    });
}

const std::vector<std::string> job{"job"};

}  // namespace

TEST_CASE("a holder that was told who is next gives the lease to that one, by compare-and-set") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database, false};
    const auto settled = at.queue.settle(*at.db, "job", at.first, 11, false, soon());
    REQUIRE(settled);
    CHECK(settled->granted.token == at.token);
    REQUIRE(settled->next);
    CHECK(settled->next->session == at.second);
    CHECK_FALSE(at.queue.settle(*at.db, "job", at.first, 12, false, soon()));
    const auto pass_on = [&] {
        return at.queue.pass_on(*at.db, "job", at.first, 11, *settled->next, {}, soon());
    };
    SUBCASE("if nothing has happened") {
        const auto served = pass_on();
        REQUIRE(served);
        CHECK(served->grant_id == 22);
        CHECK(served->token == at.token + 1);
        CHECK(database.number("select count(*) from rowlock_lease where grant_id = 22 and thread = "
                              "'thread' and note = 'a note' and deadline is not null") == 1);
        CHECK(database.number("select count(*) from rowlock_waiter") == 1);
        CHECK_FALSE(pass_on());  // it is not ours any more
        CHECK(database.number("select grant_id from rowlock_lease") == 22);
    }
    SUBCASE("not if it has given up: the release finds the one behind it") {
        const std::array<std::int64_t, 1> gone{22};
        REQUIRE(at.queue.cancel(*at.other, gone, soon()).size() == 1);
        CHECK_FALSE(pass_on());
        CHECK_FALSE(line::in_transaction(*at.db));
        CHECK(database.number("select grant_id from rowlock_lease") == 11);
        CHECK(at.release().next->grant_id == 33);
    }
    SUBCASE("not if another was put in by force meanwhile") {
        strategy::victim victim;
        REQUIRE(at.leases.force_release(*at.other, "job", victim, soon()));
        REQUIRE(at.queue.grant_next(*at.other, "job", soon()));
        CHECK_FALSE(pass_on());
        CHECK(database.number("select grant_id from rowlock_lease") == 22);
    }
}

TEST_CASE("one statement and single statements hand over to the same effect") {
    std::vector<std::string> effects;
    std::vector<std::uint64_t> trips;
    for (const bool compounds : {true, false}) {
        support::lock_database database{backend::mariadb};
        if (!database.there()) return;
        const line at{database, compounds};
        (void)at.queue.release(*at.db, "nothing", at.first, 11, true, soon());  // is prepared
        const auto before = at.db->round_trips();
        const auto done = at.release();
        trips.push_back(at.db->round_trips() - before);
        CHECK(done.freed);
        REQUIRE(done.next.has_value());
        CHECK(done.next->session == at.second);
        CHECK(done.next->grant_id == 22);
        CHECK(done.next->token == at.token + 1);
        CHECK_FALSE(done.next->woken);  // nobody sleeps
        const auto rows = database.run(
            "select name, token, grant_id, thread, note, abs(changed_at - acquired_at) < 1000000, "
            "deadline - acquired_at > 29000000 from rowlock_lease where session = " +
            std::to_string(at.second));
        REQUIRE(rows.rows() == 1);
        std::string effect;
        for (std::size_t i = 0; i < rows.columns(); ++i)
            effect += std::string{rows.text(0, i)} + "|";
        effects.push_back(effect);
        CHECK(database.number("select count(*) from rowlock_waiter where grant_id = 33") == 1);
        // A release that is repeated frees nothing and serves nobody.
        CHECK_FALSE(at.release().freed);
        CHECK_FALSE(at.release().next.has_value());
        CHECK(database.number("select count(*) from rowlock_waiter") == 1);
        // The last: nobody waits.
        REQUIRE(at.queue.release(*at.db, "job", at.second, 22, true, soon()).next.has_value());
        const auto last = at.queue.release(*at.db, "job", at.third, 33, true, soon());
        CHECK(last.freed);
        CHECK_FALSE(last.next.has_value());
        CHECK(database.number("select count(*) from rowlock_lease where session is null and "
                              "grant_id is null and deadline is null") == 1);
        CHECK_FALSE(line::in_transaction(*at.db));
    }
    CHECK(effects.at(0) == effects.at(1));
    CHECK(trips.at(0) == 1);
    CHECK(trips.at(1) >= 5);
}

TEST_CASE("a server that cannot prepare compound statements gets single ones, from then on") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    line at{database};
    int tried = 0;
    int single = 0;
    at.network.before([&](std::string_view what) {
        if (what == "take") ++single;
        if (what != "hand_over_compound" && what != "served_of_compound") return;
        ++tried;
        throw error{errc::unsupported,
                    "not in the prepared statement protocol yet",
                    {.sqlstate = "HY000", .native_code = 1295, .message = ""}};
    });
    REQUIRE(at.release().next.has_value());
    REQUIRE(at.queue.release(*at.db, "job", at.second, 22, true, soon()).next.has_value());
    CHECK(at.queue.served_of(*at.db, at.third, job, soon()).size() == 1);
    CHECK(tried == 1);
    CHECK(single == 2);
    CHECK_FALSE(at.db->discarded());
}

TEST_CASE("a hand-over that could not have the lease's row leaves nothing") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.db->query("set session innodb_lock_wait_timeout = 1", soon());
    at.block();
    SUBCASE("and its connection can be used again") {
        CHECK(kind_of([&] { (void)at.release(); }) == errc::timed_out);
        CHECK_FALSE(at.db->discarded());
        CHECK_FALSE(line::in_transaction(*at.db));
        at.unblock();
        CHECK(at.untouched());
        CHECK(at.release().next.has_value());
    }
    SUBCASE("control: the statement alone leaves its transaction open") {
        CHECK(kind_of([&] { (void)at.compound(); }) == errc::timed_out);
        CHECK(line::in_transaction(*at.db));
        at.unblock();
    }
}

TEST_CASE("a hand-over that is interrupted leaves nothing, and is not taken for one that failed") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.block();
    SUBCASE("by another") {
        const auto number = at.number_of(*at.db);
        auto releasing = in_background([&] { return kind_of([&] { (void)at.release(); }); });
        REQUIRE(support::somebody_waits_for_a_row(database));
        database.admin().query("kill query " + std::to_string(number), soon());
        CHECK(releasing.get() == errc::outcome_unknown);
    }
    SUBCASE("by the limit on a statement's time") {
        at.db->query("set session max_statement_time = 0.2", soon());
        CHECK(kind_of([&] { (void)at.release(); }) == errc::outcome_unknown);
    }
    CHECK(at.db->discarded());  // or a user-level lock could stay behind
    CHECK_FALSE(line::in_transaction(*at.db));
    at.unblock();
    CHECK(at.untouched());
    const auto again = support::connect_compounding(database);
    CHECK(at.queue.release(*again, "job", at.first, 11, true, soon()).next.has_value());
}

TEST_CASE("a hand-over whose connection is cut leaves nothing") {
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
    const auto again = support::connect_compounding(database);
    CHECK(at.queue.release(*again, "job", at.first, 11, true, soon()).next.has_value());
}

TEST_CASE("a lost reply to a hand-over in one statement loses nobody's turn") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    interception network;
    network.compounds = true;
    const auto made = [&](std::chrono::milliseconds poll) {
        return client{network.wrap(support::compounding(database)),
                      database.options({.poll_interval = poll, .wake_ups = wake_ups::by_database})};
    };
    client holder = made(1s);
    client waiter = made(5s);
    // In the server, where the hand-over wakes it.
    const auto queued = [&](client& of) {
        auto waiting = in_background([&of] { return of.acquire("job"); });
        REQUIRE(eventually(
            [&] { return database.number("select count(*) from rowlock_waiter") == 1; }));
        const auto session = database.number("select max(session) from rowlock_waiter");
        REQUIRE(waits_for_a_user_lock(database, "as rowlock_wake_" + std::to_string(session)));
        return waiting;
    };
    for (const std::string lost : {"hand_over_compound", "served_of_compound"}) {
        CAPTURE(lost);
        auto first = holder.acquire("job");
        auto waiting = queued(waiter);
        first.release();
        auto second = waiting.get();  // who waited expects others to wait
        waiting = queued(holder);
        // A thread of a client's may still be in it when this round is over.
        const auto seen = std::make_shared<std::atomic<int>>(0);
        network.after([lost, seen](std::string_view what) {
            if (what == lost && (*seen)++ == 0) interception::lose_reply();
        });
        second.release();
        auto third = waiting.get();
        CHECK(*seen > 0);
        CHECK(third.held());
        CHECK(database.number("select count(*) from rowlock_lease where session is not null") == 1);
        third.release();
        network.after({});
        CHECK(database.number("select count(*) from rowlock_lease where session is not null") == 0);
    }
}

TEST_CASE("who is woken by the hand-over finds it, whatever its driver") {
    for (const auto& each : {std::pair{backend::mariadb, true}, std::pair{backend::mariadb, false},
                             std::pair{backend::soci_mariadb, false}}) {
        const backend driver = each.first;
        const bool compounds = each.second;
        support::lock_database database{backend::mariadb};
        support::lock_database other_driver{driver};
        if (!database.there() || !other_driver.there()) return;
        CAPTURE(support::to_string(driver));
        const line at{database};
        // The same server and session, through the other driver.
        const auto source = compounds ? support::compounding(database) : other_driver.source();
        const sleeper asleep{at, at.second, source.connect(soon())};
        CHECK(at.kept_for_reading(at.second) != compounds);
        REQUIRE(at.queue.cancel(*at.other, std::array<std::int64_t, 1>{33}, soon()).size() == 1);
        std::int64_t last = 100;
        std::int64_t held = 11;
        for (int round = 0; round < 20; ++round) {
            auto ended = asleep.sleep(at);
            const auto done = at.queue.release(*at.db, "job", at.first, held, true, soon());
            REQUIRE(done.next.has_value());
            CHECK(done.next->woken);
            REQUIRE(ended.get() == wake_up::ending::woken);
            const auto found = at.queue.served_of(*asleep.db, at.second, job, soon());
            REQUIRE(found.size() == 1);
            CHECK(found[0].grant_id == done.next->grant_id);
            // And from the beginning.
            const auto next = done.next->grant_id;
            REQUIRE(at.queue.release(*at.other, "job", at.second, next, false, soon()).freed);
            held = ++last;
            REQUIRE(at.leases
                        .acquire(*at.other, {"job", at.first, held, "", "", std::nullopt, false},
                                 soon())
                        .what == attempt::outcome::granted);
            at.queue.enqueue(*at.other, {"job", at.second, ++last, "", "", std::nullopt}, soon());
        }
    }
}

TEST_CASE(
    "who is woken early reads after the commit, and control: without the lock it is too soon") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    const auto reader = support::connect_compounding(database);
    // In the middle of a hand-over: all is written, the sleeper was woken, COMMIT is to come.
    REQUIRE(
        at.other
            ->query("select get_lock('rowlock_serve_" + std::to_string(at.second) + "', 0)", soon())
            .integer(0, 0) == 1);
    at.other->query("begin", soon());
    at.other->query("update " + database.prefix() + "lease set token = token + 1, grant_id = 22, " +
                        "session = " + std::to_string(at.second),
                    soon());
    const std::array<sql::value, 17> parameters = [&] {
        std::array<sql::value, 17> made{};
        made.fill(sql::value{"job"});
        made[0] = sql::value{at.second};
        return made;
    }();
    CHECK(reader->execute(*at.leases.sql().served_of, parameters, soon()).empty());
    SUBCASE("which comes") {
        auto reading =
            in_background([&] { return at.queue.served_of(*reader, at.second, job, soon()); });
        REQUIRE(waits_for_a_user_lock(database, "rowlock_serve"));
        at.other->query("commit", soon());
        CHECK(reading.wait_for(100ms) == std::future_status::timeout);
        at.other->query("do release_lock('rowlock_serve_" + std::to_string(at.second) + "')",
                        soon());
        CHECK(reading.get().size() == 1);
    }
    SUBCASE("which never comes: it is told that it knows nothing") {
        CHECK(kind_of([&] { (void)at.queue.served_of(*reader, at.second, job, soon()); }) ==
              errc::database_error);
        CHECK(reader->alive());
    }
    SUBCASE("which is not made, as its connection ends") {
        auto reading =
            in_background([&] { return at.queue.served_of(*reader, at.second, job, soon()); });
        REQUIRE(waits_for_a_user_lock(database, "rowlock_serve"));
        database.admin().query("kill " + std::to_string(at.number_of(*at.other)), soon());
        CHECK(reading.get().empty());
    }
}

TEST_CASE("a reading that is killed leaves its lock to its next one at most") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    const auto reader = support::connect_compounding(database);
    REQUIRE(at.release().next.has_value());
    const std::string lock = "'rowlock_serve_" + std::to_string(at.second) + "'";
    // As if it had been killed right behind its get_lock().
    REQUIRE(reader->query("select get_lock(" + lock + ", 0)", soon()).integer(0, 0) == 1);
    for (int times = 0; times < 2; ++times) {
        CHECK(at.queue.served_of(*reader, at.second, job, soon()).size() == 1);
        CHECK_FALSE(at.kept_for_reading(at.second));
    }
}

TEST_CASE("a name, a note and a thread of any characters go through the one statement") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    const std::string name = "it's \"q\" \\ ? $1 \xF0\x9F\x94\x92 ; --";
    const std::string note(1000, 'n');
    REQUIRE(at.leases.acquire(*at.other, {name, at.first, 71, "", "", std::nullopt, false}, soon())
                .what == attempt::outcome::granted);
    at.queue.enqueue(*at.other, {name, at.second, 72, name, note, std::nullopt}, soon());
    at.queue.enqueue(*at.other, {name, at.third, 73, "", "", std::nullopt}, soon());
    REQUIRE(at.queue.release(*at.db, name, at.first, 71, true, soon()).next.has_value());
    const auto info = at.leases.inspect(*at.other, name, soon());
    REQUIRE(info->holder.has_value());
    CHECK(info->holder->thread == name);
    CHECK(info->holder->note == note);
    CHECK(at.queue.served_of(*at.db, at.second, std::vector{name}, soon()).size() == 1);
    // Nothing of it stays in the variables for the next.
    REQUIRE(at.queue.release(*at.db, name, at.second, 72, true, soon()).next.has_value());
    CHECK(at.leases.inspect(*at.other, name, soon())->holder->note.empty());
}

TEST_CASE("who waits for many names and is woken early looks after the commit, too") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    constexpr int many = 70;
    client holder{support::compounding(database), database.options()};
    client waiter{support::compounding(database), database.options({.poll_interval = 10s})};
    std::vector<lease> held;
    std::vector<std::future<void>> waiting;
    for (int i = 0; i < many; ++i) {
        const auto name = "job " + std::to_string(i);
        held.push_back(holder.acquire(name));
        waiting.push_back(in_background([&waiter, name] { waiter.acquire(name).release(); }));
    }
    REQUIRE(
        eventually([&] { return database.number("select count(*) from rowlock_waiter") == many; }));
    const auto session = std::to_string(database.number("select max(session) from rowlock_waiter"));
    const auto asleep = [&] {
        return waits_for_a_user_lock(database, "as rowlock_wake_" + session);
    };
    REQUIRE(asleep());
    std::this_thread::sleep_for(1500ms);  // the looks that follow the beginning of a sleep
    REQUIRE(asleep());
    // A hand-over by hand, with a slow disk.
    const auto other = support::connect_compounding(database);
    REQUIRE(
        other->query("select get_lock('rowlock_serve_" + session + "', 0)", soon()).integer(0, 0) ==
        1);
    other->query("begin", soon());
    other->query("update " + database.prefix() + "lease l, " + database.prefix() +
                     "waiter w set l.token = l.token + 1, l.grant_id = w.grant_id, "
                     "l.session = w.session where l.name = 'job 7' and w.name = 'job 7'",
                 soon());
    other->query("delete from " + database.prefix() + "waiter where name = 'job 7'", soon());
    other->query("kill query is_used_lock('rowlock_wake_" + session + "')", soon());
    std::this_thread::sleep_for(400ms);
    other->query("commit", soon());
    other->query("do release_lock('rowlock_serve_" + session + "')", soon());
    CHECK(waiting[7].wait_for(350ms) == std::future_status::ready);
    held.clear();
    for (auto& each : waiting) each.get();
}

TEST_CASE("the heartbeat's connection is another one after a hand-over on it was interrupted") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    interception network;
    network.compounds = true;
    std::atomic<int> interrupted{0};
    std::atomic<bool> armed{false};
    network.before([&](std::string_view what) {
        if (what != "hand_over_compound" || !armed.exchange(false)) return;
        ++interrupted;
        throw error{errc::timed_out,
                    "interrupted",
                    {.sqlstate = "70100", .native_code = 1317, .message = ""}};
    });
    client holder{network.wrap(support::compounding(database)),
                  database.options({.heartbeat = 100ms})};
    const auto other = holder.acquire("other");
    // A grant that nobody knows, which the heartbeat gives back once it compares.
    database.write_late_grant("job", database.number("select session from rowlock_lease"), 4711);
    SUBCASE("interrupted") {
        armed = true;
    }
    SUBCASE("control: not interrupted") {}
    const bool expected = armed;
    database.run("update rowlock_session set revision = revision + 1");
    REQUIRE(eventually([&] {
        return database.number(
                   "select count(*) from rowlock_lease where name = 'job' and session is null") ==
               1;
    }));
    CHECK((interrupted == 1) == expected);
    CHECK((holder.stats().reconnects == 1) == expected);
    CHECK(other.held());
}

TEST_CASE("a table that is changed in the middle of a hand-over leaves no half of it") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    (void)at.queue.release(*at.db, "nothing", at.first, 11, true, soon());  // is prepared
    at.block();
    auto releasing = in_background([&]() -> std::optional<strategy::release_outcome> {
        try {
            return at.release();
        } catch (const error& failure) {
            MESSAGE(failure.what());
            return std::nullopt;
        }
    });
    REQUIRE(support::somebody_waits_for_a_row(database));
    SUBCASE("the tickets") {
        database.run("alter table rowlock_waiter add column more int");
    }
    SUBCASE("control: nothing") {}
    at.unblock();
    const auto done = releasing.get();
    CHECK_FALSE(line::in_transaction(*at.db));
    if (done && done->next) {
        CHECK(database.number("select grant_id from rowlock_lease") == 22);
        CHECK(database.number("select count(*) from rowlock_waiter") == 1);
    } else {
        CHECK(at.untouched());
    }
    CHECK(at.queue.release(*at.db, "job", at.first, 11, true, soon()).freed !=
          (done && done->freed));
}

TEST_CASE("a hand-over that a driver sends again begins with nothing of the first attempt") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    // As far as the first had come when the server wanted its statement prepared anew.
    at.db->query("begin", soon());
    at.db->query("update " + database.prefix() + "lease set token = token + 50, grant_id = 22, " +
                     "session = " + std::to_string(at.second),
                 soon());
    const auto done = at.release();
    CHECK(done.freed);
    REQUIRE(done.next.has_value());
    CHECK(done.next->token == at.token + 1);
    CHECK(database.number("select count(*) from rowlock_waiter") == 1);
}

TEST_CASE("a server whose transactions are chained gets statements that are committed") {
    support::lock_database database{backend::mariadb};
    if (!database.there()) return;
    const line at{database};
    at.db->query("set session completion_type = 'CHAIN'", soon());
    at.leases.set_up(*at.db, 10s, soon());
    REQUIRE(at.release().next.has_value());
    CHECK_FALSE(line::in_transaction(*at.db));
    REQUIRE(at.queue.release(*at.db, "job", at.second, 22, true, soon()).next.has_value());
    CHECK(database.number("select grant_id from rowlock_lease") == 33);
}

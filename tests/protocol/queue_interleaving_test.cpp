// Races between waiters, releases and cancellations. Open transactions force the order of each.
// Each case has a control: a statement that looks equally correct and fails.

#include "lock/client/reap_round.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/servers.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <libpq-fe.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using protocol::handed_over;
using support::eventually;
using support::kind_of;
using support::protocol_connection;
using support::somebody_waits_for_a_row;
using support::soon;

namespace {

using ids = protocol_connection::ids;

wakeup::wake_address ears_of(session_id session) {
    return {.number = 100 + static_cast<std::int64_t>(session), .secret = std::string(32, 'a')};
}

/// Opens a session with an address at which it is notified of grants.
void open(const protocol_connection& on, session_id session) {
    on.open(session, {.wake = ears_of(session)});
}

/// Executes grant_next's statement once, without repeating it.
sql::result grant_next_once(const protocol_connection& on, const std::string& name) {
    const std::array parameters{sql::value{name}, sql::value{1}};
    return on.db().execute(on.statements()("grant_next"), parameters, soon());
}

/// Three live sessions: 1 holds "job", 2 and 3 wait for it with the tickets of grants 22 and 33.
struct two_waiters {
    explicit two_waiters(support::lock_database& which)
        : database{which},
          lease{which.prefix() + "lock"},
          waiter{which.prefix() + "ticket"},
          session{which.prefix() + "session"},
          hand{which},
          other{which},
          blocker{which} {
        for (const std::int64_t id : {1, 2, 3}) open(hand, session_id{id});
        REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{11}));
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{33});
    }

    /// Ends the holder's session, which frees the lease by definition.
    void free() const { hand.end(session_id{1}); }
    [[nodiscard]] std::int64_t holder() const {
        return database.number(
            "select coalesce(max(grant_id), 0) from rowlock_lock where name = 'job'");
    }
    [[nodiscard]] std::int64_t tickets() const {
        return database.number("select count(*) from rowlock_ticket");
    }
    /// Whether a ticket waits for a lease without a live holder, with no statement under way.
    [[nodiscard]] bool stuck() const {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        return database.number(std::string{"select count(*) from rowlock_ticket w "
                                           "left join rowlock_lock l on l.name = w.name "
                                           "left join rowlock_session s on s.id = l.session "
                                           "where l.session is null or s.ended = "} +
                               (postgresql ? "true" : "1")) > 0;
    }

    support::lock_database& database;
    const std::string lease, waiter, session;
    const protocol_connection hand, other, blocker;
};

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

}  // namespace

// --- both rows or none

// shows: promise-9
TEST_CASE("a ticket whose cancellation is under way is not granted, the next one is") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.blocker.run("begin");
        REQUIRE(at.blocker.cancel({grant_id{22}}) == ids{grant_id{22}});
        auto granting =
            in_background([&] { return at.other.release("job", session_id{1}, grant_id{11}); });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        const auto done = granting.get();
        CHECK(done.freed);
        REQUIRE(done.next.has_value());
        CHECK(done.next->grant_id == grant_id{33});
        CHECK(at.holder() == 33);
        CHECK(at.tickets() == 0);
    }
}

TEST_CASE(
    "grant_next skips a ticket whose cancellation commits, and grants one whose cancellation rolls "
    "back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        for (const bool commits : {true, false}) {
            CAPTURE(commits);
            support::lock_database fresh{database.which()};
            const two_waiters at{fresh};
            at.free();
            at.blocker.run("begin");
            REQUIRE(at.blocker.cancel({grant_id{22}}) == ids{grant_id{22}});
            auto granting = in_background([&] { return at.other.grant_next("job"); });
            REQUIRE(somebody_waits_for_a_row(fresh));
            at.blocker.run(commits ? "commit" : "rollback");
            const auto next = granting.get();
            REQUIRE(next.has_value());
            CHECK(next->grant_id == grant_id{commits ? 33 : 22});
            CHECK(at.tickets() == (commits ? 0 : 1));
        }
    }
}

// shows: promise-9
TEST_CASE("control: taking the lease before deleting the ticket grants a cancelled ticket") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        at.blocker.run("begin");
        REQUIRE(at.blocker.cancel({grant_id{22}}) == ids{grant_id{22}});
        at.other.run("begin");
        REQUIRE(at.other.changed_by("update " + at.lease +
                                    " set session = 2, grant_id = 22, token = token + 1 "
                                    "where name = 'job'") == 1);
        auto deleting = in_background([&] {
            return at.other.changed_by("delete from " + at.waiter + " where grant_id = 22");
        });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        CHECK(deleting.get() == 0);
        at.other.run("commit");
        CHECK(at.holder() == 22);  // held by a live session that does not know of the grant
    }
}

// shows: promise-9
TEST_CASE("a grant that finds the lease taken meanwhile keeps every ticket") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        at.blocker.run("begin");
        at.blocker.run("update " + at.lease +
                       " set session = 3, grant_id = 99, token = token + 1 where name = 'job'");
        auto granting = in_background([&] { return at.other.grant_next("job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        CHECK_FALSE(granting.get().has_value());
        CHECK(at.holder() == 99);
        CHECK(at.tickets() == 2);
    }
}

TEST_CASE("a release whose lease was released by force meanwhile keeps every ticket") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.blocker.run("begin");
        at.blocker.run("update " + at.lease +
                       " set session = null, grant_id = null, token = token + 1 "
                       "where name = 'job'");
        auto releasing =
            in_background([&] { return at.other.release("job", session_id{1}, grant_id{11}); });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        CHECK_FALSE(releasing.get().freed);
        CHECK(at.tickets() == 2);
        CHECK(at.other.grant_next("job").value().grant_id == grant_id{22});
    }
}

// shows: promise-9
TEST_CASE("control: deleting the ticket before taking the lease loses the ticket") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        at.blocker.run("begin");
        at.blocker.run("update " + at.lease +
                       " set session = 3, grant_id = 99, token = token + 1 where name = 'job'");
        const auto token = database.number("select token from rowlock_lock where name = 'job'");
        REQUIRE(at.other.changed_by("delete from " + at.waiter + " where grant_id = 22") == 1);
        auto taking = in_background([&] {
            return at.other.changed_by("update " + at.lease +
                                       " set session = 2, grant_id = 22, token = token + 1 "
                                       "where name = 'job' and token = " +
                                       std::to_string(token));
        });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        CHECK(taking.get() == 0);
        CHECK(at.tickets() == 1);  // session 2 waits without a ticket
    }
}

// --- no waiter is forgotten

TEST_CASE(
    "a release that cannot see an uncommitted ticket, and the checks of both sides afterwards") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        bool contended = false;
        SUBCASE("no waiter expected") {}
        SUBCASE("a waiter expected") {
            contended = true;
        }
        const protocol_connection hand{database};
        const protocol_connection waiter{database};
        for (const std::int64_t id : {1, 2}) open(hand, session_id{id});
        REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{11}));
        waiter.run("begin");
        waiter.enqueue("job", session_id{2}, grant_id{22});
        const auto done = hand.release("job", session_id{1}, grant_id{11}, contended);
        CHECK(done.freed);
        CHECK_FALSE(done.next.has_value());
        const std::vector<std::string> name{"job"};
        CHECK(hand.names_with_waiters(name).empty());
        waiter.run("commit");
        // The control: without the checks below the waiter would never be served.
        CHECK(database.number("select count(*) from rowlock_ticket") == 1);
        CHECK(database.number("select count(*) from rowlock_lock where session is null") == 1);
        // Each side writes first and checks afterwards, so the later one sees the other's write.
        CHECK(hand.names_with_waiters(name) == name);
        CHECK(waiter.entries_of(session_id{2}).waiting.at(0).servable);
        CHECK(waiter.grant_next("job").value().grant_id == grant_id{22});
    }
}

// shows: promise-9
TEST_CASE(
    "a grant to a session that ends meanwhile goes to the next waiter when the ender calls "
    "grant_next") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        // A grant to 22 has run, but not committed, when session 2 ends.
        at.blocker.run("begin");
        at.blocker.run("update " + at.lease +
                       " set session = 2, grant_id = 22, token = token + 1 where name = 'job'");
        REQUIRE(at.blocker.changed_by("delete from " + at.waiter + " where grant_id = 22") == 1);
        at.hand.end(session_id{2});
        CHECK(at.hand.queues_of_session(session_id{2}) == std::vector<std::string>{"job"});
        auto looking = in_background([&] { return at.other.grant_next("job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        const auto next = looking.get();
        REQUIRE(next.has_value());
        CHECK(next->grant_id == grant_id{33});
        CHECK_FALSE(at.stuck());
    }
}

TEST_CASE(
    "the entries of an ended session are deleted beside a grant that has locked one of them") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        at.hand.enqueue("elsewhere", session_id{2}, grant_id{24});
        at.blocker.run("begin");
        at.blocker.run("update " + at.lease +
                       " set session = 2, grant_id = 22, token = token + 1 where name = 'job'");
        REQUIRE(at.blocker.changed_by("delete from " + at.waiter + " where grant_id = 22") == 1);
        at.hand.end(session_id{2});
        auto deleting = in_background([&] { at.other.delete_entries_of(session_id{2}); });
        if (database.speaks() == sql::dialect::postgresql) {
            deleting.get();  // it skips the locked one
            CHECK(database.number("select count(*) from rowlock_ticket where grant_id = 24") == 0);
            at.blocker.run("commit");
        } else {
            REQUIRE(somebody_waits_for_a_row(database));
            at.blocker.run("commit");
            deleting.get();
        }
        CHECK(database.number("select count(*) from rowlock_ticket where session = 2") == 0);
        CHECK(at.other.grant_next("job").value().grant_id == grant_id{33});
        CHECK_FALSE(at.stuck());
    }
}

// shows: promise-9
TEST_CASE("control: a failed comparison that is not repeated leaves the queue unserved") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const two_waiters at{database};
        at.free();
        at.blocker.run("begin");
        at.blocker.run("update " + at.lease +
                       " set session = 2, grant_id = 22, token = token + 1 where name = 'job'");
        at.blocker.run("delete from " + at.waiter + " where grant_id = 22");
        at.hand.end(session_id{2});
        auto looking = in_background([&] { return grant_next_once(at.other, "job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        CHECK(looking.get().is_null(0, 2));
        CHECK(at.stuck());
    }
}

// shows: promise-9
TEST_CASE("grant_next waits for a fenced transaction of the last holder") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.blocker.run("begin");
        at.blocker.run(
            "select * from " + at.lease + " where name = 'job' " +
            (database.speaks() == sql::dialect::postgresql ? "for share" : "lock in share mode"));
        at.free();
        auto looking = in_background([&] { return at.other.grant_next("job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        CHECK(at.holder() == 11);
        at.blocker.run("commit");
        CHECK(looking.get().value().grant_id == grant_id{22});
    }
}

// shows: promise-9
TEST_CASE("control: a grant_next that skips a locked lease leaves its queue unserved") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const two_waiters at{database};
        at.blocker.run("begin");
        at.blocker.run("select * from " + at.lease + " where name = 'job' for share");
        at.free();
        std::string text = at.hand.statements()("grant_next").text();
        const std::string lock = "for update of l";
        text.insert(text.find(lock) + lock.size(), " skip locked");
        const sql::statement skipping{text};
        const std::array parameters{sql::value{"job"}, sql::value{1}};
        CHECK(at.other.db().execute(skipping, parameters, soon()).is_null(0, 2));
        at.blocker.run("commit");
        CHECK(at.stuck());
        CHECK_FALSE(at.other.db().execute(skipping, parameters, soon()).is_null(0, 2));
    }
}

TEST_CASE("a wait for a fenced transaction ends with the connection's limit, and nothing is lost") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        at.blocker.run("begin");
        at.blocker.run("select * from " + at.lease + " where name = 'job' for update");
        at.other.run(database.speaks() == sql::dialect::postgresql
                         ? "set lock_timeout = '100ms'"
                         : "set innodb_lock_wait_timeout = 1");
        CHECK(kind_of([&] { (void)at.other.grant_next("job"); }) == errc::timed_out);
        CHECK(kind_of([&] { (void)at.other.release("job", session_id{1}, grant_id{11}); }) ==
              errc::timed_out);
        at.blocker.run("commit");
        CHECK(at.tickets() == 2);
        CHECK(at.other.grant_next("job").value().grant_id == grant_id{22});
    }
}

// shows: promise-9
TEST_CASE(
    "a lease row that the reaper deletes under a queue is inserted again with a greater token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        const auto token = database.number("select token from rowlock_lock");
        at.free();
        database.run("update rowlock_token_floor set floor = " + std::to_string(token));
        at.blocker.run("begin");
        at.blocker.run("delete from " + at.lease + " where name = 'job'");
        auto looking = in_background([&] { return at.other.grant_next("job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        const auto next = looking.get();
        REQUIRE(next.has_value());
        CHECK(next->grant_id == grant_id{22});
        CHECK(next->token > token);
    }
}

// shows: promise-9
TEST_CASE("control: without a lease row, single executions of grant_next serve no waiter") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const two_waiters at{database};
        at.free();
        at.blocker.run("delete from " + at.lease + " where name = 'job'");
        for (int look = 0; look < 3; ++look) {
            const auto row = grant_next_once(at.other, "job");
            CHECK(row.is_null(0, 2));
            CHECK(row.integer(0, 1) == 1);
        }
        CHECK(at.stuck());
    }
}

/// Two inserts of the row of "job" wait for a third, which is rolled back. InnoDB then grants both
/// a shared lock on the row, and each waits for the other to release it.
template <typename Insert>
auto behind_an_insertion_that_fails(const two_waiters& at, Insert insert) {
    at.database.run("delete from rowlock_lock where name = 'job'");
    at.blocker.run("begin");
    at.blocker.run("insert into " + at.lease + " (name, token, changed_at) values ('job', 1, 0)");
    auto one = in_background([&] { return insert(at.hand); });
    auto two = in_background([&] { return insert(at.other); });
    REQUIRE(support::waiting_for_rows(at.database, 2));
    at.blocker.run("rollback");
    return std::pair{one.get(), two.get()};
}

TEST_CASE(
    "two clients that insert a lease row again at once do not deadlock: one serves the waiter") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const two_waiters at{database};
        at.free();
        const auto next = behind_an_insertion_that_fails(
            at, [](const protocol_connection& hand) { return hand.grant_next("job").has_value(); });
        CHECK(next.first != next.second);
        CHECK(at.holder() == 22);
    }
}

TEST_CASE("two acquirers that insert a row at once do not deadlock: one of them has the lease") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const two_waiters at{database};
        at.free();
        at.database.run("delete from rowlock_ticket");
        const auto seen = behind_an_insertion_that_fails(at, [&](const protocol_connection& hand) {
            const std::int64_t session = &hand == &at.hand ? 2 : 3;
            return hand.acquire("job", session_id{session}, grant_id{44 + session}).what;
        });
        const bool first = seen.first == attempt::outcome::granted;
        const bool second = seen.second == attempt::outcome::granted;
        CHECK(first != second);
        CHECK((first ? seen.second : seen.first) == attempt::outcome::contested);
    }
}

TEST_CASE("control: on MariaDB one of two inserts that wait for a third is a deadlock victim") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const two_waiters at{database};
        const auto kinds = behind_an_insertion_that_fails(at, [&](const protocol_connection& hand) {
            return kind_of([&] {
                hand.run("insert into " + at.lease +
                         " (name, token, changed_at) values ('job', 1, 0)");
            });
        });
        CHECK((kinds.first == errc::deadlock) != (kinds.second == errc::deadlock));
    }
}

/// Makes 22's ticket one that was drawn long before it committed: ticket 1000 has been served, and
/// 44 queues with a later ticket.
ticket_no overtake(const two_waiters& at) {
    const ticket_no ticket{
        at.database.number("select ticket from rowlock_ticket where grant_id = 22")};
    at.database.run("delete from rowlock_ticket where grant_id = 33");
    at.database.run(
        "insert into rowlock_ticket (name, ticket, session, grant_id, enqueued_at) "
        "overriding system value values ('job', 1001, 3, 44, clock_timestamp())");
    at.database.run("update rowlock_lock set served = 1000");
    return ticket;
}

TEST_CASE("a watermark that was reset is not raised again by a grant that did not see the reset") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        for (const bool released : {true, false}) {
            CAPTURE(released);
            support::lock_database fresh{database.which()};
            const two_waiters at{fresh};
            const auto ticket = overtake(at);
            if (!released) at.free();
            at.blocker.run("begin");
            at.blocker.queue().reset_watermark(at.blocker.db(), "job", ticket, soon());
            auto granting = in_background([&] {
                return released ? at.other.release("job", session_id{1}, grant_id{11}).next
                                : at.other.grant_next("job");
            });
            REQUIRE(somebody_waits_for_a_row(fresh));
            at.blocker.run("commit");
            const auto next = granting.get();
            REQUIRE(next.has_value());
            CHECK(next->grant_id == grant_id{44});  // by the statement's snapshot
            CHECK_FALSE(at.hand.entries_of(session_id{2}).waiting.at(0).behind_watermark);
            const auto last = at.other.release("job", session_id{3}, grant_id{44}).next;
            REQUIRE(last.has_value());
            CHECK(last->grant_id == grant_id{22});
            CHECK(last->token > next->token);
        }
    }
}

TEST_CASE("a reset of the watermark survives a concurrent release, acquire or forced release") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        for (const std::string what : {"release", "acquire", "force"}) {
            CAPTURE(what);
            support::lock_database fresh{database.which()};
            const two_waiters at{fresh};
            const auto ticket = overtake(at);
            at.database.run("delete from rowlock_ticket where grant_id = 44");
            if (what == "acquire") at.free();
            at.blocker.run("begin");
            at.blocker.queue().reset_watermark(at.blocker.db(), "job", ticket, soon());
            std::optional<handed_over> given;  // by a release, which checks again after its wait
            auto acting = in_background([&]() -> bool {
                if (what == "release") {
                    const auto done = at.other.release("job", session_id{1}, grant_id{11}, false);
                    given = done.next;
                    return done.freed;
                }
                if (what == "acquire")
                    return at.other.try_acquire("job", session_id{3}, grant_id{55}).has_value();
                return at.other.force_release("job");
            });
            REQUIRE(somebody_waits_for_a_row(fresh));
            at.blocker.run("commit");
            CHECK(acting.get());
            const auto next = given ? given
                              : what == "acquire"
                                  ? at.other.release("job", session_id{3}, grant_id{55}, false).next
                                  : at.other.grant_next("job");
            REQUIRE(next.has_value());
            CHECK(next->grant_id == grant_id{22});
            CHECK(at.tickets() == 0);
        }
    }
}

// --- no needless waits

TEST_CASE("a queue entry is added, read and cancelled while the lease's row is locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.blocker.run("begin");  // the holder's fenced transaction, with the strongest lock
        at.blocker.run("select * from " + at.lease + " where name = 'job' for update");
        const auto until = std::chrono::steady_clock::now() + 8s;
        at.other.queue().enqueue(at.other.db(),
                                 {"job", session_id{3}, grant_id{44}, "", "", std::nullopt, false},
                                 until);
        CHECK(at.other.queue().entries_of(at.other.db(), session_id{3}, until).waiting.size() == 2);
        CHECK(at.other.queue().cancel(at.other.db(), ids{grant_id{44}}, until) ==
              ids{grant_id{44}});
        CHECK(std::chrono::steady_clock::now() < until);
        at.blocker.run("commit");
    }
}

// shows: promise-9
TEST_CASE("heartbeats do not wait for hand-overs, enqueues or cancellations") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto beats = [&](const protocol_connection& heart) {
            heart.run(database.speaks() == sql::dialect::postgresql
                          ? "set lock_timeout = '500ms'"
                          : "set innodb_lock_wait_timeout = 1");
            for (const std::int64_t id : {2, 3}) {
                CHECK(heart.heartbeat(session_id{id}));
            }
        };
        for (const std::string what : {"release", "grant_next", "cancel"}) {
            CAPTURE(what);
            support::lock_database fresh{database.which()};
            const two_waiters at{fresh};
            const protocol_connection heart{fresh};
            if (what == "grant_next") at.free();
            // The statement has locked what it could, and waits for the tickets.
            at.blocker.run("begin");
            at.blocker.run("select * from " + at.waiter + " for update");
            auto midway = in_background([&] {
                if (what == "release")
                    return at.other.release("job", session_id{1}, grant_id{11}).next.has_value();
                if (what == "grant_next") return at.other.grant_next("job").has_value();
                return at.other.cancel({grant_id{22}, grant_id{33}}).size() == 2;
            });
            REQUIRE(somebody_waits_for_a_row(fresh));
            beats(heart);
            at.blocker.run("commit");
            CHECK(midway.get());
        }
        const two_waiters at{database};
        const protocol_connection heart{database};
        at.other.run("begin");
        at.other.enqueue("job", session_id{2}, grant_id{44});
        beats(heart);
        at.other.run("commit");
    }
}

// shows: promise-9
TEST_CASE("control: an update that reads sessions stops their heartbeats on MariaDB") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const two_waiters at{database};
        const protocol_connection heart{database};
        at.other.run("begin");
        at.other.run("update " + at.lease + " l join " + at.waiter + " w on w.name = l.name join " +
                     at.session +
                     " s on s.id = w.session set l.grant_id = w.grant_id where s.ended = 0 "
                     "and l.name = 'job'");
        heart.run("set innodb_lock_wait_timeout = 1");
        // Shared locks on the sessions' rows.
        CHECK(kind_of([&] { (void)heart.heartbeat(session_id{2}); }) == errc::timed_out);
        at.other.run("rollback");
    }
}

TEST_CASE("a cancellation beside a transaction that has locked the ticket does not deadlock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        const auto ticket = std::to_string(
            database.number("select ticket from rowlock_ticket where grant_id = 22"));
        at.blocker.run("begin");
        at.blocker.run("select * from " + at.waiter + " where ticket = " + ticket + " for update");
        auto cancelling = in_background([&] { return at.other.cancel({grant_id{22}}); });
        REQUIRE(somebody_waits_for_a_row(database));
        CHECK(at.blocker.changed_by("delete from " + at.waiter + " where ticket = " + ticket) == 1);
        at.blocker.run("commit");
        CHECK(cancelling.get().empty());  // it was served
    }
}

TEST_CASE("control: a cancellation by grant id deadlocks on MariaDB") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const two_waiters at{database};
        const auto ticket = std::to_string(
            database.number("select ticket from rowlock_ticket where grant_id = 22"));
        at.blocker.run("begin");
        at.blocker.run("select * from " + at.waiter + " where ticket = " + ticket + " for update");
        auto cancelling = in_background([&] {
            return kind_of(
                [&] { at.other.run("delete from " + at.waiter + " where grant_id = 22"); });
        });
        REQUIRE(somebody_waits_for_a_row(database));
        const auto mine = kind_of(
            [&] { at.blocker.run("delete from " + at.waiter + " where ticket = " + ticket); });
        if (mine == errc{}) at.blocker.run("commit");
        const bool deadlock = mine == errc::deadlock || cancelling.get() == errc::deadlock;
        CHECK(deadlock);
    }
}

TEST_CASE("a barging acquire beside a grant to a waiter: exactly one of the two gets the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const two_waiters at{database};
        at.free();
        const protocol_connection barger{database};
        at.blocker.run("begin");
        at.blocker.run("select * from " + at.lease + " where name = 'job' for update");
        auto granting = in_background([&] { return at.other.grant_next("job"); });
        auto barging = in_background([&] {
            return barger.try_acquire("job", session_id{3}, grant_id{99}, {.barging = true})
                .has_value();
        });
        REQUIRE(somebody_waits_for_a_row(database));
        at.blocker.run("commit");
        const bool barged = barging.get();
        const bool granted = granting.get().has_value();
        CHECK(barged != granted);
        CHECK(at.tickets() == (granted ? 1 : 2));
    }
}

// --- all transitions at once

namespace {

/// Runs all transitions in random order on a few names, over one connection.
class storm {
public:
    storm(support::lock_database& database, std::int64_t number, const reaper_options& reaping)
        : reaping_{reaping}, hand_{database}, number_{number}, next_{number * 1'000'000} {
        reaping_.statement_timeout = 10s;
        // Eight connections share three rows, and other programs may keep the disk busy for
        // seconds.
        hand_.leases().sessions().set_up(hand_.db(), 19s, soon());
        renew();
    }

    void once(const std::string& name, unsigned dice) {
        const rowlock::grant_id grant_id{++next_};
        switch (dice % 16) {
            case 0:
            case 1:
                if (hand_.try_acquire(name, session_, grant_id)) held_.emplace_back(name, grant_id);
                return;
            case 2:
            case 3:
            case 4:
                hand_.enqueue(name, session_, grant_id);
                waiting_.emplace_back(name, grant_id);
                return;
            case 5:
                return cancel();
            case 6:
                return force(name);
            case 7:
                (void)hand_.heartbeat(session_);
                (void)hand_.deadlocks(session_);
                return;
            case 8:
                (void)detail::reap_round(hand_.db(), hand_.statements(), reaping_);
                return;
            case 9:
                if (dice % 5 == 0) return renew();
                return reclaim();
            case 10:
            case 11:
                return look();
            default:
                return release(dice % 2 == 0);
        }
    }

    static bool may_be_victim(unsigned dice) { return dice % 16 == 6 || dice % 16 == 9; }

    /// Cancels all entries and releases all leases of the session.
    void end() {
        cancel();
        look();
        while (!held_.empty()) release(true);
        hand_.end(session_);
        for (const auto& name : hand_.queues_of_session(session_)) {
            (void)hand_.grant_next(name);
        }
    }

private:
    using held = std::pair<std::string, rowlock::grant_id>;

    void renew() {
        const auto before = session_;
        session_ = session_id{number_ * 1'000'000 + ++next_};
        hand_.open(session_, {.owner = "owner " + std::to_string(number_), .ttl = 60s});
        if (before == session_id{}) return;
        hand_.end(before);
        for (const auto& name : hand_.queues_of_session(before)) {
            (void)hand_.grant_next(name);
        }
        held_.clear();
        waiting_.clear();
    }
    void reclaim() {
        const auto before = session_;
        const session_id next{number_ * 1'000'000 + ++next_};
        const std::string owner = "owner " + std::to_string(number_);
        hand_.open(next, {.owner = owner, .ttl = 60s});
        try {
            (void)hand_.leases().reclaim(hand_.db(), owner, next, {}, soon());
        } catch (const error&) {  // a deadlock victim keeps its old session
            hand_.end(next);
            throw;
        }
        session_ = next;
        held_.clear();
        waiting_.clear();
        for (const auto& lease : hand_.leases().leases_of(hand_.db(), session_, soon())) {
            held_.emplace_back(lease.name, lease.grant_id);
        }
        for (const auto& name : hand_.queues_of_session(before)) {
            (void)hand_.grant_next(name);
        }
    }
    void force(const std::string& name) {
        (void)hand_.force_release(name);
        (void)hand_.grant_next(name);
    }
    void cancel() {
        ids all;
        for (const auto& [name, grant_id] : waiting_) all.push_back(grant_id);
        const ids gone = hand_.cancel(all);
        for (const auto& [name, grant_id] : std::exchange(waiting_, {})) {
            if (std::find(gone.begin(), gone.end(), grant_id) != gone.end()) {
                (void)hand_.grant_next(name);
            } else {
                held_.emplace_back(name,
                                   grant_id);  // served, and perhaps released by force
            }
        }
    }
    void look() {
        std::vector<held> still;
        for (const auto& place : hand_.entries_of(session_).waiting) {
            still.emplace_back(place.name, place.grant_id);
            if (place.servable) (void)hand_.grant_next(place.name);
        }
        for (auto& each : std::exchange(waiting_, still)) {
            if (std::find(still.begin(), still.end(), each) == still.end()) {
                held_.push_back(std::move(each));
            }
        }
    }
    void release(bool contended) {
        if (held_.empty()) look();
        if (held_.empty()) return;
        const auto [name, grant_id] = held_.back();
        const auto done = hand_.release(name, session_, grant_id, contended);
        held_.pop_back();
        if (!done.next) (void)hand_.grant_next(name);
    }

    reaper_options reaping_;
    protocol_connection hand_;
    std::int64_t number_;
    std::int64_t next_;
    session_id session_{};
    std::vector<held> held_, waiting_;
};

}  // namespace

TEST_CASE("all transitions at once: no deadlock, no token twice, no waiter left behind") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        bool deleting = false;  // whether rows of idle leases are deleted without any grace
        SUBCASE("rows stay") {}
        SUBCASE("rows are deleted") {
            deleting = true;
        }
        constexpr std::int64_t threads = 8;
        const int rounds = support::wanted_driver() == "every" ? 250 : 80;
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        // A trigger records every token that a grant writes.
        const std::string lease = database.prefix() + "lock";
        const std::string grants = database.prefix() + "grants";
        database.run("create table " + grants +
                     " (name varchar(255), token bigint, grant_id bigint)");
        const std::string body =
            "insert into " + grants + " values (new.name, new.token, new.grant_id)";
        if (postgresql) {
            database.run("create function " + grants +
                         "_f() returns trigger language plpgsql as "
                         "$$ begin if new.session is not null then " +
                         body + "; end if; return new; end $$");
            database.run("create trigger t after insert or update on " + lease +
                         " for each row execute function " + grants + "_f()");
        } else {
            for (const std::string event : {"insert", "update"}) {
                database.run("create trigger " + grants + "_" + event + " after " + event + " on " +
                             lease + " for each row begin if new.session is not null then " + body +
                             "; end if; end");
            }
        }
        std::vector<std::unique_ptr<storm>> storms;
        for (std::int64_t i = 1; i <= threads; ++i) {
            storms.push_back(std::make_unique<storm>(
                database, i, deleting ? database.reaping(0ms, 0ms) : database.reaping(24h, 24h)));
        }
        std::atomic<int> failures{0};
        std::atomic<int> cycles{0};
        std::vector<std::thread> running;
        for (std::size_t i = 0; i < storms.size(); ++i) {
            running.emplace_back([&, i] {
                std::minstd_rand dice{static_cast<unsigned>(i + 1)};
                for (int round = 0; round < rounds; ++round) {
                    const auto name = std::string(1, static_cast<char>('a' + dice() % 3));
                    const auto what = static_cast<unsigned>(dice() >> 8);
                    try {
                        storms[i]->once(name, what);
                    } catch (const error& failure) {
                        // Forced releases and reclaims may deadlock, and callers repeat them.
                        if (failure.kind() == errc::deadlock && storm::may_be_victim(what)) {
                            ++cycles;
                        } else if (failures++ == 0) {
                            MESSAGE(std::string{failure.what()}, ", case ", what % 16);
                        }
                    }
                }
            });
        }
        for (auto& thread : running) thread.join();
        for (auto& each : storms) each->end();
        CHECK(failures == 0);
        const bool once =
            deleting ||
            database.number("select count(*) from (select name, token from " + grants +
                            " group by name, token having count(distinct grant_id) > 1) t") == 0;
        CHECK(once);
        MESSAGE("grants ", database.number("select count(*) from " + grants), ", cycles ", cycles);
        CHECK(database.number("select count(*) from rowlock_ticket w join rowlock_session s on "
                              "s.id = w.session where not s.ended") == 0);
        CHECK(database.number("select count(*) from rowlock_lock l join rowlock_session s on "
                              "s.id = l.session where not s.ended") == 0);
        database.run("drop table " + grants + (postgresql ? " cascade" : ""));
    }
}

// --- notifications

TEST_CASE("PostgreSQL notifies only the session that was served, and none when no session waits") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const std::unique_ptr<PGconn, decltype(&PQfinish)> ear{PQconnectdb(database.url().c_str()),
                                                               &PQfinish};
        REQUIRE(PQstatus(ear.get()) == CONNECTION_OK);
        for (const std::int64_t session : {1, 2, 3}) {
            const std::string listen =
                "listen " + wakeup::notification_channel(ears_of(session_id{session}));
            PQclear(PQexec(ear.get(), listen.c_str()));
        }
        const auto heard = [&] {
            PQclear(PQexec(ear.get(), "select 1"));
            std::vector<std::string> all;
            while (PGnotify* note = PQnotifies(ear.get())) {
                all.push_back(std::string{note->relname} + " " + note->extra);
                PQfreemem(note);
            }
            return all;
        };
        const protocol_connection hand{database};
        for (const std::int64_t id : {1, 2, 3}) open(hand, session_id{id});
        for (int i = 0; i < 10; ++i) {
            REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{11}));
            CHECK(hand.release("job", session_id{1}, grant_id{11}, i % 2 == 0).freed);
            CHECK_FALSE(hand.grant_next("job").has_value());
        }
        REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{12}));
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{33});
        CHECK(hand.cancel({grant_id{99}}).empty());
        CHECK_FALSE(hand.grant_next("job").has_value());
        CHECK_FALSE(hand.release("job", session_id{1}, grant_id{13}).freed);
        CHECK(heard().empty());

        const auto next = hand.release("job", session_id{1}, grant_id{12}).next.value();
        const auto said = [&](session_id session, grant_id grant_id, std::int64_t token) {
            const auto to = ears_of(session);
            return std::vector{wakeup::notification_channel(to) + ' ' +
                               wakeup::encode_wakeup({grant_id, token}, to.secret)};
        };
        CHECK(heard() == said(session_id{2}, grant_id{22}, next.token));
        hand.end(session_id{2});
        const auto last = hand.grant_next("job").value();
        CHECK(heard() == said(session_id{3}, grant_id{33}, last.token));
        CHECK(hand.release("job", session_id{3}, grant_id{33}).freed);
        CHECK(heard().empty());
    }
}

TEST_CASE("PostgreSQL: a hand-over waits for the disk, a release without waiters does not") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const protocol_connection hand{database};
        for (const std::int64_t id : {1, 2}) open(hand, session_id{id});
        // The setting that the statement makes until its commit is visible inside a transaction.
        const auto left = [&](bool waited, bool contended) {
            REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{11}));
            if (waited) hand.enqueue("job", session_id{2}, grant_id{22});
            hand.run("begin");
            REQUIRE(hand.release("job", session_id{1}, grant_id{11}, contended).freed);
            const auto row = hand.db().query("show synchronous_commit", soon());
            hand.run("commit");
            return std::string{row.text(0, 0)};
        };
        CHECK(left(false, false) == "off");
        CHECK(left(false, true) == "off");
        CHECK(left(true, true) == "on");
    }
}

// --- many threads

namespace {

struct queued {
    std::int64_t sent;
    std::int64_t answered;
    std::int64_t token;
};

/// What the threads observed for one name.
struct record {
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::mutex access;
    std::vector<queued> served;
    std::vector<std::int64_t> tokens;
};

class contender {
public:
    contender(support::lock_database& database, session_id session,
              std::atomic<std::int64_t>& clock)
        : hand_{database}, session_{session}, clock_{clock} {
        // As above: sixteen connections share three rows.
        hand_.leases().sessions().set_up(hand_.db(), 19s, soon());
        open(hand_, session);
    }

    void once(const std::string& name, record& facts, bool gives_up) {
        const rowlock::grant_id grant_id{static_cast<std::int64_t>(session_) * 1'000'000 +
                                         ++grants_};
        std::int64_t token = 0;
        if (const auto got = hand_.try_acquire(name, session_, grant_id)) {
            token = *got;
        } else {
            token = wait(name, grant_id, facts, gives_up);
        }
        if (token == 0) return;
        if (facts.inside.fetch_add(1) != 0) ++facts.overlaps;
        {
            const std::lock_guard lock{facts.access};
            facts.tokens.push_back(token);
        }
        facts.inside.fetch_sub(1);
        if (hand_.release(name, session_, grant_id).next) return;
        const std::vector<std::string> asked{name};
        if (!hand_.names_with_waiters(asked).empty()) {
            (void)hand_.grant_next(name);
        }
    }

private:
    std::int64_t wait(const std::string& name, grant_id grant_id, record& facts,
                      bool gives_up) const {
        queued mine{clock_.fetch_add(1), 0, 0};
        hand_.enqueue(name, session_, grant_id);
        mine.answered = clock_.fetch_add(1);
        for (const auto& place : hand_.entries_of(session_).waiting) {
            if (place.servable) (void)hand_.grant_next(place.name);
        }
        if (gives_up && hand_.cancel({grant_id}).size() == 1) {
            (void)hand_.grant_next(name);
            return 0;
        }
        std::optional<protocol::queue_grant> grant;
        const bool served = eventually(
            [&] {
                grant = hand_.served(name, session_, grant_id);
                return grant.has_value();
            },
            100s);
        if (!served) throw error{errc::timed_out, "this queue entry is forgotten"};
        mine.token = grant->token;
        const std::lock_guard lock{facts.access};
        facts.served.push_back(mine);
        return grant->token;
    }

    protocol_connection hand_;
    session_id session_;
    std::atomic<std::int64_t>& clock_;
    std::int64_t grants_ = 0;
};

/// Counts pairs where the first was enqueued before the second was sent, but served after it.
int order_violations(const std::vector<queued>& served) {
    int wrong = 0;
    for (const auto& a : served) {
        for (const auto& b : served) {
            if (a.answered < b.sent && a.token > b.token) ++wrong;
        }
    }
    return wrong;
}

}  // namespace

// shows: promise-9
TEST_CASE(
    "sixteen threads on three names: in order, one at a time, no waiter forgotten, no deadlock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int threads = 16;
        const int rounds = support::wanted_driver() == "every" ? 150 : 40;
        const std::array<std::string, 3> names{"a", "b", "c"};
        std::array<record, 3> facts;
        std::atomic<std::int64_t> clock{0};
        std::atomic<int> failures{0};
        std::vector<std::unique_ptr<contender>> contenders;
        for (int i = 0; i < threads; ++i) {
            contenders.push_back(std::make_unique<contender>(database, session_id{i + 1}, clock));
        }
        std::barrier start{threads};
        std::vector<std::thread> running;
        for (int i = 0; i < threads; ++i) {
            running.emplace_back([&, i] {
                start.arrive_and_wait();
                for (int round = 0; round < rounds; ++round) {
                    const auto which = static_cast<std::size_t>(i + round) % names.size();
                    try {
                        contenders[static_cast<std::size_t>(i)]->once(names[which], facts[which],
                                                                      round % 10 == 7);
                    } catch (const error& failure) {
                        if (failures++ == 0) MESSAGE(std::string{failure.what()});
                    }
                }
            });
        }
        for (auto& thread : running) thread.join();
        CHECK(failures == 0);
        std::size_t grants = 0;
        for (auto& of_name : facts) {
            CHECK(of_name.overlaps == 0);
            CHECK(order_violations(of_name.served) == 0);
            CHECK(std::is_sorted(of_name.tokens.begin(), of_name.tokens.end()));
            CHECK(std::adjacent_find(of_name.tokens.begin(), of_name.tokens.end()) ==
                  of_name.tokens.end());
            grants += of_name.tokens.size();
        }
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
        CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 0);
        MESSAGE(std::string{support::to_string(database.which())}, ": grants ", grants);
    }
}

// One name is one lock: a sole holder (a lease) and counted holds (shared_mutex, semaphore) exclude
// each other, and wait in one queue. The transitions one by one, and pairs of them whose
// interleaving is forced.
// shows: promise-13

#include "lock/protocol/multi/multi_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/run_statement.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using outcome = protocol::attempt::outcome;
using protocol::permits_for;
using support::kind_of;
using support::lock_database;
using support::protocol_connection;
using support::soon;

namespace {

constexpr session_id one{1};
constexpr session_id two{2};
constexpr session_id three{3};

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;
constexpr auto exclusive = lock_mode::exclusive;

using ids = std::vector<std::int64_t>;

/// The lock "page", on a connection of its own.
class page_lock {
public:
    explicit page_lock(const lock_database& database)
        : hand_{database}, counted_{protocol::make_semaphore_protocol(database.statements())} {}
    page_lock(const lock_database& database, const sql::connection_source& source)
        : hand_{source}, counted_{protocol::make_semaphore_protocol(database.statements())} {}

    void open() const {
        for (const auto each : {one, two, three}) hand_.open(each);
    }
    void close() const {
        for (const auto each : {one, two, three}) {
            hand_.leases().sessions().remove(db(), each, soon());
        }
    }
    /// All of the lock.
    [[nodiscard]] outcome take_all(session_id session, std::int64_t grant) const {
        return hand_.acquire("page", session, grant_id{grant}).what;
    }
    [[nodiscard]] outcome take(session_id session, std::int64_t grant, lock_mode mode) const {
        auto found = counted_->acquire(db(), of(session, grant, mode), soon()).what;
        // The first use of the name makes its row.
        if (found == outcome::contested) {
            found = counted_->acquire(db(), of(session, grant, mode), soon()).what;
        }
        return found;
    }
    [[nodiscard]] bool took_all(session_id session, std::int64_t grant) const {
        return take_all(session, grant) == outcome::granted;
    }
    [[nodiscard]] bool took(session_id session, std::int64_t grant, lock_mode mode) const {
        return take(session, grant, mode) == outcome::granted;
    }
    void wait_for_all(session_id session, std::int64_t grant) const {
        hand_.enqueue("page", session, grant_id{grant});
    }
    void wait(session_id session, std::int64_t grant, lock_mode mode) const {
        hand_.queue().enqueue(db(), of(session, grant, mode), soon());
    }
    [[nodiscard]] bool give(session_id session, std::int64_t grant) const {
        return counted_->release(db(), "page", session, grant_id{grant}, 0, soon());
    }
    [[nodiscard]] bool cancelled(std::int64_t grant) const {
        return hand_.cancel({grant_id{grant}}).size() == 1;
    }
    /// Who is served, in order; by the guess that the first waiter wants a part, or all.
    [[nodiscard]] ids serve() const {
        return support::serve_all(hand_.queue(), db(), "page", soon());
    }
    [[nodiscard]] ids serve_expecting(protocol::queue_head head) const {
        ids served;
        for (const auto& each : hand_.queue().serve(db(), "page", head, soon()).waiters) {
            served.push_back(static_cast<std::int64_t>(each.grant_id));
        }
        return served;
    }
    [[nodiscard]] const protocol::semaphore_protocol& counted() const { return *counted_; }
    [[nodiscard]] const protocol_connection& hand() const { return hand_; }
    [[nodiscard]] sql::connection& db() const { return hand_.db(); }

    static protocol::grant_request of(session_id session, std::int64_t grant, lock_mode mode) {
        return {
            .name = "page",
            .session = session,
            .grant_id = grant_id{grant},
            .thread = "t",
            .note = {},
            .deadline_us = std::nullopt,
            .permits = {.count = permits_for(mode), .of = protocol::counter_kind::shared_mutex}};
    }

private:
    protocol_connection hand_;
    std::unique_ptr<const protocol::semaphore_protocol> counted_;
};

std::int64_t token_of(lock_database& database) {
    return database.number("select token from rowlock_lock where name = 'page'");
}

void end_all_of(lock_database& database, session_id session) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    database.run("update rowlock_session set ended = " + std::string{postgresql ? "true" : "1"} +
                 " where id = " + std::to_string(static_cast<std::int64_t>(session)));
}

}  // namespace

TEST_CASE("a holder of all of a lock and holders of a part exclude each other") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        CHECK(page.take(two, 21, shared) == outcome::held);
        CHECK(page.take(two, 21, exclusive) == outcome::held);
        CHECK(page.hand().free("page", one, grant_id{11}));
        REQUIRE(page.took(two, 21, shared));
        REQUIRE(page.took(three, 31, shared));
        CHECK(page.take_all(one, 12) == outcome::held);
        CHECK(page.give(two, 21));
        CHECK(page.take_all(one, 12) == outcome::held);
        CHECK(page.give(three, 31));
        CHECK(page.took_all(one, 12));
    }
}

TEST_CASE("each grant of a lock, to a sole or a counted holder, has a greater token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        auto last = token_of(database);
        CHECK(page.hand().free("page", one, grant_id{11}));
        REQUIRE(page.took(two, 21, shared));
        CHECK(token_of(database) > last);
        last = token_of(database);
        REQUIRE(page.took(three, 31, shared));
        CHECK(token_of(database) > last);
        last = token_of(database);
        CHECK(page.give(two, 21));
        CHECK(page.give(three, 31));
        page.wait(two, 22, shared);
        CHECK(page.serve() == ids{22});
        CHECK(token_of(database) > last);
        last = token_of(database);
        CHECK(page.give(two, 22));
        REQUIRE(page.took_all(one, 12));
        CHECK(token_of(database) > last);
    }
}

TEST_CASE("one queue serves those who want all of a lock and those who want a part, in its order") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        for (const auto expected : {protocol::queue_head::sole, protocol::queue_head::counted}) {
            const page_lock page{database};
            page.open();
            REQUIRE(page.took_all(one, 11));
            page.wait(two, 21, shared);
            page.wait(three, 31, shared);
            page.wait_for_all(one, 12);
            page.wait(two, 22, shared);
            CHECK(page.serve_expecting(expected).empty());
            const auto done = page.hand().release("page", one, grant_id{11});
            CHECK(done.freed);
            CHECK_FALSE(done.next);
            CHECK(page.serve() == ids{21, 31});  // not 22: 12 waits before it
            CHECK(page.take(two, 23, shared) == outcome::held);
            CHECK(page.give(two, 21));
            CHECK(page.serve_expecting(expected).empty());
            CHECK(page.give(three, 31));
            CHECK(page.serve_expecting(expected) == ids{12});
            CHECK(page.serve_expecting(expected).empty());
            CHECK(page.hand().release("page", one, grant_id{12}).freed);
            CHECK(page.serve_expecting(expected) == ids{22});
            CHECK(page.give(two, 22));
            page.close();
        }
    }
}

TEST_CASE("a release of a lock whose first waiter wants a part frees it, and says so") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        page.wait(two, 21, shared);
        page.wait_for_all(three, 31);
        const auto seen = page.hand().confirm_and_read_next("page", one, grant_id{11});
        REQUIRE(seen);
        CHECK_FALSE(seen->next);  // nobody who could be handed all of it
        const auto done = page.hand().release("page", one, grant_id{11});
        CHECK(done.freed);
        CHECK_FALSE(done.next);
        // InnoDB chooses and frees in one text, which does not say why: its client looks
        // afterwards.
        if (database.speaks() != sql::dialect::mysql) CHECK(done.counted_waits);
        CHECK(page.hand().names_with_waiters({"page"}) == std::vector<std::string>{"page"});
        CHECK(page.serve() == ids{21});
    }
}

TEST_CASE("the entries of a lock show what is in the way: all kinds in one look") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, shared));
        page.wait_for_all(two, 21);
        page.wait(two, 22, shared);
        auto seen = page.hand().entries_of(two).waiting;
        REQUIRE(seen.size() == 2);
        CHECK(seen[0].position == 1);
        CHECK_FALSE(seen[0].servable);
        CHECK(seen[0].counted);
        CHECK_FALSE(seen[0].part);
        CHECK(seen[1].position == 2);
        CHECK_FALSE(seen[1].servable);  // the first one is not
        CHECK(seen[1].part);
        CHECK(page.give(one, 11));
        seen = page.hand().entries_of(two).waiting;
        CHECK(seen[0].servable);
        CHECK_FALSE(seen[0].counted);
        REQUIRE(page.serve() == ids{21});
        seen = page.hand().entries_of(two).waiting;
        REQUIRE(seen.size() == 1);
        CHECK_FALSE(seen[0].servable);
        CHECK(seen[0].holder_session == two);
        CHECK(seen[0].remaining > 0us);
    }
}

TEST_CASE("a lock whose sole holder has ended goes to the first waiter, whatever that wants") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        const auto before = token_of(database);
        page.wait(two, 21, shared);
        CHECK(page.take(three, 31, shared) == outcome::held);
        end_all_of(database, one);
        CHECK(page.hand().entries_of(two).waiting.at(0).servable);
        CHECK(page.serve() == ids{21});
        CHECK(token_of(database) > before);
        CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 0);
    }
}

TEST_CASE("a holder that has ended is found by whoever wants a part, and taken out by its token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        auto holders = page.counted().holders_of(page.db(), "page", soon());
        REQUIRE(holders.sole);
        CHECK(holders.sole->session == one);
        CHECK_FALSE(holders.can_be_taken_back());
        CHECK(holders.remaining > 0us);
        CHECK_FALSE(holders.may_have(1));
        end_all_of(database, one);
        holders = page.counted().holders_of(page.db(), "page", soon());
        REQUIRE(holders.sole);
        CHECK(holders.sole->gone);
        // Another client was faster, and its grant has another token: that one stays.
        REQUIRE(page.took_all(two, 21));
        page.hand().queue().clear_sole(page.db(), "page", holders.sole->token, one, soon());
        page.hand().queue().clear_sole(page.db(), "page", token_of(database), one, soon());
        CHECK(page.take(three, 31, shared) == outcome::held);
        end_all_of(database, two);
        holders = page.counted().holders_of(page.db(), "page", soon());
        REQUIRE(holders.sole);
        page.hand().queue().clear_sole(page.db(), "page", holders.sole->token, two, soon());
        CHECK(page.took(three, 31, shared));
    }
}

TEST_CASE(
    "whoever wants a part and meets a grant of all of it that commits at the same time gets "
    "nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        REQUIRE(page.took(three, 31, shared));
        REQUIRE(page.give(three, 31));
        page.wait(two, 22, shared);
        for (const std::string how : {"takes", "is served"}) {
            CAPTURE(how);
            if (how == "takes") CHECK(page.cancelled(22));
            if (how == "is served") page.wait(two, 22, shared);
            database.run("begin");
            database.run(
                "update rowlock_lock set session = 1, grant_id = 11, token = token + 1 "
                "where name = 'page'");
            // The control: what looks sees the lock free.
            CHECK(other.hand().number("select count(*) from " + database.prefix() +
                                      "lock where session is null") == 1);
            auto tries = std::async(std::launch::async, [&] {
                if (how == "takes") return other.take(two, 21, shared) == outcome::granted;
                return !other.serve().empty();
            });
            CHECK(support::waiting_for_rows(page.db(), database.prefix()));
            database.run("commit");
            CHECK_FALSE(tries.get());
            CHECK(database.number("select count(*) from rowlock_hold") == 0);
            database.run("update rowlock_lock set session = null, grant_id = null");
        }
    }
}

TEST_CASE("all of a lock becomes a part of it: the same grant, with its token and its requests") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        const auto token = token_of(database);
        const auto lower = [&](session_id session, lock_mode mode) {
            return page.counted().lower(page.db(), "page", session, grant_id{11}, permits_for(mode),
                                        soon());
        };
        CHECK_FALSE(lower(two, shared));  // another session's
        CHECK(page.take(two, 21, shared) == outcome::held);
        const auto asked = page.hand().leases().request_release(
            page.db(), "page", token, {.within = 1h, .asked_by = "ops", .reason = "a test"},
            soon());
        REQUIRE(asked);
        CHECK(lower(one, upgradeable));
        CHECK(database.number("select used from rowlock_lock") == permits_for(upgradeable));
        CHECK(token_of(database) > token);
        const auto held = page.counted().permits_of(page.db(), one, soon());
        REQUIRE(held.size() == 1);
        CHECK(held[0].grant_id == grant_id{11});
        CHECK(held[0].token == token);
        CHECK(held[0].requested);
        REQUIRE(held[0].asked);
        CHECK(held[0].asked->asked_by == "ops");
        CHECK(held[0].asked->reason == "a test");
        CHECK(held[0].deadline_us.value_or(0) > 0);
        CHECK(page.took(two, 21, shared));
        CHECK(page.take_all(three, 31) == outcome::held);
        CHECK(lower(one, upgradeable));  // as after a lost reply
        CHECK(lower(one, shared));
        CHECK(database.number("select used from rowlock_lock") == 2);
        CHECK(page.give(one, 11));
        CHECK_FALSE(lower(one, shared));
        CHECK(page.give(two, 21));
        CHECK(page.took_all(three, 31));
        CHECK_FALSE(lower(one, shared));
    }
}

TEST_CASE(
    "a grant past its deadline, or of a session that has ended, becomes no part of the lock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        const auto lower = [&] {
            return page.counted().lower(page.db(), "page", one, grant_id{11}, 1, soon());
        };
        REQUIRE(page.took_all(one, 11));
        database.run("update rowlock_lock set deadline = acquired_at");
        CHECK_FALSE(lower());
        database.run("update rowlock_lock set deadline = null");
        end_all_of(database, one);
        CHECK_FALSE(lower());
        CHECK(database.number("select count(*) from rowlock_hold") == 0);
        CHECK(page.took_all(two, 21));
    }
}

TEST_CASE("who judged a holder dead does not take the lock beside the hold that its grant became") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const auto statements = database.statements();
        const auto change = [&](const char* name, auto... further) {
            sql::run(page.db(), statements(name), soon(), "page", one, grant_id{11}, further...);
        };
        // The session lives as the grant is lowered, and has ended before that is committed.
        page.db().query("begin", soon());
        if (!postgresql) {
            change("confirm_grant");
            change("insert_lowered", 1);
        }
        change("lower_lock", 1);
        end_all_of(database, one);
        auto tries = std::async(std::launch::async, [&] { return other.take_all(two, 21); });
        CHECK(support::somebody_waits_for_a_row(database));
        page.db().query("commit", soon());
        CHECK(tries.get() != outcome::granted);
        CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 0);
        CHECK(database.number("select used from rowlock_lock") == 1);
        // The hold of a dead session is swept like any.
        CHECK(page.counted().sweep(page.db(), "page", soon()) == 1);
        CHECK(page.took_all(two, 21));
    }
}

TEST_CASE(
    "whoever wants all of a lock and meets a counted grant that commits at the same time gets "
    "nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        REQUIRE(page.hand().free("page", one, grant_id{11}));
        page.wait_for_all(two, 22);
        for (const std::string how : {"takes", "is served"}) {
            CAPTURE(how);
            if (how == "takes") CHECK(page.cancelled(22));
            if (how == "is served") page.wait_for_all(two, 22);
            const std::string now =
                database.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
            database.run("begin");
            database.run(
                "update rowlock_lock set used = used + 1, token = token + 1 where name = 'page'");
            database.run(
                "insert into rowlock_hold (name, grant_id, session, weight, token, "
                "acquired_at) values ('page', 31, 3, 1, 1, " +
                now + ")");
            CHECK(other.hand().number("select count(*) from " + database.prefix() +
                                      "lock where used = 0") == 1);
            auto tries = std::async(std::launch::async, [&] {
                if (how == "takes") return other.take_all(two, 21) == outcome::granted;
                return !other.serve_expecting(protocol::queue_head::sole).empty();
            });
            CHECK(support::waiting_for_rows(page.db(), database.prefix()));
            database.run("commit");
            CHECK_FALSE(tries.get());
            CHECK(database.number("select count(*) from rowlock_lock where session is not null") ==
                  0);
            CHECK(page.give(three, 31));
        }
    }
}

TEST_CASE(
    "a counted grant passes over a promised token, and none is made while its waiter can be "
    "served") {
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const page_lock page{database};
    page.open();
    REQUIRE(page.took_all(one, 11));
    page.wait(two, 21, shared);
    page.wait_for_all(three, 31);
    // As a holder does that has seen 31 behind it, before 21 came: the next token is its.
    database.run("update rowlock_lock set successor = 31 where name = 'page'");
    const auto held = token_of(database);
    REQUIRE(page.hand().free("page", one, grant_id{11}));
    CHECK(page.take(two, 22, shared) == outcome::held);
    CHECK(page.serve() == ids{31});
    CHECK(token_of(database) == held + 1);  // the promised one
    // The waiter has gone: its token stays out, for a take and for a grant.
    REQUIRE(page.hand().free("page", three, grant_id{31}));
    for (const bool takes : {true, false}) {
        CAPTURE(takes);
        const auto before = token_of(database);
        database.run("update rowlock_lock set successor = 99 where name = 'page'");
        if (takes) {
            CHECK(page.cancelled(21));
            CHECK(page.took(two, 23, shared));
            page.wait(two, 21, shared);
        } else {
            CHECK(page.serve() == ids{21});
        }
        CHECK(token_of(database) == before + 2);
        CHECK(database.number("select count(*) from rowlock_lock where successor is null") == 1);
        if (takes) CHECK(page.give(two, 23));
    }
}

TEST_CASE("a semaphore is made of a name that nobody holds or waits for, and refuses all of it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        const auto make = [&] {
            return kind_of([&] { page.counted().set_capacity(page.db(), "page", 3, soon()); });
        };
        REQUIRE(page.took_all(one, 11));
        CHECK(make() == errc::invalid_options);
        REQUIRE(page.hand().free("page", one, grant_id{11}));
        REQUIRE(page.took(two, 21, shared));
        CHECK(make() == errc::invalid_options);
        REQUIRE(page.give(two, 21));
        page.wait_for_all(two, 22);
        CHECK(make() == errc::invalid_options);
        REQUIRE(page.cancelled(22));
        const auto before = token_of(database);
        CHECK_NOTHROW(page.counted().set_capacity(page.db(), "page", 3, soon()));
        CHECK(token_of(database) > before);
        CHECK(kind_of([&] { (void)page.take_all(one, 12); }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)page.take(one, 12, shared); }) == errc::invalid_options);
        CHECK_FALSE(page.counted().create(page.db(), "page", 5, soon()));
        CHECK_NOTHROW(page.counted().set_capacity(page.db(), "page", 5, soon()));
        CHECK(database.number("select capacity from rowlock_lock") == 5);
        // An entry that came amid the change: it is shown as what nobody can serve.
        page.wait_for_all(two, 23);
        const auto seen = page.hand().entries_of(two).waiting;
        REQUIRE(seen.size() == 1);
        CHECK(seen[0].semaphore);
        CHECK_FALSE(seen[0].servable);
        CHECK(page.serve().empty());
        CHECK(page.serve_expecting(protocol::queue_head::sole).empty());
    }
}

TEST_CASE("a semaphore that is made while a grant of its name commits is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        for (const std::string grant : {"session = 1, grant_id = 11", "used = 1"}) {
            CAPTURE(grant);
            const page_lock page{database};
            const page_lock other{database};
            database.run("delete from rowlock_lock");
            support::make_lock(page.db(), page.hand().statements(), "page");
            database.run("begin");
            database.run("update rowlock_lock set token = token + 1, " + grant +
                         " where name = 'page'");
            auto makes = std::async(std::launch::async, [&] {
                return kind_of(
                    [&] { other.counted().set_capacity(other.db(), "page", 3, soon()); });
            });
            CHECK(support::waiting_for_rows(page.db(), database.prefix()));
            database.run("commit");
            CHECK(makes.get() == errc::invalid_options);
            CHECK(database.number("select count(*) from rowlock_lock where capacity is null") == 1);
        }
    }
}

// Its session may have been notified of a grant that a crash of the server has undone. Until that
// session has ended, nobody else is granted anything.
TEST_CASE("a waiter that is promised a token and cannot be served keeps all others out") {
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const page_lock page{database};
    page.open();
    REQUIRE(page.took_all(one, 11));
    page.wait_for_all(three, 31);
    database.run("update rowlock_lock set successor = 31 where name = 'page'");
    database.run("update rowlock_ticket set waits_until = clock_timestamp() - interval '1 s'");
    REQUIRE(page.hand().free("page", one, grant_id{11}));
    const auto all_of = [&](session_id session) {
        const std::array requests{page_lock::of(session, 41, shared),
                                  page_lock::of(session, 42, shared)};
        return page.counted().acquire_together(page.db(), requests, soon());
    };
    CHECK(page.take(two, 21, shared) == outcome::held);
    for (const auto& each : all_of(two)) CHECK_FALSE((each && each->what == outcome::granted));
    CHECK(page.take_all(two, 22) == outcome::held);
    page.wait(two, 23, shared);
    CHECK(page.serve().empty());
    end_all_of(database, three);  // it believes nothing any more
    CHECK(page.serve() == ids{23});
    for (const auto& each : all_of(two)) {
        REQUIRE(each);
        CHECK(each->what == outcome::granted);
    }
}

TEST_CASE("a release by force of a lock that has counted holds alone ends nothing, at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, shared));
        CHECK_FALSE(page.hand().force_release("page"));
        CHECK(database.number("select count(*) from rowlock_hold") == 1);
    }
}

TEST_CASE(
    "entries for a mode that commit while their name becomes a semaphore get no second hold") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        for (const auto mode : {exclusive, lock_mode::upgradeable}) {
            const page_lock page{database};
            page.open();
            support::make_lock(page.db(), page.hand().statements(), "page");
            database.run("begin");
            for (const std::string id : {"2, 22", "3, 33"}) {
                database.run("insert into rowlock_ticket (name, session, grant_id, weight, " +
                             std::string{"enqueued_at, thread) select 'page', "} + id + ", " +
                             std::to_string(permits_for(mode)) +
                             ", opened_at, 't' from rowlock_session where id = 1");
            }
            const auto most = protocol::largest_capacity;
            CHECK_NOTHROW(page.counted().set_capacity(page.db(), "page", most, soon()));
            database.run("commit");
            CHECK(page.serve().empty());
            CHECK(page.cancelled(22));
            CHECK(page.cancelled(33));
            database.run("delete from rowlock_lock");
            page.close();
        }
    }
}

TEST_CASE("a promised waiter behind an entry for a part is shown as one that can be served") {
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const page_lock page{database};
    page.open();
    REQUIRE(page.took_all(one, 11));
    page.wait(two, 21, shared);  // its commit came after the promise to the one behind it
    page.wait_for_all(three, 31);
    database.run("update rowlock_lock set successor = 31 where name = 'page'");
    end_all_of(database, one);
    for (const auto session : {two, three}) {
        CHECK(page.hand().entries_of(session).waiting.at(0).servable);
    }
    CHECK(page.serve() == ids{31});
}

TEST_CASE("a semaphore is not made of a name without a row that is waited for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        page.wait(two, 22, shared);  // the reaper has deleted the row beside this entry
        REQUIRE(database.number("select count(*) from rowlock_lock") == 0);
        CHECK(kind_of([&] { page.counted().set_capacity(page.db(), "page", 3, soon()); }) ==
              errc::invalid_options);
        CHECK(database.number("select count(*) from rowlock_lock where capacity is not null") == 0);
    }
}

TEST_CASE("a token from before the row was reaped takes no semaphore of that name") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took_all(one, 11));
        REQUIRE(page.hand().free("page", one, grant_id{11}));
        const auto known = token_of(database);
        // What the reaper does with a row whose token is the greatest.
        const auto floor = std::to_string(known);
        database.run("update rowlock_token_floor set floor = " + floor + ", settled = " + floor);
        database.run("delete from rowlock_lock");
        page.counted().set_capacity(page.db(), "page", 3, soon());
        CHECK(token_of(database) > known);
        const protocol::grant_request again{.name = "page",
                                            .session = one,
                                            .grant_id = grant_id{12},
                                            .thread = {},
                                            .note = {},
                                            .deadline_us = std::nullopt};
        CHECK_FALSE(page.hand().reacquire(again, known));
        CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 0);
    }
}

// To wait for a row with others locked would close a circle with a holder that fences them in
// another order, and the server would abort the holder's transaction.
TEST_CASE("who wants a part of several locks waits for no row while others are locked") {
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const protocol_connection holder{database};
    const protocol_connection several{database};
    const auto multi = protocol::make_multi_protocol(database.statements());
    for (const auto each : {one, two}) holder.open(each);
    for (const char* name : {"a", "b"}) {
        support::make_lock(holder.db(), holder.statements(), name);
    }
    const auto part = protocol::wanted_for(shared);
    const std::array names{protocol::wanted_name{"a", grant_id{21}, part},
                           protocol::wanted_name{"b", grant_id{22}, part}};
    const auto take = [&] {
        const protocol::multi_request request{.names = names, .session = two};
        return multi->take(several.db(), request, std::chrono::steady_clock::now() + 2s).what;
    };
    database.run("begin");
    database.run("update rowlock_lock set changed_at = changed_at where name = 'b'");
    CHECK(take() == outcome::contested);
    database.run("commit");
    CHECK(take() == outcome::granted);
}

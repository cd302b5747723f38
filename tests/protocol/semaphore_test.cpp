// Permits of semaphores, on every database through every driver: the transitions of
// semaphore_protocol, one by one, and pairs of them whose interleaving is forced.
// shows: promise-12

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "view/overview.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using outcome = protocol::attempt::outcome;
using support::kind_of;
using support::lock_database;
using support::protocol_connection;
using support::soon;

namespace {

constexpr session_id one{1};
constexpr session_id two{2};

using ids = std::vector<std::int64_t>;

/// The semaphore "api" on a connection of its own.
class permits_of_api {
public:
    explicit permits_of_api(const lock_database& database)
        : hand_{database}, protocol_{protocol::make_semaphore_protocol(database.statements())} {}

    void open() const {
        hand_.open(one);
        hand_.open(two);
    }
    [[nodiscard]] const protocol::queue_protocol& queue() const { return hand_.queue(); }
    void set(std::int64_t capacity, std::string_view name = "api") const {
        protocol_->set_capacity(db(), name, capacity, soon());
    }
    [[nodiscard]] protocol::attempt take(session_id session, std::int64_t grant,
                                         std::int64_t count = 1) const {
        return protocol_->acquire(db(), of(session, grant, count), soon());
    }
    [[nodiscard]] bool took(session_id session, std::int64_t grant, std::int64_t count = 1) const {
        return take(session, grant, count).what == outcome::granted;
    }
    void take_with_passed_deadline(session_id session, std::int64_t grant,
                                   std::int64_t count) const {
        auto past = of(session, grant, count);
        past.deadline_us = -1;
        REQUIRE(protocol_->acquire(db(), past, soon()).what == outcome::granted);
    }
    [[nodiscard]] bool give(session_id session, std::int64_t grant) const {
        return protocol_->release(db(), "api", session, grant_id{grant}, 0, soon());
    }
    void wait(session_id session, std::int64_t grant, std::int64_t count) const {
        hand_.queue().enqueue(db(), of(session, grant, count), soon());
    }
    [[nodiscard]] ids cancel(const std::vector<grant_id>& grants) const {
        return numbers_of(hand_.queue().cancel(db(), grants, soon()));
    }
    /// The grant ids that were served.
    [[nodiscard]] ids grant_next() const {
        return support::serve_all(hand_.queue(), db(), "api", soon());
    }
    [[nodiscard]] std::int64_t sweep() const { return protocol_->sweep(db(), "api", soon()); }
    [[nodiscard]] semaphore_info seen() const {
        return protocol_->inspect(db(), "api", protocol::counter_kind::semaphore, soon()).value();
    }
    [[nodiscard]] std::int64_t used() const { return seen().used; }
    /// Whether `used` is the sum of the holds.
    [[nodiscard]] bool counts() const {
        return std::ranges::none_of(protocol_->neglected(db(), "", 10, soon()),
                                    [](const auto& each) { return each.difference != 0; });
    }
    [[nodiscard]] const protocol::semaphore_protocol& protocol() const { return *protocol_; }
    [[nodiscard]] const protocol_connection& hand() const { return hand_; }
    [[nodiscard]] sql::connection& db() const { return hand_.db(); }

    static protocol::grant_request of(session_id session, std::int64_t grant, std::int64_t count) {
        return {.name = "api",
                .session = session,
                .grant_id = grant_id{grant},
                .thread = "t",
                .note = "n",
                .deadline_us = std::nullopt,
                .permits = {.count = count}};
    }

private:
    static ids numbers_of(const std::vector<grant_id>& grants) {
        ids numbers;
        for (const auto each : grants) numbers.push_back(static_cast<std::int64_t>(each));
        std::ranges::sort(numbers);
        return numbers;
    }

    protocol_connection hand_;
    std::unique_ptr<const protocol::semaphore_protocol> protocol_;
};

std::string now_of(const lock_database& database) {
    return database.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
}

/// A hold of one permit and its counter, in a transaction that stays open.
void take_one_and_stay(lock_database& database, std::int64_t grant) {
    database.run("begin");
    database.run("update rowlock_lock set used = used + 1, token = token + 1 where name = 'api'");
    database.run(
        "insert into rowlock_hold (name, grant_id, session, weight, token, acquired_at) values "
        "('api', " +
        std::to_string(grant) + ", 1, 1, 1, " + now_of(database) + ")");
}

}  // namespace

TEST_CASE("permits are taken up to the capacity, and given back once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(10);
        const auto first = api.take(one, 11, 3);
        const auto second = api.take(two, 22, 7);
        REQUIRE(first.what == outcome::granted);
        REQUIRE(second.what == outcome::granted);
        CHECK(second.token > first.token);
        CHECK(api.take(one, 12).what == outcome::held);
        CHECK(api.used() == 10);
        CHECK(api.counts());

        CHECK_FALSE(api.give(two, 11));  // another session's
        CHECK(api.give(one, 11));
        CHECK_FALSE(api.give(one, 11));
        CHECK(api.used() == 7);
        const auto third = api.take(one, 12, 3);
        REQUIRE(third.what == outcome::granted);
        CHECK(third.token > second.token);
        CHECK_FALSE(api.give(one, 11));  // a late release leaves the new hold alone
        CHECK(api.used() == 10);

        const auto found = api.protocol().served(api.db(), "api", one, grant_id{12}, soon());
        REQUIRE(found.has_value());
        CHECK(found->token == third.token);
        CHECK_FALSE(api.protocol().served(api.db(), "api", one, grant_id{11}, soon()).has_value());
        CHECK_FALSE(api.protocol().served(api.db(), "api", two, grant_id{12}, soon()).has_value());
        const auto rows = api.protocol().permits_of(api.db(), one, soon());
        REQUIRE(rows.size() == 1);
        CHECK(rows[0].name == "api");
        CHECK(rows[0].grant_id == grant_id{12});
        CHECK(rows[0].token == third.token);
        const auto holders = api.protocol().holders(api.db(), "api", 10, soon());
        REQUIRE(holders.size() == 2);
        CHECK(holders[0].shown.permits == 7);
        CHECK(holders[1].shown.who.note == "n");
        CHECK(api.counts());
    }
}

TEST_CASE("what a semaphore can never give is refused at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        const auto refuses = [](auto call) { return kind_of(call) == errc::invalid_options; };
        CHECK(refuses([&] { (void)api.take(one, 11); }));  // no capacity yet
        CHECK(refuses([&] { api.set(-1); }));
        api.set(3);
        CHECK(refuses([&] { (void)api.take(one, 11, 0); }));
        CHECK(refuses([&] { (void)api.take(one, 11, -1); }));
        CHECK(refuses([&] { (void)api.take(one, 11, 4); }));
        CHECK(refuses([&] { api.wait(one, 11, -1); }));
        CHECK(api.used() == 0);
        // One made again keeps its capacity.
        CHECK_FALSE(api.protocol().create(api.db(), "api", 9, soon()));
        CHECK(api.seen().capacity == 3);
        CHECK(api.protocol().create(api.db(), "new", 9, soon()));
    }
}

TEST_CASE("the name of a lock that is held is refused for a semaphore, and the error says so") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        REQUIRE(api.hand().try_acquire("api", two, grant_id{21}).has_value());
        for (const bool sets : {false, true}) {
            try {
                if (sets) {
                    api.set(1);
                } else {
                    static_cast<void>(api.protocol().create(api.db(), "api", 1, soon()));
                }
                FAIL("it was made");
            } catch (const error& refused) {
                CHECK(refused.kind() == errc::invalid_options);
                const std::string why = refused.what();
                CHECK(why.find("\"api\" is the name of a lock that is held") != std::string::npos);
                CHECK(why.find("semaphore") != std::string::npos);
            }
        }
        // The control: without that lease.
        api.set(1, "another");
        CHECK(
            api.protocol().exists(api.db(), "another", protocol::counter_kind::semaphore, soon()));
    }
}

TEST_CASE("the permits of a dead session come back, and it is given none") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(4);
        REQUIRE(api.took(one, 11, 3));
        REQUIRE(api.took(two, 22, 1));
        api.wait(one, 12, 1);
        api.wait(two, 23, 2);
        CHECK(api.sweep() == 0);
        CHECK_FALSE(api.protocol().holders_of(api.db(), "api", soon()).over);
        api.hand().end(one);
        const auto queues = api.queue().queues_of_session(api.db(), one, soon());
        REQUIRE(queues.size() == 1);
        CHECK(queues[0].name == "api");
        CHECK(queues[0].has_holds);
        CHECK(api.protocol().holders_of(api.db(), "api", soon()).over);
        CHECK(api.sweep() == 3);
        CHECK(api.sweep() == 0);
        CHECK_FALSE(api.give(one, 11));
        CHECK(api.used() == 1);
        CHECK(api.take(one, 13).what == outcome::session_dead);
        CHECK(api.grant_next() == ids{23});  // the dead one's entry is passed over
        CHECK(api.used() == 3);
        while (api.queue().delete_entries_of(api.db(), one, soon())) {
        }
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
        CHECK_FALSE(api.queue().delete_entries_of(api.db(), two, soon()));
        CHECK(api.counts());
    }
}

TEST_CASE("the permits that dead holders keep are counted for people, name by name") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        for (const char* name : {"api", "other"}) api.set(20, name);
        const auto take = [&](const char* name, session_id session, std::int64_t grant,
                              std::int64_t count) {
            auto request = permits_of_api::of(session, grant, count);
            request.name = name;
            REQUIRE(api.protocol().acquire(api.db(), request, soon()).what == outcome::granted);
        };
        take("api", one, 10, 2);
        take("api", one, 11, 3);
        take("api", two, 12, 5);
        take("api", two, 13, 7);
        take("other", one, 14, 1);
        const auto dead = [&](std::int64_t most) {
            return view::read_expired_permits(api.db(), database.statements(), most, soon());
        };
        CHECK(dead(10).empty());
        database.run("update rowlock_hold set deadline = " + now_of(database) +
                     " where grant_id = 12");
        database.run("update rowlock_session set expires_at = opened_at where id = 1");
        using view::kind;
        CHECK(dead(10) == view::expired_permits{{{kind::semaphore, "api"}, 2 + 3 + 5},
                                                {{kind::semaphore, "other"}, 1}});
        CHECK(dead(1) == view::expired_permits{{{kind::semaphore, "api"}, 2 + 3 + 5}});
        api.hand().end(one);
        CHECK(dead(10).size() == 2);  // until somebody takes them back
        static_cast<void>(api.sweep());
        CHECK(dead(10) == view::expired_permits{{{kind::semaphore, "other"}, 1}});
    }
}

TEST_CASE("holds of a predecessor move to its successor with new tokens, but for those that end") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(20);
        api.set(20, "other");
        const auto stranger = session_id{3};
        api.hand().open(stranger, {.owner = "another owner"});
        REQUIRE(api.took(one, 10, 2));
        REQUIRE(api.took(one, 11, 3));
        REQUIRE(api.took(one, 12));
        REQUIRE(api.took(one, 13));
        REQUIRE(api.took(stranger, 14));
        const auto before = api.take(two, 15).token;
        const auto other_token = [&] {
            return database.number("select token from rowlock_lock where name = 'other'");
        };
        const auto of_other = other_token();
        database.run("update rowlock_hold set deadline = " + now_of(database) +
                     " where grant_id = 12");
        database.run("update rowlock_hold set requested = 1 where grant_id = 13");
        const auto ended = api.hand().leases().reclaim(
            api.db(), "owner", two,
            [&](session_id predecessor) {
                api.protocol().reclaim(api.db(), predecessor, two, soon());
            },
            soon());
        REQUIRE(ended);
        CHECK(*ended == std::vector{one});
        const auto holds_of = [&](session_id session) {
            ids grants;
            for (const auto& each : api.protocol().permits_of(api.db(), session, soon())) {
                grants.push_back(static_cast<std::int64_t>(each.grant_id));
            }
            std::ranges::sort(grants);
            return grants;
        };
        CHECK(holds_of(two) == ids{10, 11, 15});
        CHECK(holds_of(stranger) == ids{14});
        const auto token_of = [&](int grant) {
            return database.number("select token from rowlock_hold where grant_id = " +
                                   std::to_string(grant));
        };
        CHECK(token_of(10) > before);
        CHECK(token_of(11) > token_of(10));
        CHECK(token_of(14) < before);
        CHECK(token_of(15) == before);
        CHECK(database.number("select token from rowlock_lock where name = 'api'") >= token_of(11));
        CHECK(other_token() == of_other);
        CHECK(api.counts());
    }
}

TEST_CASE("permits of an expired session are not taken back before that session has been ended") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(2);
        REQUIRE(api.took(one, 11, 2));
        CHECK(api.protocol().expired_holders(api.db(), "api", soon()).empty());
        CHECK(api.protocol().holders_of(api.db(), "api", soon()).remaining > 0us);
        database.run("update rowlock_session set expires_at = " +
                     std::string{database.speaks() == sql::dialect::postgresql
                                     ? "clock_timestamp() - interval '1 second'"
                                     : "1"} +
                     " where id = 1");
        // Expired is not ended: its client may still extend it (I3).
        CHECK(api.take(two, 21).what == outcome::held);
        CHECK(api.sweep() == 0);
        const auto seen = api.protocol().holders_of(api.db(), "api", soon());
        CHECK(seen.expired);
        CHECK_FALSE(seen.over);
        CHECK(api.protocol().expired_holders(api.db(), "api", soon()) == std::vector{one});
        CHECK(api.used() == 2);
        api.hand().end(one);
        CHECK(api.protocol().expired_holders(api.db(), "api", soon()).empty());
        CHECK(api.protocol().holders_of(api.db(), "api", soon()).over);
        CHECK(api.sweep() == 2);
        CHECK(api.took(two, 22, 2));
        CHECK(api.counts());
    }
}

TEST_CASE("a hold that is extended while a sweep looks for the dead is kept") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(2);
        api.take_with_passed_deadline(one, 11, 1);
        // On PostgreSQL a sweep is one statement, which judges again what it has locked.
        const bool looks_first = database.speaks() != sql::dialect::postgresql;
        support::interception network;
        const protocol_connection sweeper{network.wrap(database.source())};
        bool extended = false;
        network.after([&](std::string_view what) {
            if (what != "holds_over" || std::exchange(extended, true)) return;
            database.run("update rowlock_hold set deadline = 9000000000000000");
        });
        CHECK(api.protocol().sweep(sweeper.db(), "api", soon()) == (looks_first ? 0 : 1));
        CHECK(extended == looks_first);
        CHECK(api.counts());
        // Control: without an extension it is swept.
        if (looks_first) {
            database.run("update rowlock_hold set deadline = 1");
            CHECK(api.protocol().sweep(sweeper.db(), "api", soon()) == 1);
            CHECK(api.counts());
        }
    }
}

TEST_CASE("a hold of permits ends at its own deadline") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(2);
        api.take_with_passed_deadline(one, 11, 2);
        CHECK(api.sweep() == 2);
        CHECK(api.counts());
    }
}

TEST_CASE("a large request is not overtaken by smaller ones behind it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(5);
        REQUIRE(api.took(one, 11, 2));
        REQUIRE(api.took(one, 12, 3));
        api.wait(two, 21, 4);
        api.wait(two, 22, 1);
        api.wait(two, 23, 1);
        CHECK(api.seen().waiting == 3);
        CHECK(api.seen().wanted == 6);
        CHECK(api.grant_next().empty());
        CHECK(api.give(one, 12));
        CHECK(api.grant_next().empty());                 // three are free, four are asked for first
        CHECK(api.take(one, 13).what == outcome::held);  // and no newcomer passes
        CHECK(api.used() == 2);
        auto entries = api.queue().entries_of(api.db(), two, soon());
        REQUIRE(entries.waiting.size() == 3);
        CHECK(entries.session_live);
        CHECK(entries.waiting[0].position == 1);
        CHECK_FALSE(entries.waiting[0].servable);
        CHECK_FALSE(entries.waiting[2].servable);
        CHECK(api.give(one, 11));
        entries = api.queue().entries_of(api.db(), two, soon());
        CHECK(entries.waiting[0].servable);
        CHECK(entries.waiting[2].position == 3);
        CHECK(entries.waiting[2].servable);      // the first of its queue is
        CHECK(api.grant_next() == ids{21, 22});  // the longest prefix that fits
        CHECK(api.used() == 5);
        CHECK(api.cancel({grant_id{22}, grant_id{23}}) == ids{23});
        CHECK(api.give(two, 22));
        CHECK(api.took(one, 13));
        CHECK(api.counts());
    }
}

// On SQLite the look and the take are one transaction.
TEST_CASE("a newcomer's take does not pass a waiter that came behind the newcomer's look") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(1);
        support::interception network;
        client locks{network.wrap(database.source()), database.options()};
        semaphore same{locks, "api"};
        bool came = false;
        network.before([&](std::string_view what) {
            if (what.starts_with("take_permits") && !std::exchange(came, true))
                api.wait(two, 21, 1);
        });
        CHECK_FALSE(same.try_acquire());
        CHECK(came);
        CHECK(api.grant_next() == ids{21});
        CHECK(api.counts());
    }
}

TEST_CASE("a hold that was asked for is not extended, although its client has seen the change") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(1);
        auto brief = permits_of_api::of(one, 11, 1);
        brief.deadline_us = 60'000'000;
        const auto taken = api.protocol().acquire(api.db(), brief, soon());
        REQUIRE(taken.what == outcome::granted);
        const auto extend = [&](std::int64_t revision) {
            return api.protocol().extend(api.db(), "api", one, grant_id{11}, 70s, revision, soon());
        };
        CHECK(extend(0) == protocol::extension::done);
        REQUIRE(api.protocol().request_release(
            api.db(), "api", taken.token, {.within = 10s, .asked_by = "b", .reason = ""}, soon()));
        CHECK_FALSE(api.hand().heartbeat(one, 0));
        CHECK(extend(0) == protocol::extension::unseen_change);
        CHECK(api.hand().heartbeat(one, 1));
        CHECK(extend(1) == protocol::extension::requested);
        CHECK(database.number("select requested from rowlock_hold") == 1);
    }
}

// shows: promise-9
TEST_CASE(
    "a waiter for permits whose time limit has passed is passed over, and blocks no newcomer") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(2);
        REQUIRE(api.took(one, 10, 2));
        auto limited = permits_of_api::of(two, 20, 2);
        limited.limit_us = 3'600'000'000;
        api.queue().enqueue(api.db(), limited, soon());
        api.wait(two, 30, 1);
        const auto positions = [&] {
            ids all;
            for (const auto& each : api.queue().entries_of(api.db(), two, soon()).waiting) {
                all.push_back(each.position);
            }
            return all;
        };
        CHECK(positions() == ids{1, 2});
        database.run("update rowlock_ticket set waits_until = enqueued_at where grant_id = 20");
        CHECK(positions() == ids{0, 1});
        REQUIRE(api.give(one, 10));
        CHECK(api.grant_next() == ids{30});  // the control is "a large request is not overtaken …"
        CHECK(api.took(one, 11));
        CHECK(api.cancel({grant_id{20}}) == ids{20});
        CHECK(api.counts());
    }
}

TEST_CASE("the capacity changes live, also to less than is used") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(5);
        api.set(5);
        REQUIRE(api.took(one, 11, 2));
        REQUIRE(api.took(one, 12, 3));
        api.set(2);
        CHECK(api.seen().available() == 0);
        CHECK(api.used() == 5);
        api.wait(two, 21, 1);
        CHECK(api.give(one, 12));
        CHECK(api.grant_next().empty());
        CHECK(api.give(one, 11));
        CHECK(api.grant_next() == ids{21});
        api.set(9);
        CHECK(api.took(one, 13, 8));
        CHECK(api.counts());
    }
}

TEST_CASE("a capacity that grows serves all that fit, however many they are") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(1);
        REQUIRE(api.took(one, 11));
        ids all;
        for (std::int64_t grant = 100; grant < 200; ++grant) {
            api.wait(two, grant, 1);
            all.push_back(grant);
        }
        api.set(101);
        CHECK(api.grant_next() == all);
        CHECK(api.used() == 101);
        CHECK(api.counts());
    }
}

TEST_CASE("a request for more permits than a number can count is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        api.set(5);
        REQUIRE(api.took(one, 11, 2));
        CHECK(kind_of([&] { (void)api.take(one, 12, most); }) == errc::invalid_options);
        CHECK(kind_of([&] { api.set(most); }) == errc::invalid_options);
        constexpr std::int64_t largest = 999'999'999;
        api.set(largest);
        CHECK(api.take(one, 12, largest).what == outcome::held);
        CHECK(api.took(one, 13, largest - 2));
        CHECK(api.counts());
    }
}

TEST_CASE("tokens of a semaphore rise past the token floor, as after a promotion") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(2);
        REQUIRE(api.took(one, 11));
        database.run("update rowlock_token_floor set floor = 1000");
        CHECK(api.take(one, 12).token == 1001);
        api.wait(two, 21, 1);
        CHECK(api.give(one, 11));
        database.run("update rowlock_token_floor set floor = 2000");
        CHECK(api.grant_next() == ids{21});
        CHECK(api.protocol().served(api.db(), "api", two, grant_id{21}, soon())->token == 2001);
    }
}

TEST_CASE("ten thousand permits in one call are one row") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(10'000);
        REQUIRE(api.took(one, 11, 10'000));
        CHECK(database.number("select count(*) from rowlock_hold") == 1);
        CHECK(api.give(one, 11));
        CHECK(api.used() == 0);
    }
}

TEST_CASE("two takes of the last permit: the counter lets one through") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const permits_of_api api{database};
        const permits_of_api other{database};
        api.open();
        api.set(1);
        take_one_and_stay(database, 11);
        // The control: what counts the holds instead does not see the uncommitted one.
        CHECK(other.hand().number("select count(*) from " + database.prefix() +
                                  "hold where name = 'api'") == 0);
        auto second = std::async(std::launch::async, [&] { return other.take(two, 22).what; });
        CHECK(support::waiting_for_rows(api.db(), database.prefix()));
        database.run("commit");
        CHECK(second.get() == outcome::held);
        CHECK(api.used() == 1);
        CHECK(api.counts());
    }
}

TEST_CASE("two releases of one hold lower the counter once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const permits_of_api api{database};
        const permits_of_api other{database};
        api.open();
        api.set(2);
        REQUIRE(api.took(one, 11, 2));
        database.run("begin");
        database.run("delete from rowlock_hold where grant_id = 11");
        database.run("update rowlock_lock set used = used - 2 where name = 'api'");
        auto again = std::async(std::launch::async, [&] { return other.give(one, 11); });
        CHECK(support::waiting_for_rows(api.db(), database.prefix()));
        database.run("commit");
        CHECK_FALSE(again.get());
        CHECK(api.used() == 0);
        CHECK(api.counts());
    }
}

TEST_CASE("two grants to one queue: no waiter is served twice, and none is passed over") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const permits_of_api api{database};
        const permits_of_api other{database};
        api.open();
        api.set(3);
        api.wait(two, 21, 2);
        api.wait(two, 22, 2);
        api.wait(two, 23, 1);
        // A grant of two permits to the first waiter, not yet committed.
        database.run("begin");
        database.run(
            "update rowlock_lock set used = used + 2, token = token + 1 where name = 'api'");
        database.run("delete from rowlock_ticket where grant_id = 21");
        database.run(
            "insert into rowlock_hold (name, grant_id, session, weight, token, acquired_at) "
            "values ('api', 21, 2, 2, 1, " +
            now_of(database) + ")");
        auto second = std::async(std::launch::async, [&] { return other.grant_next(); });
        CHECK(support::waiting_for_rows(api.db(), database.prefix()));
        database.run("commit");
        // One is free, and the next wants two: the one behind it, who wants one, waits with it.
        CHECK(second.get().empty());
        CHECK(api.used() == 2);
        CHECK(api.seen().waiting == 2);
        CHECK(api.counts());
    }
}

TEST_CASE("a ticket that is cancelled during a grant leaves its permits to the next") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const permits_of_api api{database};
        const permits_of_api other{database};
        api.open();
        api.set(1);
        api.wait(two, 21, 1);
        api.wait(two, 22, 1);
        database.run("begin");
        database.run("delete from rowlock_ticket where grant_id = 21");
        auto granting = std::async(std::launch::async, [&] { return other.grant_next(); });
        CHECK(support::waiting_for_rows(api.db(), database.prefix()));
        database.run("commit");
        CHECK(granting.get() == ids{22});
        CHECK(api.used() == 1);
        CHECK(api.counts());
    }
}

TEST_CASE("a counter that is wrong is found, and put right under its lock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(5);
        REQUIRE(api.took(one, 11, 2));
        REQUIRE(api.took(one, 12, 3));
        database.run("delete from rowlock_hold where grant_id = 11");  // without its counter
        CHECK_FALSE(api.counts());
        CHECK(api.protocol().correct(api.db(), "api", soon()));
        CHECK(api.used() == 3);
        CHECK(api.counts());
        CHECK_FALSE(api.protocol().correct(api.db(), "api", soon()));
    }
}

TEST_CASE("a counter is not put right by holds that were read before a take was committed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const permits_of_api api{database};
        const permits_of_api other{database};
        api.open();
        api.set(5);
        take_one_and_stay(database, 11);
        auto correcting = std::async(std::launch::async, [&] {
            return other.protocol().correct(other.db(), "api", soon());
        });
        CHECK(support::waiting_for_rows(api.db(), database.prefix()));
        database.run("commit");
        CHECK_FALSE(correcting.get());
        CHECK(api.used() == 1);
        CHECK(api.counts());
    }
}

TEST_CASE("a reaper takes permits back, serves waiters and puts counters right") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.open();
        api.set(3);
        REQUIRE(api.took(one, 11, 3));
        api.wait(two, 21, 2);
        api.wait(one, 12, 1);
        api.set(4, "other");
        database.run("update rowlock_lock set used = 2 where name = 'other'");
        api.hand().end(one);
        const auto done = reap(database.source());
        CHECK(done.permits_returned == 3);
        CHECK(done.leases_handed_over == 1);
        CHECK(done.counters_corrected == 1);
        CHECK(done.waiters_removed == 1);
        CHECK(done.sessions_deleted == 1);
        CHECK(api.used() == 2);
        CHECK(api.counts());
        CHECK(reap(database.source()).permits_returned == 0);
    }
}

TEST_CASE("semaphores are listed by name") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const permits_of_api api{database};
        api.set(1, "a/1");
        api.set(2, "a/2");
        api.set(3, "b");
        const auto list = [&](std::string_view prefix, const page& which) {
            return api.protocol().list(api.db(), prefix, protocol::counter_kind::semaphore, which,
                                       soon());
        };
        const auto all = list("a/", {});
        REQUIRE(all.size() == 2);
        CHECK(all[0].name == "a/1");
        CHECK(all[1].capacity == 2);
        CHECK(list("", {.after = "a/2"}).size() == 1);
        CHECK_FALSE(api.protocol()
                        .inspect(api.db(), "c", protocol::counter_kind::semaphore, soon())
                        .has_value());
    }
}

// Reacquired leases and batches on MySQL and SQLite:
// lock/protocol/batch/batch_dialects.hpp. Open transactions and hooks force the races.
// shows: batches

#include "lock/protocol/batch/batch_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/in_transaction.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/servers.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::grant_request;
using protocol::granted_name;
using protocol::lease_probe;
using std::chrono::steady_clock;
using support::backend;
using support::interception;
using support::kind_of;
using support::soon;

#define ROWLOCK_GROUP_BACKENDS \
    backend::sqlite, backend::mariadb, backend::soci_sqlite, backend::soci_mariadb

namespace {

using tokens = std::vector<std::optional<std::int64_t>>;

/// A session that acquires and releases several leases at once.
class group_session : public support::protocol_session {
public:
    using protocol_session::protocol_session;

    [[nodiscard]] tokens acquire_all(std::span<const grant_request> requests) const {
        return on().acquire_all(requests);
    }
    /// Acquires with the grant ids 100, 101 …
    [[nodiscard]] tokens acquire_all(const std::vector<std::string>& names) const {
        std::vector<grant_request> requests;
        std::int64_t id = 100;
        for (const auto& name : names) requests.push_back(request(name, grant_id{id++}));
        return acquire_all(requests);
    }
    [[nodiscard]] std::vector<bool> release_all(const std::vector<granted_name>& grants) const {
        return protocol_session::release_all(grants);
    }
    [[nodiscard]] std::vector<lease_probe> probe_all(
        const std::vector<std::string_view>& names) const {
        const auto& batches = dynamic_cast<const protocol::probing_batch_protocol&>(on().batch());
        return batches.probe_all(db(), id(), names, soon());
    }
};

/// Locks a row as the fence of another client's transaction does.
class row_lock {
public:
    row_lock(support::lock_database& database, const std::string& name,
             const std::string& mode = "lock in share mode")
        : db_{database.source().connect(soon())} {
        db_->query("begin", soon());
        db_->query(
            "select * from " + database.prefix() + "lock where name = '" + name + "' " + mode,
            soon());
    }
    void end() const { db_->query("rollback", soon()); }

private:
    std::unique_ptr<sql::connection> db_;
};

/// Below every lock timeout of a connection that was set up.
constexpr auto at_once = 8s;

template <typename Action>
auto timed(Action action) {
    const auto began = steady_clock::now();
    auto answer = action();
    CHECK(steady_clock::now() - began < at_once);
    return answer;
}

bool held_by(support::lock_database& database, const std::string& name, session_id session,
             grant_id grant_id) {
    return database.number("select count(*) from rowlock_lock where name = '" + name +
                           "' and session = " + to_string(session) +
                           " and grant_id = " + to_string(grant_id)) == 1;
}

std::int64_t held(support::lock_database& database) {
    return database.number("select count(*) from rowlock_lock where session is not null");
}

std::vector<std::string> numbered(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back("n" + std::to_string(i));
    return names;
}

std::vector<granted_name> grants_of(const std::vector<std::string>& names) {
    std::vector<granted_name> grants;
    std::int64_t id = 100;
    for (const auto& name : names) grants.push_back({name, grant_id{id++}});
    return grants;
}

/// The grants among them.
std::vector<granted_name> grants_of(const std::vector<std::string>& names, const tokens& got) {
    auto grants = grants_of(names);
    std::erase_if(grants, [&](const granted_name& each) {
        return !got[static_cast<std::size_t>(&each - grants.data())];
    });
    return grants;
}

std::size_t granted(const tokens& all) {
    return static_cast<std::size_t>(
        std::ranges::count_if(all, [](const auto& each) { return each.has_value(); }));
}

}  // namespace

// --- reacquiring ---------------------------------------------------------------------------------

TEST_CASE("a lease is reacquired with the token at which it was released") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const auto known = self.acquire_and_free("job");
        REQUIRE(self.reacquire("job", grant_id{11}, known));
        CHECK(held_by(database, "job", session_id{1}, grant_id{11}));
        CHECK(database.number("select token from rowlock_lock") == known + 1);
        CHECK(self.leases().find_grant(self.db(), "job", session_id{1}, grant_id{11}, soon()) ==
              known + 1);
        CHECK_FALSE(self.reacquire("job", grant_id{12}, known));  // this session holds it
        CHECK_FALSE(self.reacquire("job", grant_id{12}, known + 1));
        REQUIRE(self.free("job", grant_id{11}));
        CHECK_FALSE(self.reacquire("job", grant_id{12}, known));  // the token of an earlier grant
        CHECK_FALSE(self.reacquire("none", grant_id{12}, known));
        CHECK(self.reacquire("job", grant_id{12}, known + 1));
    }
}

TEST_CASE("a reacquired lease has the thread, note and deadline of its request") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const auto known = self.acquire_and_free("job");
        auto request = self.request("job", grant_id{11});
        request.thread = "thread";
        request.note = "it's \"why\"";
        request.deadline_us = 30'000'000;
        REQUIRE(database.batches().reacquire(self.db(), request, known, soon()));
        const auto info = self.leases().inspect(self.db(), "job", soon());
        REQUIRE(info);
        REQUIRE(info->holder);
        CHECK(info->holder->thread == "thread");
        CHECK(info->holder->note == "it's \"why\"");
        CHECK(info->holder->remaining <= 30s);
        CHECK(info->holder->remaining > 20s);
    }
}

TEST_CASE(
    "a lease is not reacquired while another session holds it, nor after another session held it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session other{database, session_id{2}};
        const auto known = self.acquire_and_free("job");
        REQUIRE(other.try_acquire("job", grant_id{22}) == known + 1);
        CHECK_FALSE(self.reacquire("job", grant_id{11}, known));
        CHECK_FALSE(self.reacquire("job", grant_id{11}, known + 1));
        REQUIRE(other.free("job", grant_id{22}));
        CHECK_FALSE(self.reacquire("job", grant_id{11}, known));
        CHECK(held(database) == 0);
    }
}

TEST_CASE("a lease with a waiter's ticket is not reacquired") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session waiter{database, session_id{2}};
        const auto known = self.acquire_and_free("job");
        waiter.enqueue("job", grant_id{22});
        CHECK_FALSE(self.reacquire("job", grant_id{11}, known));
        CHECK(held(database) == 0);
        // Nor with a dead waiter's ticket. An acquire detects that the waiter is dead.
        waiter.leases().sessions().end(waiter.db(), session_id{2}, soon());
        CHECK_FALSE(self.reacquire("job", grant_id{11}, known));
        REQUIRE(self.try_acquire("job", grant_id{11}) == known + 1);
        REQUIRE(self.free("job", grant_id{11}));
        database.run("delete from rowlock_ticket");
        CHECK(self.reacquire("job", grant_id{12}, known + 1));
    }
}

TEST_CASE("an ended or expired session reacquires nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const auto known = self.acquire_and_free("job");
        SUBCASE("ended") {
            self.end();
        }
        SUBCASE("expired") {
            database.run("update rowlock_session set expires_at = 1");
        }
        SUBCASE("gone") {
            database.run("delete from rowlock_session");
        }
        CHECK_FALSE(self.reacquire("job", grant_id{11}, known));
        CHECK(held(database) == 0);
    }
}

TEST_CASE(
    "MariaDB: a lease is reacquired on the session's server alone, or on any of its cluster") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        auto known = self.acquire_and_free("job");
        const std::string number{
            self.db().query("select cast(@@global.server_id as char)", soon()).text(0, 0)};
        auto request = self.request("job", grant_id{11});
        for (const std::string& other :
             {std::string{"mariadb::4711"}, "mariadb::" + number + "1"}) {
            request.server = other;
            CHECK_FALSE(database.batches().reacquire(self.db(), request, known, soon()));
        }
        const bool mariadb = !support::mysql_alone();
        for (const std::string& same :
             {"mariadb:uid:" + number, std::string{"galera:a cluster"}, std::string{}}) {
            request.server = same;
            CHECK(database.batches().reacquire(self.db(), request, known, soon()) == mariadb);
            if (mariadb) {
                REQUIRE(self.free("job", grant_id{11}));
                ++known;
            }
        }
    }
}

TEST_CASE("a lease is not reacquired below the token floor") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const auto known = self.acquire_and_free("job");
        database.run("update rowlock_token_floor set floor = " + std::to_string(known));
        REQUIRE(self.reacquire("job", grant_id{11}, known));  // known + 1 is above it
        REQUIRE(self.free("job", grant_id{11}));
        database.run("update rowlock_token_floor set floor = " + std::to_string(known + 2));
        CHECK_FALSE(self.reacquire("job", grant_id{12}, known + 1));
        CHECK(self.try_acquire("job", grant_id{12}) == known + 3);
    }
}

TEST_CASE("a reacquire does not wait for a locked row") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        const auto known = self.acquire_and_free("job");
        const row_lock somebody{database, "job"};
        CHECK_FALSE(timed([&] { return self.reacquire("job", grant_id{11}, known); }));
        // The connection's settings are unchanged: an acquire waits.
        auto control =
            std::async(std::launch::async, [&] { return self.try_acquire("job", grant_id{12}); });
        CHECK(support::somebody_waits_for_a_row(database));
        somebody.end();
        CHECK(control.get() == known + 1);
    }
}

TEST_CASE("neither a reacquire nor a batch locks its session: heartbeats do not wait") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        const group_session waiter{database, session_id{2}};
        const auto known = self.acquire_and_free("job");
        const auto heartbeat = database.connect();
        self.db().query("begin", soon());
        const auto beats = [&] {
            return timed([&] {
                return self.leases().sessions().heartbeat(*heartbeat, session_id{1}, 0, soon());
            });
        };
        SUBCASE("a reacquire") {
            REQUIRE(self.reacquire("job", grant_id{11}, known));
            CHECK(beats());
        }
        SUBCASE("a batch") {
            REQUIRE(granted(self.acquire_all({"job", "other"})) == 2);
            CHECK(beats());
            REQUIRE(self.release_all({{"job", grant_id{100}}, {"other", grant_id{101}}}) ==
                    std::vector{true, true});
            CHECK(beats());
        }
        SUBCASE("control: a join in the statement locks it") {
            self.db().query("update " + database.prefix() + "lock l join " + database.prefix() +
                                "session m on m.id = 1 and m.ended = 0 set l.token = l.token + 1",
                            soon());
            auto late = std::async(std::launch::async, [&] {
                return self.leases().sessions().heartbeat(*heartbeat, session_id{1}, 0, soon());
            });
            CHECK(support::somebody_waits_for_a_row(database));
            self.db().query("rollback", soon());
            CHECK(late.get());
        }
        if (self.db().alive()) self.db().query("rollback", soon());
    }
}

TEST_CASE("a reacquired lease is found after its reply was lost") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        interception network;
        const group_session self{database, network.wrap(database.source()), session_id{1}};
        const auto known = self.acquire_and_free("job");
        network.after([](std::string_view name) {
            if (name == "reacquire") interception::lose_reply();
        });
        CHECK(kind_of([&] { (void)self.reacquire("job", grant_id{11}, known); }) ==
              errc::outcome_unknown);
        const group_session again{database, session_id{2}};
        CHECK(again.leases().find_grant(again.db(), "job", session_id{1}, grant_id{11}, soon()) ==
              known + 1);
    }
}

// --- batches -------------------------------------------------------------------------------------

TEST_CASE("several leases with any names are granted and released together") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}, {.ttl = 60s}};
        std::vector<std::string> names{"job",
                                       "Job",
                                       "job ",
                                       "it's",
                                       "\"quoted\"",
                                       "back\\slash",
                                       "{a}",
                                       "$1 ?",
                                       "\xC3\xA4\xE2\x82\xAC",
                                       std::string(255, 'x')};
        const std::size_t odd = names.size();
        for (const auto& name : numbered(32 - static_cast<int>(odd))) names.push_back(name);
        std::map<std::string, std::int64_t> before;
        for (std::size_t i = 0; i < names.size(); i += 2) {
            before[names[i]] = self.acquire_and_free(names[i]);
        }

        std::vector<grant_request> requests;
        for (std::size_t i = 0; i < names.size(); ++i) {
            const auto id = static_cast<std::int64_t>(100 + i);
            requests.push_back(
                {names[i], session_id{1}, grant_id{id}, i % 3 == 0 ? "a thread" : "",
                 i % 5 == 0 ? names[i] : std::string_view{},
                 i % 4 == 0 ? std::optional<std::int64_t>{id * 1'000'000} : std::nullopt});
        }
        const auto got = self.acquire_all(requests);
        REQUIRE(got.size() == 32);
        CHECK(granted(got) == 32);
        std::vector<granted_name> grants;
        for (std::size_t i = 0; i < names.size(); ++i) {
            CAPTURE(names[i]);
            const auto info = self.leases().inspect(self.db(), names[i], soon());
            REQUIRE(info);
            REQUIRE(info->holder);
            CHECK(info->token.value() == got[i]);
            CHECK(got[i] == (before.contains(names[i]) ? before[names[i]] + 1 : 1));
            CHECK(info->holder->session == session_id{1});
            CHECK(info->holder->grant_id == requests[i].grant_id);
            CHECK(info->holder->thread == requests[i].thread);
            CHECK(info->holder->note == requests[i].note);
            CHECK((info->holder->remaining > 90s) == false);
            CHECK(info->holder->held_for < 20s);
            if (requests[i].deadline_us) {
                const auto left = self.leases().leases_of(self.db(), session_id{1}, soon());
                const auto found =
                    std::ranges::find(left, names[i], &protocol::session_lease::name);
                REQUIRE(found != left.end());
                CHECK(found->deadline_us.value_or(0) > *requests[i].deadline_us - 20'000'000);
                CHECK(found->deadline_us.value_or(0) <= *requests[i].deadline_us);
            }
            grants.push_back({names[i], requests[i].grant_id});
        }
        const auto freed = self.release_all(grants);
        CHECK(std::ranges::count(freed, true) == 32);
        CHECK(held(database) == 0);
        CHECK(database.number("select count(*) from rowlock_lock where grant_id is not null or "
                              "thread is not null or note is not null or deadline is not null or "
                              "acquired_at is not null") == 0);
        // A repeated release frees nothing, and leaves a newer grant alone.
        REQUIRE(self.try_acquire("job", grant_id{7}));
        CHECK(std::ranges::count(self.release_all(grants), true) == 0);
        CHECK(held_by(database, "job", session_id{1}, grant_id{7}));
    }
}

TEST_CASE("on MariaDB a batch of sixteen takes two round trips, and its release one") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        const auto names = numbered(16);
        for (int round = 0; round < 3; ++round) {
            for (const auto& name : names) self.acquire_and_free(name);
            const auto start = self.db().round_trips();
            REQUIRE(granted(self.acquire_all(names)) == 16);
            const auto taken = self.db().round_trips();
            REQUIRE(std::ranges::count(self.release_all(grants_of(names)), true) == 16);
            if (round < 2) continue;  // sent as text, then prepared
            CHECK(taken - start == 2);
            CHECK(self.db().round_trips() - taken == 1);
        }
    }
}

TEST_CASE("a batch locks only its own rows, even if the table has few others") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        // Nearly all rows of the table, for which an optimizer may prefer to read all of it.
        const auto names = numbered(12);
        for (const auto& name : names) self.acquire_and_free(name);
        self.acquire_and_free("another");
        database.run("analyze table rowlock_lock");
        const row_lock somebody{database, "another", "for update"};
        for (int round = 0; round < 3; ++round) {
            const auto start = self.db().round_trips();
            REQUIRE(granted(self.acquire_all(names)) == 12);
            const auto taken = self.db().round_trips();
            REQUIRE(std::ranges::count(self.release_all(grants_of(names)), true) == 12);
            if (round < 2) continue;  // sent as text, then prepared
            CHECK(taken - start == 2);
            CHECK(self.db().round_trips() - taken == 1);
        }
        const auto many = numbered(20);
        for (const auto& name : many) self.acquire_and_free(name);
        CHECK(granted(timed([&] { return self.acquire_all(many); })) == 20);
        CHECK(std::ranges::count(timed([&] { return self.release_all(grants_of(many)); }), true) ==
              20);
    }
}

TEST_CASE("one name that is held does not fail the rest of a batch") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session other{database, session_id{2}};
        for (const int count : {3, 20, 32}) {
            CAPTURE(count);
            auto names = numbered(count);
            for (const auto& name : names) self.acquire_and_free(name);
            REQUIRE(other.try_acquire("n1", grant_id{22}));
            const auto got = self.acquire_all(names);
            CHECK_FALSE(got[1]);
            CHECK(std::cmp_equal(granted(got), count - 1));
            CHECK(held_by(database, "n1", session_id{2}, grant_id{22}));
            const auto freed = self.release_all(grants_of(names, got));
            CHECK(std::ranges::count(freed, true) == count - 1);
            CHECK(held_by(database, "n1", session_id{2}, grant_id{22}));
            REQUIRE(other.free("n1", grant_id{22}));
        }
    }
}

TEST_CASE("a row that a fenced transaction has locked does not delay a batch") {
    for (const auto which : {backend::mariadb, backend::soci_mariadb}) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            if (support::lock_database database{which}; database.there()) {
                const group_session self{database, session_id{1}};
                for (const int count : {1, 3, 32}) {
                    CAPTURE(count);
                    const auto names = numbered(count);
                    for (const auto& name : names) self.acquire_and_free(name);
                    const auto others = static_cast<std::size_t>(count - 1);
                    {
                        const row_lock somebody{database, "n0"};
                        const auto got = timed([&] { return self.acquire_all(names); });
                        CHECK_FALSE(got[0]);
                        CHECK(granted(got) == others);
                        CHECK(self.release_all(grants_of(names))[0] == false);
                        somebody.end();
                    }
                    REQUIRE(granted(self.acquire_all(names)) == names.size());
                    const row_lock ours{database, "n0"};
                    const auto freed = timed([&] { return self.release_all(grants_of(names)); });
                    CHECK_FALSE(freed[0]);
                    CHECK(std::cmp_equal(std::ranges::count(freed, true), others));
                    CHECK(held_by(database, "n0", session_id{1}, grant_id{100}));
                    ours.end();
                    CHECK(self.release_all({{"n0", grant_id{100}}})[0]);
                }
            }
        }
    }
}

TEST_CASE("control: one locked row delays a batch in a statement that waits") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        for (const auto* name : {"a", "b"}) self.acquire_and_free(name);
        const row_lock somebody{database, "a"};
        auto late = std::async(std::launch::async, [&] {
            return self.db()
                .query("update " + database.prefix() +
                           "lock set token = token + 1 where name in ('a', 'b')",
                       soon())
                .affected();
        });
        CHECK(support::somebody_waits_for_a_row(database));
        somebody.end();
        CHECK(late.get() == 2);
    }
}

TEST_CASE("a name with a waiter is neither granted nor released by a batch") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session waiter{database, session_id{2}};
        self.acquire_and_free("present");
        self.acquire_and_free("other");
        waiter.enqueue("present", grant_id{22});
        waiter.enqueue("absent", grant_id{23});
        const std::vector<std::string> names{"present", "absent", "other", "new"};
        auto got = self.acquire_all(names);
        CHECK_FALSE(got[0]);
        CHECK_FALSE(got[1]);
        CHECK(got[2]);
        CHECK(got[3]);
        CHECK(held(database) == 2);

        waiter.enqueue("new", grant_id{24});
        const std::vector<granted_name> ours{{"other", grant_id{102}}, {"new", grant_id{103}}};
        CHECK(self.release_all(ours) == std::vector{true, false});
        CHECK(held_by(database, "new", session_id{1}, grant_id{103}));

        // A waiter whose session has ended does not count.
        waiter.leases().sessions().end(waiter.db(), session_id{2}, soon());
        CHECK(self.release_all({{"new", grant_id{103}}}) == std::vector{true});
        CHECK(granted(self.acquire_all(names)) == 4);
    }
}

TEST_CASE("a barging request overtakes waiters in a batch too") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session waiter{database, session_id{2}};
        self.acquire_and_free("a");
        for (const auto* name : {"a", "b", "c"}) waiter.enqueue(name, grant_id{20 + *name});
        std::vector<grant_request> requests{self.request("a", grant_id{1}),
                                            self.request("b", grant_id{2}),
                                            self.request("c", grant_id{3})};
        requests[0].barging = requests[1].barging = true;
        const auto got = self.acquire_all(requests);
        CHECK(got[0]);
        CHECK(got[1]);
        CHECK_FALSE(got[2]);
    }
}

TEST_CASE("a batch grants nothing to an ended session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        for (const auto* name : {"a", "b"}) self.acquire_and_free(name);
        SUBCASE("ended") {
            self.end();
        }
        SUBCASE("expired") {
            database.run("update rowlock_session set expires_at = 1");
        }
        SUBCASE("gone") {
            database.run("delete from rowlock_session");
        }
        CHECK(granted(self.acquire_all({"a", "b", "new"})) == 0);
        CHECK(held(database) == 0);
        CHECK(database.number("select count(*) from rowlock_lock") == 2);
    }
}

TEST_CASE("each token of a batch is above the floor and above its row's own token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        for (const auto* name : {"a", "b", "c"}) self.acquire_and_free(name);
        database.run("update rowlock_token_floor set floor = 1000");
        database.run("update rowlock_lock set token = 2000 where name = 'b'");
        const auto got = self.acquire_all({"a", "b", "c", "new"});
        CHECK(got == tokens{1001, 2001, 1001, 1001});
        CHECK(database.number("select sum(token) from rowlock_lock") == 3 * 1001 + 2001);
    }
}

TEST_CASE("a batch takes the leases of ended sessions and leases past their deadlines") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session dead{database, session_id{2}};
        const group_session alive{database, session_id{3}};
        REQUIRE(dead.try_acquire("a", grant_id{21}));
        REQUIRE(alive.try_acquire("b", grant_id{31}));
        REQUIRE(alive.try_acquire("c", grant_id{32}));
        dead.leases().sessions().end(dead.db(), session_id{2}, soon());
        database.run("update rowlock_lock set deadline = 1 where name = 'b'");
        const auto got = self.acquire_all({"a", "b", "c"});
        CHECK(got == tokens{2, 2, std::nullopt});
        CHECK(database.number("select count(*) from rowlock_lock where deadline is not null") == 0);
        // A session that expired without being ended must be ended first. A batch does not do that.
        const group_session expired{database, session_id{4}};
        REQUIRE(expired.try_acquire("d", grant_id{41}));
        database.run("update rowlock_session set expires_at = 1 where id = 4");
        CHECK(self.acquire_all({"d"}) == tokens{std::nullopt});
    }
}

TEST_CASE(
    "a batch does not take what another session took between its read and its write, and grants "
    "the rest") {
    for (const auto which : {backend::mariadb, backend::soci_mariadb}) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            if (support::lock_database database{which}; database.there()) {
                interception network;
                const group_session self{database, network.wrap(database.source()), session_id{1}};
                const group_session other{database, session_id{2}};
                for (const int count : {3, 20}) {
                    CAPTURE(count);
                    const auto names = numbered(count);
                    for (const auto& name : names) self.acquire_and_free(name);
                    network.before([&](std::string_view name) {
                        if (name != "take_all" && name != "lock_all") return;
                        network.before({});
                        REQUIRE(other.try_acquire("n1", grant_id{22}));
                    });
                    const auto got = self.acquire_all(names);
                    CHECK_FALSE(got[1]);
                    CHECK(std::cmp_equal(granted(got), count - 1));
                    CHECK(held_by(database, "n1", session_id{2}, grant_id{22}));
                    REQUIRE(other.free("n1", grant_id{22}));
                    CHECK(std::ranges::count(self.release_all(grants_of(names, got)), true) ==
                          count - 1);
                }
                // Another session inserts a new name before the batch does.
                network.before([&](std::string_view name) {
                    if (name != "insert_all") return;
                    network.before({});
                    REQUIRE(other.try_acquire("y", grant_id{23}));
                });
                CHECK(granted(self.acquire_all({"x", "y"})) == 0);
                CHECK(held_by(database, "y", session_id{2}, grant_id{23}));
                CHECK(database.number("select count(*) from rowlock_lock where name = 'x'") == 0);
            }
        }
    }
}

TEST_CASE("new names are not granted below a floor that was raised meanwhile") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        interception network;
        const group_session self{database, network.wrap(database.source()), session_id{1}};
        network.before([&](std::string_view name) {
            if (name != "insert_all") return;
            network.before({});
            database.run("update rowlock_token_floor set floor = 1000");
        });
        CHECK(granted(self.acquire_all({"x", "y"})) == 0);
        CHECK(self.acquire_all({"x", "y"}) == tokens{1001, 1001});
    }
}

TEST_CASE("a name whose insert is uncommitted does not delay a batch") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        self.acquire_and_free("a");
        const auto other = database.connect();
        other->query("begin", soon());
        other->query("insert into " + database.prefix() +
                         "lock (name, token, changed_at) values ('y', 1, 1)",
                     soon());
        const auto got = timed([&] { return self.acquire_all({"a", "x", "y"}); });
        CHECK(got == tokens{2, std::nullopt, std::nullopt});
        other->query("rollback", soon());
        CHECK(self.acquire_all({"x", "y"}) == tokens{1, 1});
    }
}

TEST_CASE("two batches with the same names in opposite order do not wait for each other") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        for (const int count : {8, 32}) {
            CAPTURE(count);
            interception network;
            const group_session self{database, network.wrap(database.source()),
                                     session_id{1 + count}};
            const group_session other{database, session_id{2 + count}};
            auto names = numbered(count);
            for (const auto& name : names) self.acquire_and_free(name);
            database.run("update rowlock_lock set token = 3");
            auto turned = names;
            std::ranges::reverse(turned);
            // This session has an uncommitted grant of the first half when the other one begins at
            // the end.
            self.db().query("begin", soon());
            const std::vector<std::string> half{names.begin(), names.begin() + count / 2};
            for (std::size_t i = 0; i < half.size(); ++i) {
                REQUIRE(self.reacquire(half[i], grant_id{100 + static_cast<std::int64_t>(i)}, 3));
            }
            const auto theirs = timed([&] { return other.acquire_all(turned); });
            CHECK(std::cmp_equal(granted(theirs), count / 2));
            CHECK_FALSE(theirs.back());
            self.db().query("commit", soon());
            CHECK(held(database) == count);
            database.run("update rowlock_lock set session = null, grant_id = null");
        }
    }
}

TEST_CASE("control: two transactions that wait for rows in opposite order deadlock") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        for (const auto* name : {"a", "b"}) self.acquire_and_free(name);
        const std::string lease = database.prefix() + "lock";
        const auto lock = [&](sql::connection& db, const std::string& name) {
            db.query("update " + lease + " set token = token + 1 where name = '" + name + "'",
                     soon());
        };
        const auto other = database.connect();
        self.db().query("begin", soon());
        other->query("begin", soon());
        lock(self.db(), "a");
        lock(*other, "b");
        auto first =
            std::async(std::launch::async, [&] { return kind_of([&] { lock(self.db(), "b"); }); });
        REQUIRE(support::somebody_waits_for_a_row(database));
        const auto second = kind_of([&] { lock(*other, "a"); });
        other->query("rollback", soon());
        const auto of_first = first.get();
        self.db().query("rollback", soon());
        CHECK((of_first == errc::deadlock || second == errc::deadlock));
    }
}

TEST_CASE("the grants of a batch whose reply was lost are found by their ids") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const bool sqlite = database.speaks() == sql::dialect::sqlite;
        for (const int count : {3, 20}) {
            CAPTURE(count);
            interception network;
            const group_session self{database, network.wrap(database.source()), session_id{count}};
            const group_session again{database, session_id{count + 1}};
            const auto names = numbered(count);
            for (const auto& name : names) self.acquire_and_free(name);
            network.after([&](std::string_view name) {
                if (name == "take_all" || name == "commit") interception::lose_reply();
            });
            CHECK(kind_of([&] { (void)self.acquire_all(names); }) == errc::outcome_unknown);
            for (const auto& each : grants_of(names)) {
                CHECK(again.leases().find_grant(again.db(), each.name, session_id{count},
                                                each.grant_id, soon()) > 0);
            }
            // A batch that was lost before its commit granted nothing.
            database.run("update rowlock_lock set session = null, grant_id = null");
            const group_session third{database, network.wrap(database.source()),
                                      session_id{count + 2}};
            network.after({});
            network.before([&](std::string_view name) {
                if (name == "take_all" || name == "commit") interception::refuse_to_send();
            });
            CHECK_THROWS_AS((void)third.acquire_all(names), error);
            network.before({});
            CHECK(held(database) == 0);
            if (sqlite) CHECK(granted(again.acquire_all(names)) == names.size());
            database.run("update rowlock_lock set session = null, grant_id = null");
        }
    }
}

TEST_CASE(
    "the outcome of a batch is unknown if part of it was granted and the grants cannot be read") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        interception network;
        const group_session self{database, network.wrap(database.source()), session_id{1}};
        const group_session other{database, session_id{2}};
        for (const auto* name : {"a", "b"}) self.acquire_and_free(name);
        network.before([&](std::string_view name) {
            if (name == "take_all") REQUIRE(other.try_acquire("a", grant_id{22}));
            if (name == "served_of") {
                throw error{errc::timed_out, "refused by the test"};
            }
        });
        CHECK(kind_of([&] { (void)self.acquire_all({"a", "b"}); }) == errc::outcome_unknown);
        network.before({});
        CHECK(self.leases().find_grant(self.db(), "b", session_id{1}, grant_id{101}, soon()) == 2);
    }
}

TEST_CASE("the release of a batch never reports a lost lease as released") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session other{database, session_id{2}};
        for (const int count : {3, 20}) {
            CAPTURE(count);
            const auto names = numbered(count);
            REQUIRE(std::cmp_equal(granted(self.acquire_all(names)), count));
            database.run(
                "update rowlock_lock set session = null, grant_id = null, token = token + 1 "
                "where name = 'n1'");
            // One statement cannot report which lease was lost. A transaction can.
            const bool told = database.speaks() == sql::dialect::sqlite || count > 16;
            if (!told) {
                CHECK(kind_of([&] { (void)self.release_all(grants_of(names)); }) ==
                      errc::outcome_unknown);
            } else {
                const auto freed = self.release_all(grants_of(names));
                CHECK_FALSE(freed[1]);
                CHECK(std::ranges::count(freed, true) == count - 1);
            }
            CHECK(held(database) == 0);
        }
    }
}

TEST_CASE("without SKIP LOCKED a large batch grants nothing, and is left to grants one by one") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        interception network;
        const group_session self{database, network.wrap(database.source()), session_id{1}};
        const auto names = numbered(20);
        for (const auto& name : names) self.acquire_and_free(name);
        network.before([&](std::string_view name) {
            if (name == "lock_all") {
                throw error{errc::database_error, "syntax", {"42000", 1064, "syntax"}};
            }
        });
        CHECK(granted(self.acquire_all(names)) == 0);
        CHECK(sql::transaction_of(self.db(), soon()) == sql::transaction_state::none);
        const int sent = network.statements;
        CHECK(granted(self.acquire_all(names)) == 0);
        CHECK(network.statements - sent == 2);  // two probes; SKIP LOCKED is not tried again
        CHECK(granted(self.acquire_all({"n0", "n1"})) == 2);
    }
}

TEST_CASE("MySQL, which cannot limit a single statement, runs batches in a transaction") {
    // A MariaDB takes MySQL's path here, since it has SKIP LOCKED too.
    if (support::lock_database database{backend::mariadb}; database.there()) {
        interception network;
        const group_session self{database, network.wrap(database.source()), session_id{1}};
        const group_session other{database, session_id{2}};
        for (const auto* name : {"a", "b", "c"}) self.acquire_and_free(name);
        network.before([&](std::string_view name) {
            if (name.find("version()") != std::string_view::npos) return;
            CHECK(name != "take_all");
            CHECK(name != "release_all");
            CHECK(name != "reacquire");
            CHECK(name != "insert_all");
        });
        sql::memory_of(self.db()).facts = sql::server_facts{.mariadb = false, .server = {}};
        CHECK_FALSE(self.reacquire("a", grant_id{9}, 1));
        const row_lock somebody{database, "b"};
        CHECK(timed([&] {
                  return self.acquire_all({"a", "b", "c", "new"});
              }) == tokens{2, std::nullopt, 2, std::nullopt});
        CHECK(timed([&] {
                  return self.release_all(
                      {{"a", grant_id{100}}, {"b", grant_id{101}}, {"c", grant_id{102}}});
              }) == std::vector{true, false, true});
        somebody.end();
    }
}

// --- probes --------------------------------------------------------------------------------------

TEST_CASE("a probe of several leases reports what a probe of each reports") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_GROUP_BACKENDS) {
        const group_session self{database, session_id{1}};
        const group_session other{database, session_id{2}};
        const group_session dead{database, session_id{3}};
        const group_session expired{database, session_id{4}};
        self.acquire_and_free("free");
        self.acquire_and_free("waited");
        other.enqueue("waited", grant_id{21});
        other.enqueue("absent and waited", grant_id{22});
        REQUIRE(other.try_acquire("held", grant_id{23}));
        other.enqueue("held", grant_id{24});
        REQUIRE(self.try_acquire("own", grant_id{11}));
        REQUIRE(dead.try_acquire("ended", grant_id{31}));
        REQUIRE(expired.try_acquire("expired", grant_id{41}));
        REQUIRE(other.try_acquire("past its deadline", grant_id{25}));
        dead.end();
        database.run("update rowlock_session set expires_at = 1 where id = 4");
        database.run("update rowlock_lock set deadline = 1 where name = 'past its deadline'");
        database.run("update rowlock_token_floor set floor = 5");
        std::vector<std::string_view> names{
            "free", "waited", "absent",  "absent and waited", "held",
            "own",  "ended",  "expired", "past its deadline", "new"};
        std::vector<std::string> more = numbered(20);
        names.insert(names.end(), more.begin(), more.end());
        const auto seen = self.probe_all(names);
        REQUIRE(seen.size() == names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            CAPTURE(names[i]);
            const auto one = self.leases().probe(self.db(), names[i], session_id{1}, soon());
            CHECK(seen[i].session_live == one.session_live);
            CHECK(seen[i].present == one.present);
            CHECK(seen[i].token == one.token);
            CHECK(seen[i].free == one.free);
            CHECK(seen[i].grant_id == one.grant_id);
            CHECK(seen[i].session == one.session);
            CHECK(seen[i].holder_expired == one.holder_expired);
            CHECK(seen[i].waited == one.waited);
            CHECK(seen[i].next_token == one.next_token);
            CHECK(seen[i].remaining - one.remaining < 20s);
            CHECK(one.remaining - seen[i].remaining < 20s);
        }
        self.end();
        CHECK_FALSE(self.probe_all(names).front().session_live);
    }
}

TEST_CASE("a probe of several leases does not wait for locks and writes nothing") {
    if (support::lock_database database{backend::mariadb}; database.there()) {
        const group_session self{database, session_id{1}};
        const group_session other{database, session_id{2}};
        REQUIRE(other.try_acquire("a", grant_id{22}));
        const row_lock somebody{database, "a", "for update"};
        const auto seen = timed([&] { return self.probe_all({"a", "b"}); });
        CHECK_FALSE(seen[0].free);
        CHECK(seen[1].free);
        CHECK(granted(timed([&] { return self.acquire_all({"a"}); })) == 0);
        somebody.end();
    }
    if (support::lock_database database{backend::sqlite}; database.there()) {
        const group_session self{database, session_id{1}};
        const group_session writer{database, session_id{2}};
        writer.db().query("begin immediate", soon());
        CHECK(timed([&] { return self.probe_all({"a"}); }).front().free);
        writer.db().query("rollback", soon());
    }
}

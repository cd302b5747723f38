// Wake-ups through a server without notifications: MariaDB, through each of its drivers.
#include "lock/wakeup/mysql_wait.hpp"

#include "driver/driver_fixtures.hpp"
#include "sql/server_facts.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/server_address.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::session_id;
using rowlock::mysql_wait::ending;
using rowlock::sql::connection;
using support::at_best;
using support::soon;
using clock = std::chrono::steady_clock;

constexpr rowlock::mysql_wait::durability_mark mark{7};

// Differs between processes that share a server.
session_id session(std::int64_t apart = 0) {
    return session_id{4'000'000'000'000'000'000 + ::getpid() * std::int64_t{1000} + apart};
}

struct nap {
    ending how;
    std::chrono::milliseconds took;
};

// The wait lock of a client, with a unique number.
class wait_lock {
public:
    explicit wait_lock(std::unique_ptr<connection> keeper) : keeper_{std::move(keeper)} {
        static std::atomic<std::int64_t> next = static_cast<std::int64_t>(session());
        number = ++next;
        REQUIRE(rowlock::mysql_wait::take_wait_lock(*keeper_, number, soon()));
    }
    [[nodiscard]] connection& keeper() const { return *keeper_; }
    void lose_keeper() { keeper_.reset(); }

    std::int64_t number = 0;

private:
    std::unique_ptr<connection> keeper_;
};

nap sleep_on(connection& db, session_id who, const wait_lock& before,
             std::chrono::seconds longest) {
    const auto start = clock::now();
    const auto how =
        rowlock::mysql_wait::sleep_until_woken(db, who, before.number, longest, soon());
    return {how, std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start)};
}

// Sleeps in its own thread. Returns once `by` has seen the sleep in the server.
std::future<nap> asleep(connection& db, session_id who, const wait_lock& before, connection& by,
                        std::chrono::seconds longest = 40s) {
    auto ended = std::async(std::launch::async, [&db, &before, who, longest] {
        return sleep_on(db, who, before, longest);
    });
    REQUIRE(support::eventually([&] { return support::sleeper(by, who).has_value(); }));
    return ended;
}

std::string id_of(connection& of) {
    return std::string{of.query("select connection_id()", soon()).text(0, 0)};
}

template <typename F>
std::unique_ptr<connection> connected() {
    return F::source().connect(soon());
}

template <typename F>
std::unique_ptr<connection> mysql_wait_thread(session_id who = session()) {
    auto made = connected<F>();
    rowlock::mysql_wait::prepare_to_sleep(*made, who, soon());
    return made;
}

int native_code_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const rowlock::error& failure) {
        return failure.native_code();
    }
    return 0;
}

}  // namespace

TEST_CASE_TEMPLATE("a session that sleeps in the server is woken at once", F, connector_cpp_fixture,
                   soci_mysql_fixture) {
    if (!F::available()) return;
    const wait_lock shut{connected<F>()};
    const auto hint = mysql_wait_thread<F>();
    const auto by = connected<F>();
    for (int round = 0; round < 20; ++round) {
        auto ended = asleep(*hint, session(), shut, *by);
        const auto start = clock::now();
        CHECK(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
        CHECK(ended.get().how == ending::woken);
        CHECK(clock::now() - start < 10s);
    }
    CHECK(hint->alive());
    CHECK(hint->query("select 42", soon()).integer(0, 0) == 42);
}

TEST_CASE_TEMPLATE("many sleeping sessions are woken at once by many others", F,
                   connector_cpp_fixture) {
    if (!F::available()) return;
    // With SLEEP instead of GET_LOCK some of these took seconds.
    constexpr int many = 6;
    constexpr int rounds = 30;
    const auto look = connected<F>();
    const auto slow_rounds_of_all = [&] {
        std::vector<std::future<int>> ended;
        for (int i = 0; i < many; ++i) {
            ended.push_back(std::async(std::launch::async, [&, i] {
                const auto who = session(i);
                const wait_lock shut{connected<F>()};
                const auto hint = mysql_wait_thread<F>(who);
                const auto by = connected<F>();
                const auto eye = connected<F>();
                int slow = 0;
                for (int round = 0; round < rounds; ++round) {
                    auto nap = asleep(*hint, who, shut, *eye);
                    const auto start = clock::now();
                    CHECK(rowlock::mysql_wait::wake(*by, who, mark, soon()));
                    CHECK(nap.get().how == ending::woken);
                    if (clock::now() - start >= 1s) ++slow;
                }
                return slow;
            }));
        }
        int most = 0;
        for (auto& each : ended) most = std::max(most, each.get());
        return most;
    };
    // A stall of the machine makes a round of each slow.
    CHECK(at_best(2, slow_rounds_of_all) < 2);
}

TEST_CASE_TEMPLATE("a wake-up costs one round trip, whether the session sleeps or not", F,
                   connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const wait_lock shut{connected<F>()};
    const auto hint = mysql_wait_thread<F>();
    const auto look = connected<F>();
    const auto by = connected<F>();
    auto ended = asleep(*hint, session(), shut, *look);
    const auto before = by->round_trips();
    CHECK(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
    CHECK(ended.get().how == ending::woken);
    CHECK_FALSE(rowlock::mysql_wait::wake(*by, session(1), mark, soon()));
    CHECK(by->round_trips() - before == 2);
    CHECK(by->alive());
}

TEST_CASE_TEMPLATE("a sleep ends by itself, and no statement time limit cuts it short", F,
                   connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const wait_lock shut{connected<F>()};
    for (const bool prepared : {false, true}) {
        CAPTURE(prepared);
        const auto hint = connected<F>();
        const bool mariadb = rowlock::sql::facts_of(*hint, soon()).mariadb;
        (void)hint->query(mariadb ? "set session max_statement_time = 0.1"
                                  : "set session max_execution_time = 100",
                          soon());
        // In a stall the limit may end the statement that lifts it.
        const auto lifted = [&] {
            return support::kind_of([&] {
                       rowlock::mysql_wait::prepare_to_sleep(*hint, session(), soon());
                   }) == rowlock::errc{};
        };
        if (prepared) REQUIRE(support::eventually(lifted));
        const auto slept = sleep_on(*hint, session(), shut, prepared ? 1s : 20s);
        // get_lock() does not report what ended it: a limit looks like a wake-up.
        CHECK(slept.how == (prepared ? ending::slept : ending::woken));
        CHECK((prepared ? slept.took >= 1s : slept.took < 10s));
        CHECK(hint->alive());
    }
}

TEST_CASE_TEMPLATE("a sleep ends when its wait lock is released, and does not begin for a free one",
                   F, connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    wait_lock shut{connected<F>()};
    const auto hint = mysql_wait_thread<F>();
    const auto by = connected<F>();
    auto ended = asleep(*hint, session(), shut, *by);
    SUBCASE("by the client") {
        rowlock::mysql_wait::release_wait_lock(shut.keeper(), shut.number, soon());
    }
    SUBCASE("by the end of its keeper") {
        shut.lose_keeper();
    }
    SUBCASE("by the server, which kills its keeper") {
        (void)by->query("kill " + id_of(shut.keeper()), soon());
    }
    CHECK(ended.get().how == ending::lock_free);
    CHECK(hint->alive());
}

TEST_CASE_TEMPLATE("only one connection at a time holds a wait lock", F, connector_cpp_fixture,
                   soci_mysql_fixture) {
    if (!F::available()) return;
    wait_lock shut{connected<F>()};
    const auto other = connected<F>();
    CHECK_FALSE(rowlock::mysql_wait::take_wait_lock(*other, shut.number, soon()));
    rowlock::mysql_wait::release_wait_lock(shut.keeper(), shut.number, soon());
    CHECK(rowlock::mysql_wait::take_wait_lock(*other, shut.number, soon()));
}

TEST_CASE_TEMPLATE("a wake-up reaches one session, and none with a similar number", F,
                   connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const wait_lock shut{connected<F>()};
    const auto hint = mysql_wait_thread<F>(session(77));
    const auto by = connected<F>();
    auto ended = asleep(*hint, session(77), shut, *by);
    const auto number = static_cast<std::int64_t>(session(77));
    for (const auto other : {session(), session(7), session_id{number / 10},
                             session_id{number % 1'000'000}, session_id{}}) {
        CHECK_FALSE(rowlock::mysql_wait::wake(*by, other, mark, soon()));
    }
    CHECK(ended.wait_for(50ms) == std::future_status::timeout);
    CHECK(rowlock::mysql_wait::wake(*by, session(77), mark, soon()));
    CHECK(ended.get().how == ending::woken);
}

// shows: wake-ups
TEST_CASE_TEMPLATE(
    "a late wake-up interrupts the session's next sleep or nothing, never another's statement", F,
    connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const wait_lock shut{connected<F>()};
    const auto by = connected<F>();
    auto hint = mysql_wait_thread<F>();
    {
        auto ended = asleep(*hint, session(), shut, *by);
        REQUIRE(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
        CHECK(ended.get().how == ending::woken);
    }
    const std::string number = id_of(*hint);
    SUBCASE("between two sleeps") {
        CHECK(rowlock::mysql_wait::wake(*by, session(), mark,
                                        soon()));  // late
        (void)sleep_on(*hint, session(), shut, 0s);
        CHECK(hint->query("select 42", soon()).integer(0, 0) == 42);
    }
    SUBCASE("closed, while others work") {
        hint.reset();
        REQUIRE(support::eventually(
            [&] { return !rowlock::mysql_wait::wake(*by, session(), mark, soon()); }));
        const auto foreign = connected<F>();
        auto work = std::async(std::launch::async, [&] {
            return foreign->query("select sleep(0.5) as work", soon()).integer(0, 0);
        });
        for (int n = 0; n < 20; ++n)
            CHECK_FALSE(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
        CHECK(work.get() == 0);
    }
    SUBCASE("closed, and asleep on a new connection") {
        hint = mysql_wait_thread<F>();
        auto ended = asleep(*hint, session(), shut, *by);
        CHECK(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
        CHECK(ended.get().how == ending::woken);
    }
    SUBCASE("abandoned without the server's notice, and asleep on a new connection") {
        const auto next = mysql_wait_thread<F>();
        CHECK_THROWS_AS((void)hint->query("select 42", soon()), rowlock::error);
        auto ended = asleep(*next, session(), shut, *by);
        CHECK(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
        CHECK(ended.get().how == ending::woken);
    }
    SUBCASE("control: a connection in a pool would be interrupted, so none returns to a pool") {
        CHECK(hint->discarded());
        auto work = std::async(std::launch::async, [&] {
            // An interrupted statement fails on MariaDB. MySQL's sleep() returns 1.
            std::int64_t answer = 0;
            const int refused = native_code_of(
                [&] { answer = hint->query("select sleep(40) as work", soon()).integer(0, 0); });
            return refused == 1317 || answer == 1;
        });
        REQUIRE(support::eventually([&] {
            return support::processes_in(*by, "User sleep", "select sleep(40) as work") == 1;
        }));
        CHECK(rowlock::mysql_wait::wake(*by, session(), mark, soon()));
        CHECK(work.get());
    }
}

TEST_CASE("a session of another database user is not woken, and the caller learns so") {
    if (!connector_cpp_fixture::available()) return;
    const wait_lock shut{connected<connector_cpp_fixture>()};
    const auto admin = connected<connector_cpp_fixture>();
    auto address = address_of(support::server::mariadb);
    address.password = "pass";
    std::vector<rowlock::sql::connection_source> sources;
    std::vector<std::string> users;
    for (const char* const name : {"one", "two"}) {
        address.user = std::string{"rowlock_"} + name + std::to_string(::getpid());
        users.push_back(address.user);
        (void)admin->query("create user " + address.user + "@'%' identified by 'pass'", soon());
        (void)admin->query("grant all on " + address.database + ".* to " + address.user + "@'%'",
                           soon());
        sources.push_back(rowlock::mysql::open(address.url()));
    }
    const auto hint = sources[0].connect(soon());
    rowlock::mysql_wait::prepare_to_sleep(*hint, session(), soon());
    const auto stranger = sources[1].connect(soon());
    const auto same = sources[0].connect(soon());
    auto ended = asleep(*hint, session(), shut, *admin);
    CHECK_FALSE(rowlock::mysql_wait::wake(*stranger, session(), mark, soon()));
    CHECK(ended.wait_for(50ms) == std::future_status::timeout);
    CHECK(rowlock::mysql_wait::wake(*same, session(), mark, soon()));
    CHECK(ended.get().how == ending::woken);
    for (const auto& name : users) (void)admin->query("drop user " + name + "@'%'", soon());
}

TEST_CASE_TEMPLATE("a sleep on a connection that the server kills fails", F, connector_cpp_fixture,
                   soci_mysql_fixture) {
    if (!F::available()) return;
    const wait_lock shut{connected<F>()};
    const auto hint = mysql_wait_thread<F>();
    const auto by = connected<F>();
    const std::string number = id_of(*hint);
    auto ended = asleep(*hint, session(), shut, *by);
    (void)by->query("kill " + number, soon());
    CHECK_THROWS_AS((void)ended.get(), rowlock::error);
    CHECK_FALSE(hint->alive());
    CHECK(support::eventually(
        [&] { return !rowlock::mysql_wait::wake(*by, session(), mark, soon()); }));
}

}  // namespace contract

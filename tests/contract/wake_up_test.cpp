// Being woken by a server that cannot notify: MariaDB, through each driver that speaks to it.
#include "strategy/wake_up.hpp"

#include "contract/driver_fixtures.hpp"
#include "contract/server_address.hpp"
#include "sql/server_facts.hpp"
#include "support/lock_database.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

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
namespace wake_up = rowlock::strategy::wake_up;
using rowlock::sql::connection;
using support::soon;
using wake_up::ending;
using clock = std::chrono::steady_clock;

// Differs between processes that share a server.
std::int64_t session() {
    return 4'000'000'000'000'000'000 + ::getpid() * std::int64_t{1000};
}

struct nap {
    ending how;
    std::chrono::milliseconds took;
};

nap sleep_on(connection& db, std::int64_t who, std::chrono::milliseconds longest) {
    const auto start = clock::now();
    const auto how = wake_up::sleep_until_woken(db, who, longest, soon());
    return {how, std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start)};
}

// Asleep on a thread of its own, and seen to be by `by`.
std::future<nap> asleep(connection& db, std::int64_t who, connection& by,
                        std::chrono::milliseconds longest = 10s) {
    auto ended =
        std::async(std::launch::async, [&db, who, longest] { return sleep_on(db, who, longest); });
    REQUIRE(support::eventually([&] {
        const auto list = by.query("show processlist", soon());
        for (std::size_t row = 0; row < list.rows(); ++row) {
            if (list.text(row, 6) == "User sleep" && wake_up::is_sleep_of(list.text(row, 7), who)) {
                return true;
            }
        }
        return false;
    }));
    return ended;
}

std::string id_of(connection& of) {
    return std::string{of.query("select connection_id()", soon()).text(0, 0)};
}

template <typename F>
std::unique_ptr<connection> sleeper() {
    auto made = F::source().connect(soon());
    wake_up::prepare_to_sleep(*made, soon());
    return made;
}

// A proxy that answers "select connection_id()" by itself, with the number of its own connection.
class behind_proxy final : public connection {
public:
    explicit behind_proxy(std::unique_ptr<connection> inner) : inner_{std::move(inner)} {}

    [[nodiscard]] rowlock::sql::dialect speaks() const noexcept override {
        return inner_->speaks();
    }
    rowlock::sql::result execute(const rowlock::sql::statement& what,
                                 std::span<const rowlock::sql::value> parameters,
                                 rowlock::sql::deadline until) override {
        return inner_->execute(what, parameters, until);
    }
    rowlock::sql::result query(std::string_view text, rowlock::sql::deadline until) override {
        if (text.starts_with("kill")) ++kills;
        if (text != "select connection_id()") return inner_->query(text, until);
        return inner_->query("select connection_id() + 1000000", until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

    int kills = 0;

private:
    std::unique_ptr<connection> inner_;
};

}  // namespace

TEST_CASE_TEMPLATE("a session that sleeps in the server is woken at once", F, connector_cpp_fixture,
                   soci_mysql_fixture) {
    if (!F::available()) return;
    const auto hint = sleeper<F>();
    const auto by = F::source().connect(soon());
    for (int round = 0; round < 20; ++round) {
        auto ended = asleep(*hint, session(), *by);
        const auto start = clock::now();
        CHECK(wake_up::wake(*by, session(), soon()));
        CHECK(ended.get().how == ending::woken);
        CHECK(clock::now() - start < 1s);
    }
    CHECK(hint->alive());
    CHECK(hint->query("select 42", soon()).integer(0, 0) == 42);
}

TEST_CASE_TEMPLATE("a wake-up costs two round trips, and one if nobody sleeps", F,
                   connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const auto hint = sleeper<F>();
    const auto look = F::source().connect(soon());
    const auto by = F::source().connect(soon());
    for (const std::uint64_t cost : {3U, 2U, 2U}) {
        auto ended = asleep(*hint, session(), *look);
        const auto before = by->round_trips();
        CHECK(wake_up::wake(*by, session(), soon()));
        CHECK(by->round_trips() - before == cost);
        CHECK(ended.get().how == ending::woken);
    }
    const auto before = by->round_trips();
    CHECK_FALSE(wake_up::wake(*by, session(), soon()));
    CHECK(by->round_trips() - before == 1);
}

TEST_CASE_TEMPLATE("a sleep ends by itself, and no limit on statements cuts it", F,
                   connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    for (const bool prepared : {false, true}) {
        CAPTURE(prepared);
        const auto hint = F::source().connect(soon());
        const bool mariadb = rowlock::sql::facts_of(*hint, soon()).mariadb;
        (void)hint->query(mariadb ? "set session max_statement_time = 0.1"
                                  : "set session max_execution_time = 100",
                          soon());
        if (prepared) wake_up::prepare_to_sleep(*hint, soon());
        const auto slept = sleep_on(*hint, session(), 400ms);
        // MySQL's sleep() does not tell a limit from a KILL.
        if (prepared || mariadb) CHECK(slept.how == ending::slept);
        CHECK((slept.took >= 400ms) == prepared);
        CHECK(hint->alive());
    }
}

TEST_CASE_TEMPLATE("a wake-up is for one session, whatever its number looks like", F,
                   connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const auto hint = sleeper<F>();
    const auto by = F::source().connect(soon());
    auto ended = asleep(*hint, session() + 77, *by);
    for (const std::int64_t other : {session(), session() + 7, (session() + 77) / 10,
                                     (session() + 77) % 1'000'000, std::int64_t{0}}) {
        CHECK_FALSE(wake_up::wake(*by, other, soon()));
    }
    CHECK(ended.wait_for(50ms) == std::future_status::timeout);
    CHECK(wake_up::wake(*by, session() + 77, soon()));
    CHECK(ended.get().how == ending::woken);
}

TEST_CASE("only a sleep of ours looks like one") {
    CHECK(wake_up::is_sleep_of("select sleep(1.000) as rowlock_wake_77", 77));
    CHECK(wake_up::is_sleep_of("select sleep(0.005) as rowlock_wake_9223372036854775807",
                               9223372036854775807));
    for (const char* const other :
         {"", "select 1", "select sleep(1.000)", "select sleep(1.000) as rowlock_wake_7",
          "select sleep(1.000) as rowlock_wake_777", "select sleep(1.000) as rowlock_wake_77 ",
          "select sleep(1.000) as rowlock_wake_77, 1", " select sleep(1) as rowlock_wake_77",
          "select sleep(1, delete_all()) as rowlock_wake_77",
          "update t set a = 'select sleep(1.000) as rowlock_wake_77'"}) {
        CAPTURE(other);
        CHECK_FALSE(wake_up::is_sleep_of(other, 77));
    }
}

TEST_CASE_TEMPLATE(
    "a wake-up that is late meets the next sleep or nobody, never another's "
    "statement",
    F, connector_cpp_fixture, soci_mysql_fixture) {
    if (!F::available()) return;
    const auto by = F::source().connect(soon());
    auto hint = sleeper<F>();
    {
        auto ended = asleep(*hint, session(), *by);
        REQUIRE(wake_up::wake(*by, session(), soon()));
        CHECK(ended.get().how == ending::woken);
    }
    const std::string number = id_of(*hint);
    SUBCASE("between two sleeps") {
        CHECK_FALSE(wake_up::wake(*by, session(), soon()));
        (void)by->query("kill query " + number, soon());  // late
        (void)sleep_on(*hint, session(), 10ms);
        CHECK(hint->query("select 42", soon()).integer(0, 0) == 42);
    }
    SUBCASE("closed, while others work") {
        hint.reset();
        const auto foreign = F::source().connect(soon());
        auto work = std::async(std::launch::async, [&] {
            return foreign->query("select sleep(0.5) as work", soon()).integer(0, 0);
        });
        for (int n = 0; n < 20; ++n) CHECK_FALSE(wake_up::wake(*by, session(), soon()));
        CHECK(work.get() == 0);
    }
    SUBCASE("closed, and asleep on a new connection") {
        hint = sleeper<F>();
        auto ended = asleep(*hint, session(), *by);
        CHECK(wake_up::wake(*by, session(), soon()));
        CHECK(ended.get().how == ending::woken);
    }
    SUBCASE("control: a connection that goes back to a pool would be hit, so none goes back") {
        CHECK(hint->discarded());
        auto work = std::async(std::launch::async, [&] {
            try {
                (void)hint->query("select sleep(10) as work", soon());
            } catch (const rowlock::error& failure) {
                return failure.native_code();
            }
            return 0;
        });
        REQUIRE(support::eventually([&] {
            const auto list = by->query("show processlist", soon());
            for (std::size_t row = 0; row < list.rows(); ++row) {
                if (list.text(row, 0) == number) return list.text(row, 7).ends_with("as work");
            }
            return false;
        }));
        (void)by->query("kill query " + number, soon());
        CHECK(work.get() == 1317);
    }
}

TEST_CASE("behind a proxy with numbers of its own nobody is woken, and nothing is killed") {
    if (!connector_cpp_fixture::available()) return;
    const auto hint = sleeper<connector_cpp_fixture>();
    const auto look = connector_cpp_fixture::source().connect(soon());
    behind_proxy by{connector_cpp_fixture::source().connect(soon())};
    auto ended = asleep(*hint, session(), *look);
    for (int n = 0; n < 3; ++n) CHECK_FALSE(wake_up::wake(by, session(), soon()));
    CHECK(by.kills == 0);
    CHECK(wake_up::wake(*look, session(), soon()));
    CHECK(ended.get().how == ending::woken);
}

TEST_CASE("another database user is not woken, and the waker learns so") {
    if (!connector_cpp_fixture::available()) return;
    const auto admin = connector_cpp_fixture::source().connect(soon());
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
    wake_up::prepare_to_sleep(*hint, soon());
    const auto stranger = sources[1].connect(soon());
    const auto same = sources[0].connect(soon());
    auto ended = asleep(*hint, session(), *admin);
    CHECK_FALSE(wake_up::wake(*stranger, session(), soon()));
    CHECK(ended.wait_for(50ms) == std::future_status::timeout);
    CHECK(wake_up::wake(*same, session(), soon()));
    CHECK(ended.get().how == ending::woken);
    for (const auto& name : users) (void)admin->query("drop user " + name + "@'%'", soon());
}

TEST_CASE_TEMPLATE("a sleeper that is thrown out is told", F, connector_cpp_fixture,
                   soci_mysql_fixture) {
    if (!F::available()) return;
    const auto hint = sleeper<F>();
    const auto by = F::source().connect(soon());
    const std::string number = id_of(*hint);
    auto ended = asleep(*hint, session(), *by);
    (void)by->query("kill " + number, soon());
    CHECK_THROWS_AS((void)ended.get(), rowlock::error);
    CHECK_FALSE(hint->alive());
    CHECK_FALSE(wake_up::wake(*by, session(), soon()));
}

}  // namespace contract

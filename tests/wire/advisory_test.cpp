// Advisory locks with other clients, dead connections, lost replies, poolers and standbys. The
// tests force the orders by hooks, or wait until the server shows that the other side waits.

#include "sql/pooler.hpp"
#include "support/blocked.hpp"
#include "support/child.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/pgbouncer.hpp"
#include "support/processlist.hpp"
#include "support/server_address.hpp"
#include "support/standby.hpp"
#include "support/tcp_relay.hpp"
#include "support/this_process.hpp"
#include "support/unhurried.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/forwarding_connection.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::event_log;
using support::eventually;
using forwarding = rowlock::sql::forwarding_connection;
using support::kind_of;
using support::pgbouncer;
using support::soon;
using support::unhurried;
using clock_type = std::chrono::steady_clock;

namespace {

std::string fresh(const std::string& name) {
    static std::atomic<int> count{0};
    return name + " " + std::to_string(getpid()) + " " + std::to_string(++count);
}

/// A generous bound for "at once": longer than a machine or a server stalls.
constexpr auto at_once = 15s;

/// The test servers, without tables.
struct test_server {
    explicit test_server(const std::string& url)
        : source{rowlock::open(url)}, admin{source.connect(soon())} {}

    [[nodiscard]] bool is_postgresql() const { return source.speaks() == sql::dialect::postgresql; }
    std::int64_t number(const std::string& text) const {
        return admin->query(text, soon()).integer(0, 0);
    }

    /// The process or connection that holds a name.
    [[nodiscard]] std::int64_t holder_of(const std::string& name) const {
        if (!is_postgresql()) {
            return number("select coalesce(is_used_lock('" + advisory_text(name, "rowlock") +
                          "'), 0)");
        }
        return number("select coalesce(max(pid), 0) from pg_locks where granted and " +
                      matches(name));
    }
    /// The process or connection that waits for a name in the server's queue, or 0. MariaDB shows
    /// no names: there, any connection of this process that waits for one.
    [[nodiscard]] std::int64_t waiter_for(const std::string& name) const {
        if (is_postgresql()) {
            return number("select coalesce(max(pid), 0) from pg_locks where not granted and " +
                          matches(name));
        }
        const auto waiting = support::processes(*admin, [](const auto& one) {
            return one.state == "User lock" && one.is_of_this_program();
        });
        return waiting.empty() ? 0 : waiting.back().id;
    }
    [[nodiscard]] bool somebody_waits_for(const std::string& name) const {
        return eventually([&] { return waiter_for(name) != 0; });
    }
    void kill(std::int64_t process) const {
        const auto id = std::to_string(process);
        admin->query(is_postgresql() ? "select pg_terminate_backend(" + id + ")" : "kill " + id,
                     soon());
    }

    sql::connection_source source;
    std::unique_ptr<sql::connection> admin;

private:
    static std::string matches(const std::string& name) {
        const auto key = std::to_string(advisory_number(name));
        return "locktype = 'advisory' and objsubid = 1 and ((classid::bigint << 32) | "
               "objid::bigint) = " +
               key;
    }
};

/// The test server, or null if it is missing.
std::shared_ptr<const test_server> on(support::server which) {
    const auto url = support::url_of(which);
    return url ? std::make_shared<const test_server>(*url) : nullptr;
}
std::shared_ptr<const test_server> on_postgresql() {
    return on(support::server::postgresql);
}
std::shared_ptr<const test_server> on_mariadb() {
    return on(support::server::mariadb);
}

/// Runs a case that waits for time to pass on both servers at the same time.
template <typename Action>
void on_both_at_once(const Action& action) {
    std::vector<std::future<void>> all;
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (db) all.push_back(std::async(std::launch::async, [&action, db] { action(*db); }));
    }
    for (auto& each : all) each.get();
}

/// A connection to a node of a Galera cluster, according to the server's variables.
class galera_node final : public forwarding {
public:
    using forwarding::forwarding;
    sql::result query(std::string_view text, sql::deadline until) override {
        sql::result table{2};
        if (text.starts_with("show global status")) {
            table.append_text("wsrep_cluster_state_uuid");
            table.append_text("6f3c1e2a-0000-11f0-8d2e-0242ac120002");
            return table;
        }
        if (text.find(" global_variables ") == std::string_view::npos)
            return forwarding::query(text, until);
        for (const char* cell : {"wsrep_on", "ON", "wsrep_provider", "libgalera_smm.so"}) {
            table.append_text(cell);
        }
        return table;
    }
};

/// Checks that held() turns false and lost() fires within `limit`.
void check_lost_within(const advisory_lock& lock, clock_type::duration limit) {
    const auto signal = lock.lost();
    const auto start = clock_type::now();
    CHECK(eventually([&] { return signal.stop_requested(); }));
    const auto took = clock_type::now() - start;
    CHECK(took <= limit);
    CHECK_FALSE(lock.held());
}

}  // namespace

// --- loss ---------------------------------------------------------------------------------------

// shows: advisory-locks
TEST_CASE("a killed connection is noticed at once where its socket is seen") {
    const auto db = on_postgresql();
    if (!db) return;
    event_log log;
    advisory_client locks{db->source,
                          {.check_period = 1h,
                           .statement_timeout = 20s,
                           .keepalive_timeout = 3h,
                           .on_event = log.callback()}};
    const std::string name = fresh("job");
    auto one = locks.lock(name);
    auto two = locks.lock(name + " two");
    CHECK(one.held());
    static_cast<void>(two.lost());
    db->kill(db->holder_of(name));
    check_lost_within(one, at_once);
    check_lost_within(two, at_once);
    CHECK(kind_of([&] { one.unlock(); }) == errc::lock_lost);
    CHECK(eventually(
        [&] { return log.has(event_kind::advisory_lost, loss_reason::connection_lost); }));
    // The object goes on with a new connection. The server may still be ending the old one.
    CHECK(locks.try_lock_for(name, 20s));
}

// shows: advisory-locks
TEST_CASE("a killed connection is noticed within the check period elsewhere") {
    for (const auto which : {support::backend::mariadb, support::backend::soci_postgresql,
                             support::backend::soci_mariadb}) {
        const support::lock_database database{which};
        if (!database.there()) continue;
        CAPTURE(support::to_string(which));
        const auto db =
            database.speaks() == sql::dialect::postgresql ? on_postgresql() : on_mariadb();
        advisory_client locks{database.source(),
                              unhurried<advisory_options>({.check_period = 300ms})};
        const std::string name = fresh("job");
        const auto one = locks.lock(name);
        db->kill(db->holder_of(name));
        check_lost_within(one, at_once);
        CHECK(locks.try_lock_for(name, 20s));
    }
}

TEST_CASE("unlock() detects the loss of a lock whose connection was killed unnoticed") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        support::interception network;
        advisory_client locks{
            network.wrap(db->source),
            unhurried<advisory_options>({.check_period = 1h, .keepalive_timeout = 3h})};
        const std::string name = fresh("job");
        auto one = locks.lock(name);
        network.break_connections();
        CHECK(one.held());
        CHECK(kind_of([&] { one.unlock(); }) == errc::lock_lost);
        CHECK_FALSE(one.held());
        CHECK(locks.try_lock_for(name, 20s));
    }
}

TEST_CASE("a lock that the server does not confirm is lost at the next check, others stay") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        // Another statement unlocks on the client's own connection, as an application's might.
        sql::connection* ours = nullptr;
        const auto exposed = sql::connection_source{db->source.speaks(),
                                                    [&](sql::deadline until) {
                                                        auto made = db->source.connect(until);
                                                        ours = made.get();
                                                        return made;
                                                    },
                                                    "exposed"};
        support::interception network;
        event_log log;
        advisory_client locks{
            network.wrap(exposed),
            unhurried<advisory_options>({.check_period = 200ms, .on_event = log.callback()})};
        const std::string name = fresh("job");
        const auto other = locks.lock(name + " other");
        const auto one = locks.lock(name);
        const auto key =
            db->is_postgresql()
                ? "select pg_advisory_unlock(" + std::to_string(advisory_number(name)) + ")"
                : "select release_lock('" + advisory_text(name, "rowlock") + "')";
        std::atomic<bool> once{true};
        network.before([&](std::string_view statement) {
            if (statement == "advisory_held" && once.exchange(false)) ours->query(key, soon());
        });
        check_lost_within(one, at_once);
        CHECK(other.held());
        CHECK(eventually(
            [&] { return log.has(event_kind::advisory_lost, loss_reason::forced_release); }));

        // unlock() detects the loss before any check.
        auto two = locks.lock(name);
        network.before([&](std::string_view statement) {
            if (statement == "advisory_unlock") ours->query(key, soon());
        });
        CHECK(kind_of([&] { two.unlock(); }) == errc::lock_lost);
        CHECK_FALSE(two.held());
        network.before({});
        CHECK(other.held());
        CHECK(locks.try_lock(name));
    }
}

// shows: advisory-locks
TEST_CASE(
    "on a silent network a lock is lost within check period and statement timeout, and the server "
    "frees it only afterwards") {
    const auto db = on_postgresql();
    if (!db) return;
    auto through = contract::address_of(support::server::postgresql);
    support::tcp_relay relay{through.port};
    through.host = "127.0.0.1";
    through.port = relay.port();
    const std::string name = fresh("job");
    advisory_client locks{
        rowlock::open(through.url()),
        {.check_period = 300ms, .statement_timeout = 3s, .keepalive_timeout = 9s}};
    advisory_client others{db->source, unhurried<advisory_options>()};
    CHECK(others.try_lock(name + " other"));  // connects
    const auto one = locks.lock(name);
    relay.fall_silent();
    check_lost_within(one, 9s);
    CHECK_FALSE(others.try_lock(name));  // the server does not know yet
    CHECK(others.try_lock_for(name, 60s));
}

TEST_CASE("on a silent network lost() of every lock fires in time, whichever was checked first") {
    const auto db = on_postgresql();
    if (!db) return;
    auto through = contract::address_of(support::server::postgresql);
    const auto port = through.port;
    through.host = "127.0.0.1";
    const auto latest = [&] {
        support::tcp_relay relay{port};
        through.port = relay.port();
        advisory_client locks{
            rowlock::open(through.url()),
            {.own_connection = true, .check_period = 2s, .statement_timeout = 3s}};
        const std::string name = fresh("job");
        std::vector<advisory_lock> held;
        for (int i = 0; i < 4; ++i) {
            held.push_back(locks.lock(name + std::to_string(i)));
            std::this_thread::sleep_for(460ms);  // so that their checks are due one after the other
        }
        std::vector<std::future<clock_type::duration>> lateness;
        relay.fall_silent();
        for (auto& each : held) {
            lateness.push_back(std::async(std::launch::async, [&each] {
                const auto signal = each.lost();
                while (each.held()) std::this_thread::sleep_for(2ms);
                const auto over = clock_type::now();
                eventually([&] { return signal.stop_requested(); });
                return clock_type::now() - over;
            }));
        }
        clock_type::duration most{0};
        for (auto& each : lateness) most = std::max(most, each.get());
        return most;
    };
    CHECK(support::at_best(700ms, latest) < 700ms);
}

// --- lost replies -------------------------------------------------------------------------------

TEST_CASE("a lock that was granted although its statement failed is kept") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        support::interception network;
        advisory_client locks{network.wrap(db->source), unhurried<advisory_options>()};
        advisory_client others{db->source, unhurried<advisory_options>()};
        // A try: the statement is executed, and reported as timed out.
        const std::string name = fresh("job");
        std::atomic<bool> once{true};
        network.after([&](std::string_view statement) {
            if (statement == "advisory_try" && once.exchange(false)) {
                throw error{errc::timed_out, "cancelled"};
            }
        });
        auto one = locks.try_lock(name);
        REQUIRE(one);
        CHECK_FALSE(others.try_lock(name));
        one->unlock();
        CHECK(others.try_lock(name));

        // A wait: the same at the end of a slice in which the lock was granted.
        auto held = others.try_lock(name);
        const auto holder = db->holder_of(name);
        const test_server looking{db->is_postgresql()
                                      ? *support::url_of(support::server::postgresql)
                                      : *support::url_of(support::server::mariadb)};
        once = true;
        network.after([&](std::string_view statement) {
            if (statement != "advisory_wait") return;
            const auto now = looking.holder_of(name);
            if (now != 0 && now != holder && once.exchange(false)) {
                throw error{errc::timed_out, "cancelled"};
            }
        });
        auto waiter = std::async(std::launch::async, [&] { return locks.try_lock_for(name, 20s); });
        REQUIRE(db->somebody_waits_for(name));
        held->unlock();
        held.reset();
        const auto two = waiter.get();
        REQUIRE(two);
        CHECK_FALSE(once);
        CHECK(two->held());
        CHECK_FALSE(others.try_lock(name));
    }
}

TEST_CASE("a wait that an administrator cancels has locked nothing and may be repeated") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        advisory_client locks{db->source, unhurried<advisory_options>()};
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        auto held = std::make_optional(others.lock(name));
        auto waiter = std::async(std::launch::async, [&] {
            try {
                static_cast<void>(locks.try_lock_for(name, support::patience));
            } catch (const error& failure) {
                CHECK(failure.retryable());
                return failure.kind();
            }
            return errc{};
        });
        REQUIRE(db->somebody_waits_for(name));
        // Between two slices no statement runs that could be cancelled.
        eventually([&] {
            const auto id = std::to_string(db->waiter_for(name));
            if (id != "0") {
                db->admin->query(db->is_postgresql() ? "select pg_cancel_backend(" + id + ")"
                                                     : "kill query " + id,
                                 soon());
            }
            return waiter.wait_for(20ms) == std::future_status::ready;
        });
        CHECK(waiter.get() == errc::timed_out);
        CHECK(held->held());
        held.reset();
        CHECK(others.try_lock(name));
        CHECK(locks.try_lock(name));
    }
}

TEST_CASE("a lock that may have been granted and cannot be checked is released later") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        support::interception network;
        advisory_client locks{
            network.wrap(db->source),
            unhurried<advisory_options>({.check_period = 1h, .keepalive_timeout = 3h})};
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        const auto kept = locks.lock(name + " kept");  // the connection cannot simply be closed
        std::atomic<int> failures{2};
        network.after([&](std::string_view statement) {
            if (statement != "advisory_try" && statement != "advisory_held") return;
            if (failures.fetch_sub(1) > 0) throw error{errc::timed_out, "cancelled"};
        });
        CHECK(kind_of([&] { static_cast<void>(locks.try_lock(name)); }) == errc::timed_out);
        CHECK(others.try_lock_for(name, 30s));
        CHECK(kept.held());
        CHECK(locks.try_lock_for(name, 30s));
    }
}

TEST_CASE("an unlock whose reply was lost is resolved at once, or later in the background") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        support::interception network;
        advisory_client locks{
            network.wrap(db->source),
            unhurried<advisory_options>({.check_period = 1h, .keepalive_timeout = 3h})};
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        const auto kept = locks.lock(name + " kept");
        auto one = locks.lock(name);
        std::atomic<bool> once{true};
        network.after([&](std::string_view statement) {
            if (statement == "advisory_unlock" && once.exchange(false)) {
                throw error{errc::timed_out, "cancelled"};
            }
        });
        one.unlock();  // the server confirms it when asked
        const auto next = others.try_lock(name);
        CHECK(next);
        // The server is unreachable: the client unlocks in the background.
        auto two = locks.lock(name + " two");
        std::atomic<int> failures{2};
        network.before([&](std::string_view statement) {
            if (statement != "advisory_unlock" && statement != "advisory_held") return;
            if (failures.fetch_sub(1) > 0) throw error{errc::timed_out, "cancelled"};
        });
        CHECK(kind_of([&] { two.unlock(); }) == errc::timed_out);
        CHECK_FALSE(two.held());
        CHECK(others.try_lock_for(name + " two", 30s));
        CHECK(kept.held());
    }
}

TEST_CASE("a connection that breaks while locking is replaced") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        support::interception network;
        advisory_client locks{network.wrap(db->source), unhurried<advisory_options>()};
        const std::string name = fresh("job");
        locks.lock(name).unlock();
        network.break_connections();
        CHECK(locks.try_lock_for(name, 20s));
        std::atomic<bool> once{true};
        network.after([&](std::string_view statement) {
            if (statement == "advisory_try" && once.exchange(false))
                support::interception::lose_reply();
        });
        // The client closes the lost session, which frees its locks.
        CHECK(locks.try_lock_for(name + " two", 20s));
    }
}

// --- waiting ------------------------------------------------------------------------------------

TEST_CASE("a stop ends a wait in the server's queue and in the process's queue") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        advisory_client locks{db->source, unhurried<advisory_options>()};
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        const auto held = others.lock(name);
        std::stop_source stop;
        const auto wait = [&] {
            return locks.try_lock_for(name, support::patience, stop.get_token()).has_value();
        };
        auto first = std::async(std::launch::async, wait);
        REQUIRE(db->somebody_waits_for(name));
        auto second = std::async(std::launch::async, wait);
        std::this_thread::sleep_for(50ms);
        const auto start = clock_type::now();
        stop.request_stop();
        CHECK_FALSE(first.get());
        CHECK_FALSE(second.get());
        CHECK(clock_type::now() - start < at_once);
        CHECK(held.held());
    }
}

TEST_CASE("other threads can use the shared connection while one waits") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        advisory_client locks{db->source, unhurried<advisory_options>({.wait_slice = 30s})};
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        auto held = std::make_optional(others.lock(name));
        auto waiter = std::async(std::launch::async, [&] { return locks.try_lock_for(name, 60s); });
        REQUIRE(db->somebody_waits_for(name));
        const auto start = clock_type::now();
        for (int i = 0; i < 20; ++i) CHECK(locks.try_lock(name + std::to_string(i)));
        CHECK_FALSE(locks.try_lock(name));
        CHECK(clock_type::now() - start < at_once);
        held.reset();
        CHECK(waiter.get());
    }
}

TEST_CASE("a waiter without its own connection polls on the shared one") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        advisory_client locks{db->source, unhurried<advisory_options>({.max_connections = 1})};
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        auto held = std::make_optional(others.lock(name));
        CHECK_FALSE(locks.try_lock_for(name, 200ms));
        auto waiter = std::async(std::launch::async, [&] { return locks.try_lock_for(name, 20s); });
        std::this_thread::sleep_for(100ms);
        held.reset();
        CHECK(waiter.get());
        CHECK(locks.connections() == 1);
    }
}

TEST_CASE("each lock may have its own connection, up to a limit") {
    on_both_at_once([](const test_server& db) {
        advisory_client locks{db.source,
                              {.own_connection = true,
                               .max_connections = 2,
                               .check_period = 100ms,
                               .statement_timeout = 3s}};
        const std::string name = fresh("job");
        auto one = locks.lock(name + "1");
        const auto two = locks.lock(name + "2");
        CHECK(locks.connections() == 2);
        CHECK(db.holder_of(name + "1") != db.holder_of(name + "2"));
        CHECK(kind_of([&] { static_cast<void>(locks.try_lock(name + "3")); }) == errc::timed_out);
        db.kill(db.holder_of(name + "1"));
        check_lost_within(one, at_once);
        CHECK(two.held());
        one = locks.lock(name + "3");
        CHECK(one.held());
        CHECK(locks.connections() == 2);
    });
}

TEST_CASE("threads are served in the order of their arrival") {
    const auto db = on_postgresql();
    if (!db) return;
    advisory_client locks{db->source, unhurried<advisory_options>()};
    const std::string name = fresh("job");
    const auto out_of_order = [&] {
        auto held = std::make_optional(locks.lock(name));
        std::mutex mutex;
        std::vector<int> order;
        std::vector<std::future<void>> all;
        for (int i = 0; i < 8; ++i) {
            all.push_back(std::async(std::launch::async, [&, i] {
                const auto mine = locks.lock(name);
                const std::lock_guard lock{mutex};
                order.push_back(i);
            }));
            std::this_thread::sleep_for(30ms);  // into the queue
        }
        held.reset();
        for (auto& each : all) each.get();
        REQUIRE(order.size() == all.size());
        int misplaced = 0;
        for (int i = 0; i < 8; ++i) misplaced += order[static_cast<std::size_t>(i)] == i ? 0 : 1;
        return misplaced;
    };
    // A thread that is stopped on its way comes late.
    CHECK(support::at_best(1, out_of_order) == 0);
}

TEST_CASE("readers of one process do not overtake a waiting writer of another") {
    const auto db = on_postgresql();
    if (!db) return;
    advisory_client readers{db->source, unhurried<advisory_options>()};
    advisory_client writers{db->source, unhurried<advisory_options>({.wait_slice = 10s})};
    const std::string name = fresh("table");
    auto one = std::make_optional(readers.lock_shared(name));
    auto two = readers.try_lock_shared(name);
    REQUIRE(two);
    CHECK(readers.connections() == 1);
    auto writer = std::async(std::launch::async, [&] { return writers.try_lock_for(name, 20s); });
    REQUIRE(db->somebody_waits_for(name));
    CHECK_FALSE(readers.try_lock_shared(name));
    auto late = std::async(std::launch::async, [&] { return readers.lock_shared(name); });
    one.reset();
    CHECK(two->held());
    two.reset();
    auto written = writer.get();
    REQUIRE(written);
    CHECK(written->held());
    written.reset();
    CHECK(late.get().held());
}

TEST_CASE("readers join again once the writer of another process has stopped waiting") {
    const auto db = on_postgresql();
    if (!db) return;
    advisory_client readers{db->source, unhurried<advisory_options>()};
    advisory_client writers{db->source, unhurried<advisory_options>({.wait_slice = 5s})};
    const std::string name = fresh("table");
    const auto one = readers.lock_shared(name);
    std::stop_source stop;
    auto writer = std::async(std::launch::async, [&] {
        return writers.try_lock_for(name, 2s, stop.get_token()).has_value();
    });
    REQUIRE(db->somebody_waits_for(name));
    CHECK_FALSE(readers.try_lock_shared(name));
    auto reader =
        std::async(std::launch::async, [&] { return readers.try_lock_shared_for(name, 20s); });
    CHECK_FALSE(writer.get());
    CHECK(one.held());
    CHECK(reader.get());
    CHECK(readers.try_lock_shared(name));
}

TEST_CASE(
    "transactions that wait for each other both go on, however early the server checks for "
    "deadlocks") {
    const auto db = on_postgresql();
    if (!db) return;
    const std::string one = fresh("job");
    const std::string two = fresh("job");
    const auto a = db->source.connect(soon());
    const auto b = db->source.connect(soon());
    for (auto* each : {a.get(), b.get()}) {
        each->query("set deadlock_timeout = '20ms'", soon());
        each->query("begin", soon());
    }
    REQUIRE(try_transaction_lock(*a, one));
    REQUIRE(try_transaction_lock(*b, two));
    auto crossing = std::async(std::launch::async, [&] { return transaction_lock(*a, two, 1s); });
    CHECK_FALSE(transaction_lock(*b, one, 1s));
    CHECK_FALSE(crossing.get());
    for (auto* each : {a.get(), b.get()}) {
        CHECK(each->query("select 1", soon()).integer(0, 0) == 1);
        CHECK(each->query("show lock_timeout", soon()).text(0, 0) == "0");
        each->query("commit", soon());
    }
}

TEST_CASE("a slice of a wait may be longer than the time for which a lock is trusted") {
    on_both_at_once([](const test_server& db) {
        advisory_client locks{db.source,
                              {.check_period = 200ms,
                               .statement_timeout = 3s,
                               .wait_slice = 40s,
                               .retry = {.attempts = 1}}};
        advisory_client others{db.source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        auto held = std::make_optional(others.lock(name));
        auto waiter = std::async(std::launch::async, [&] { return locks.try_lock_for(name, 40s); });
        REQUIRE(db.somebody_waits_for(name));
        std::this_thread::sleep_for(3500ms);  // longer than the lock is trusted
        CHECK(db.somebody_waits_for(name));
        held.reset();
        const auto start = clock_type::now();
        const auto got = waiter.get();
        REQUIRE(got);
        CHECK(clock_type::now() - start < at_once);  // the first grant was kept
        CHECK(got->held());
        std::this_thread::sleep_for(600ms);
        CHECK(got->held());
    });
}

TEST_CASE("CREATE INDEX CONCURRENTLY succeeds while a client waits for a lock") {
    const auto db = on_postgresql();
    if (!db) return;
    const std::string table = "advisory_index_" + std::to_string(getpid());
    db->admin->query("create table " + table + " (n int)", soon());
    const std::string name = fresh("migration");
    // As a migration does, create an index under the lock on another connection.
    advisory_client locks{db->source, unhurried<advisory_options>()};
    advisory_client others{db->source, unhurried<advisory_options>()};
    const auto held = locks.lock(name);
    std::stop_source stop;
    auto waiter = std::async(std::launch::async, [&] {
        return others.try_lock_for(name, 3min, stop.get_token()).has_value();
    });
    REQUIRE(db->somebody_waits_for(name));
    // The statement also waits for transactions of other programs.
    db->admin->query("set statement_timeout = '90s'", soon());
    db->admin->query("create index concurrently on " + table + " (n)", clock_type::now() + 100s);
    stop.request_stop();
    CHECK_FALSE(waiter.get());

    // Control: one long wait prevents it from ending.
    auto plain = db->source.connect(soon());
    auto waits = std::async(std::launch::async, [&] {
        return plain->query(
            "select pg_advisory_lock(" + std::to_string(advisory_number(name)) + ")", soon());
    });
    REQUIRE(db->somebody_waits_for(name));
    const auto other = db->source.connect(soon());
    other->query("set statement_timeout = '1s'", soon());
    CHECK(kind_of([&] {
              other->query("create index concurrently on " + table + " (n)", soon());
          }) == errc::timed_out);
    db->admin->query("select pg_cancel_backend(" + std::to_string(db->waiter_for(name)) + ")",
                     soon());
    CHECK_THROWS_AS(waits.get(), error);
    db->admin->query("drop table " + table, soon());
}

// --- ends ---------------------------------------------------------------------------------------

TEST_CASE("the end of an advisory_client ends the waits of other threads") {
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        advisory_client others{db->source, unhurried<advisory_options>()};
        const std::string name = fresh("job");
        const auto held = others.lock(name);
        auto locks = std::make_unique<advisory_client>(db->source, unhurried<advisory_options>());
        std::atomic<int> calls{0};
        const auto wait = [&](advisory_client* in) {
            ++calls;
            return kind_of([&] { static_cast<void>(in->try_lock_for(name, support::patience)); });
        };
        auto first = std::async(std::launch::async, wait, locks.get());
        REQUIRE(db->somebody_waits_for(name));
        auto second = std::async(std::launch::async, wait, locks.get());
        REQUIRE(eventually([&] { return calls == 2; }));
        std::this_thread::sleep_for(50ms);
        const auto start = clock_type::now();
        locks.reset();
        CHECK(first.get() == errc::lock_lost);
        CHECK(second.get() == errc::lock_lost);
        CHECK(clock_type::now() - start < at_once);
        CHECK(held.held());
    }
}

TEST_CASE("a forked child does not share its parent's locks") {
    constexpr int seems_held = 1;  // bits of the child's exit status
    constexpr int unlocks = 2;
    constexpr int takes_another = 4;
    for (const auto& db : {on_postgresql(), on_mariadb()}) {
        if (!db) continue;
        const std::string name = fresh("job");
        auto locks = std::make_unique<advisory_client>(db->source, unhurried<advisory_options>());
        advisory_client others{db->source, unhurried<advisory_options>()};
        auto held = locks->try_lock(name);
        REQUIRE(held);
        CHECK(support::exit_of_child([&] {
                  int wrong = held->held() ? seems_held : 0;
                  if (kind_of([&] { held->unlock(); }) != errc::wrong_process) wrong |= unlocks;
                  if (kind_of([&] { static_cast<void>(locks->try_lock("other")); }) !=
                      errc::wrong_process) {
                      wrong |= takes_another;
                  }
                  held.reset();
                  locks.reset();
                  return wrong;
              }) == 0);
        CHECK(held->held());
        CHECK_FALSE(others.try_lock(name));
        held->unlock();
        CHECK(others.try_lock(name));
    }
}

// --- what is refused ----------------------------------------------------------------------------

// shows: advisory-locks
TEST_CASE("control: behind a transaction pooler two clients get one session-level lock") {
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    const auto source = rowlock::open(pooler->url() + "?rowlock_pooler=transaction");
    const auto a = source.connect(soon());
    const auto b = source.connect(soon());
    const auto name = fresh("job");
    const std::string take =
        "select pg_try_advisory_lock(" + std::to_string(advisory_number(name)) + ")::int";
    CHECK(a->query(take, soon()).integer(0, 0) == 1);
    CHECK(b->query(take, soon()).integer(0, 0) == 1);
}

// shows: advisory-locks
TEST_CASE("advisory locks are refused behind a transaction pooler, declared or not") {
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    for (const char* declared : {"", "?rowlock_pooler=transaction"}) {
        CAPTURE(declared);
        advisory_client locks{rowlock::open(pooler->url() + declared),
                              unhurried<advisory_options>()};
        CHECK(kind_of([&] { static_cast<void>(locks.try_lock("job")); }) == errc::unsupported);
        CHECK(kind_of([&] { static_cast<void>(locks.try_lock_for("job", 1s)); }) ==
              errc::unsupported);
        CHECK(locks.connections() == 0);
    }
}

TEST_CASE("the statement that locks detects a changed server process") {
    const auto db = on_postgresql();
    if (!db) return;
    // A pooler that passes every initial check, and uses another connection from then on.
    class changing final : public forwarding {
    public:
        changing(std::unique_ptr<sql::connection> first, std::unique_ptr<sql::connection> second)
            : forwarding{std::move(first)}, second_{std::move(second)} {}
        sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                            sql::deadline until) override {
            const bool setting_up = what.text().find("advisory_setup") != std::string::npos;
            return (setting_up ? inner() : *second_).execute(what, parameters, until);
        }

    private:
        std::unique_ptr<sql::connection> second_;
    };
    const auto source = sql::connection_source{
        sql::dialect::postgresql,
        [&](sql::deadline until) {
            return std::make_unique<changing>(db->source.connect(until), db->source.connect(until));
        },
        "changing"};
    advisory_client locks{source, unhurried<advisory_options>()};
    const std::string name = fresh("job");
    CHECK(kind_of([&] { static_cast<void>(locks.try_lock(name)); }) == errc::unsupported);
    CHECK(eventually([&] { return db->holder_of(name) == 0; }));
}

/// Runs concurrent transactions, which leave that many idle server processes in the pool.
void warm(const sql::connection_source& pool, int processes) {
    std::vector<std::unique_ptr<sql::connection>> all;
    for (int i = 0; i < processes; ++i) {
        all.push_back(pool.connect(soon()));
        all.back()->query("begin", soon());
    }
    for (const auto& each : all) each->query("rollback", soon());
}

TEST_CASE("a pooler that alternates its processes is refused, and no lock is left behind") {
    const auto db = on_postgresql();
    if (!db) return;
    for (const int processes : {1, 2, 3, 5}) {
        CAPTURE(processes);
        const auto pooler =
            pgbouncer::start(pgbouncer::pool_mode::transaction, "server_round_robin = 1");
        if (!pooler) return;
        const auto source = rowlock::open(pooler->url());
        warm(source, processes);
        const std::string name = fresh("job");
        advisory_client locks{source, unhurried<advisory_options>()};
        for (int i = 0; i < 3; ++i) {
            CHECK(kind_of([&] { static_cast<void>(locks.try_lock(name)); }) == errc::unsupported);
            CHECK(kind_of([&] { static_cast<void>(locks.try_lock_for(name, 1s)); }) ==
                  errc::unsupported);
        }
        CHECK(db->holder_of(name) == 0);
    }
}

/// A connection through a pooler that other clients use exactly while the client checks for one, so
/// that each check finds the process that fits.
class among_others final : public forwarding {
public:
    among_others(std::unique_ptr<sql::connection> inner, sql::connection_source pool)
        : forwarding{std::move(inner)}, pool_{std::move(pool)} {}
    sql::result query(std::string_view text, sql::deadline until) override {
        if (text != "begin" && text != "rollback") return forwarding::query(text, until);
        // Occupies the process that was freed last, so that the statement runs on the next one.
        const auto other = pool_.connect(until);
        other->query("begin", until);
        auto answer = forwarding::query(text, until);
        other->query("rollback", until);
        return answer;
    }

private:
    sql::connection_source pool_;
};

// shows: advisory-locks
TEST_CASE("behind a transaction pooler mistaken for a session pooler no lock is granted twice") {
    const auto db = on_postgresql();
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction);
    if (!pooler || !db) return;
    const auto pool = rowlock::open(pooler->url());
    warm(pool, 2);
    const auto source =
        sql::connection_source{sql::dialect::postgresql,
                               [&](sql::deadline until) {
                                   return std::make_unique<among_others>(pool.connect(until), pool);
                               },
                               "among others"};
    {
        auto look = source.connect(soon());
        REQUIRE(sql::pooling_of(*look, source, soon()) == sql::pooling::session);
    }
    const std::string name = fresh("job");
    const auto take = [](advisory_client& by,
                         const std::string& what) -> std::optional<advisory_lock> {
        try {
            return by.try_lock(what);
        } catch (const error& failure) {
            CHECK(failure.kind() == errc::unsupported);
            return std::nullopt;
        }
    };
    for (const bool connected_first : {false, true}) {
        CAPTURE(connected_first);
        advisory_client a{source, unhurried<advisory_options>()};
        advisory_client b{source, unhurried<advisory_options>()};
        if (connected_first) {
            take(a, name + " a");
            take(b, name + " b");
        }
        const auto first = take(a, name);
        const auto second = take(b, name);
        CHECK_FALSE((first && second));
    }
}

TEST_CASE("a connection whose process holds advisory locks already is refused") {
    const auto db = on_postgresql();
    if (!db) return;
    const std::string name = fresh("job");
    const auto used =
        sql::connection_source{sql::dialect::postgresql,
                               [&](sql::deadline until) {
                                   auto made = db->source.connect(until);
                                   made->query("select pg_try_advisory_lock_shared(" +
                                                   std::to_string(advisory_number(name)) + ")",
                                               until);
                                   return made;
                               },
                               "used before"};
    advisory_client locks{used, unhurried<advisory_options>()};
    CHECK(kind_of([&] { static_cast<void>(locks.try_lock(name)); }) == errc::unsupported);
    CHECK(eventually([&] { return db->holder_of(name) == 0; }));
}

// shows: fenced-transactions
TEST_CASE("a lease is fenced in a transaction through a transaction pooler") {
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto source = database.at(pooler->url() + "?rowlock_pooler=transaction");
    warm(source, 3);
    client a{source, database.options()};
    client b{source, database.options()};
    auto held = a.try_acquire("job");
    REQUIRE(held);
    const auto settings = [](sql::connection& on) {
        return std::string{on.query("select current_setting('idle_in_transaction_session_timeout') "
                                    "|| ' ' || current_setting('lock_timeout') || ' ' || "
                                    "current_setting('statement_timeout')",
                                    soon())
                               .text(0, 0)};
    };
    const auto app = source.connect(soon());
    const std::string before = settings(*app);
    app->query("begin", soon());
    fence(*app, *held);
    // A forced release waits for the commit of the fenced transaction.
    auto breaker = std::async(std::launch::async, [&] { return b.force_release("job"); });
    CHECK(support::somebody_waits_for_a_row(database));
    CHECK(breaker.wait_for(0s) == std::future_status::timeout);
    CHECK(held->held());
    app->query("commit", soon());
    CHECK(breaker.get());
    // No process of the pool keeps what the fence set for its transaction.
    for (int i = 0; i < 6; ++i) CHECK(settings(*app) == before);

    auto next = b.try_acquire_for("job", 10s);
    REQUIRE(next);
    app->query("begin", soon());
    CHECK(kind_of([&] { fence(*app, *held); }) == errc::lock_lost);
    app->query("rollback", soon());
    app->query("begin", soon());
    release_on_commit(*app, *next);
    app->query("commit", soon());
    CHECK(a.try_acquire_for("job", 10s));
}

// shows: advisory-locks
TEST_CASE("advisory locks work behind a session pooler") {
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::session);
    const auto db = on_postgresql();
    if (!pooler || !db) return;
    advisory_client a{rowlock::open(pooler->url()),
                      unhurried<advisory_options>({.check_period = 1h, .keepalive_timeout = 3h})};
    advisory_client b{rowlock::open(pooler->url()), unhurried<advisory_options>()};
    const std::string name = fresh("job");
    auto held = a.try_lock(name);
    REQUIRE(held);
    CHECK_FALSE(b.try_lock(name));
    db->kill(db->holder_of(name));
    check_lost_within(*held, at_once);
    CHECK(b.try_lock_for(name, 10s));
}

// shows: advisory-locks
TEST_CASE("a transaction's lock works behind a transaction pooler") {
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    const auto source = rowlock::open(pooler->url() + "?rowlock_pooler=transaction");
    const auto a = source.connect(soon());
    const auto b = source.connect(soon());
    const std::string name = fresh("job");
    a->query("begin", soon());
    b->query("begin", soon());
    CHECK(try_transaction_lock(*a, name));
    CHECK_FALSE(try_transaction_lock(*b, name));
    CHECK_FALSE(transaction_lock(*b, name, 100ms));
    a->query("commit", soon());
    CHECK(transaction_lock(*b, name, 10s));
    b->query("rollback", soon());
}

TEST_CASE("a lease is acquired, contended and released through a transaction pooler") {
    const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction);
    if (!pooler) return;
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto source = database.at(pooler->url() + "?rowlock_pooler=transaction");
    client a{source, database.options({.ttl = 30s, .heartbeat = 300ms})};
    client b{source, database.options({.ttl = 30s, .heartbeat = 300ms})};
    auto first = a.try_acquire("job");
    REQUIRE(first);
    CHECK_FALSE(b.try_acquire("job"));
    CHECK_FALSE(b.try_acquire_for("job", 700ms));
    for (const auto* each : {&a, &b}) {
        const auto before = each->stats().heartbeats;
        CHECK(eventually([&] { return each->stats().heartbeats >= before + 2; }));
        CHECK(each->stats().sessions == 1);
    }
    CHECK(first->held());
    auto waiter = std::async(std::launch::async, [&] { return b.try_acquire_for("job", 20s); });
    first->release();
    const auto second = waiter.get();
    REQUIRE(second);
    CHECK(second->token() > first->token());
    CHECK(b.force_release("job"));
    CHECK(eventually([&] { return !second->held(); }));
}

// shows: advisory-locks
TEST_CASE("a standby is refused: it would grant what its primary grants as well") {
    const auto replica = support::standby::start();
    const auto db = on_postgresql();
    if (!replica || !db) return;
    const std::string name = fresh("job");
    advisory_client primary{db->source, unhurried<advisory_options>()};
    const auto held = primary.lock(name);
    const auto source = rowlock::open(replica->url());
    // Control: the standby itself grants the lock.
    const auto plain = source.connect(soon());
    const std::string take =
        "select pg_try_advisory_lock(" + std::to_string(advisory_number(name)) + ")::int";
    CHECK(plain->query(take, soon()).integer(0, 0) == 1);
    plain->query("select pg_advisory_unlock_all()", soon());

    advisory_client locks{source, unhurried<advisory_options>()};
    CHECK(kind_of([&] { static_cast<void>(locks.try_lock(name)); }) == errc::read_only);
    CHECK(kind_of([&] { static_cast<void>(locks.try_lock_for(name, 1s)); }) == errc::read_only);
    plain->query("begin", soon());
    CHECK(kind_of([&] { static_cast<void>(try_transaction_lock(*plain, name)); }) ==
          errc::read_only);
    CHECK(kind_of([&] { static_cast<void>(transaction_lock(*plain, name, 1s)); }) ==
          errc::read_only);
    plain->query("rollback", soon());

    replica->promote();
    CHECK(locks.try_lock(name));  // on the same connection
}

TEST_CASE("a node of a Galera cluster is refused") {
    const auto db = on_mariadb();
    if (!db) return;
    const auto source =
        sql::connection_source{sql::dialect::mysql,
                               [&](sql::deadline until) {
                                   return std::make_unique<galera_node>(db->source.connect(until));
                               },
                               "galera"};
    advisory_client locks{source, unhurried<advisory_options>()};
    CHECK(kind_of([&] { static_cast<void>(locks.try_lock("job")); }) == errc::unsupported);
}

// --- interoperation -----------------------------------------------------------------------------

TEST_CASE("SQL computes the same keys, as docs/advisory-keys.md says") {
    if (const auto db = on_postgresql()) {
        CHECK(db->number("select ('x' || substr(encode(sha256(convert_to('rowlock' || chr(10) || "
                         "'größe ☾', 'UTF8')), 'hex'), 1, 16))::bit(64)::bigint") ==
              advisory_number("größe ☾"));
        // Another program locks the name by it.
        advisory_client locks{db->source, unhurried<advisory_options>()};
        const auto held = locks.lock("größe ☾");
        CHECK(db->number("select pg_try_advisory_lock(('x' || substr(encode(sha256(convert_to("
                         "'rowlock' || chr(10) || 'größe ☾', 'UTF8')), 'hex'), 1, "
                         "16))::bit(64)::bigint)::int") == 0);
    }
    if (const auto db = on_mariadb()) {
        const std::string text =
            "select concat('rowlock_', group_concat(substr('abcdefghijklmnopqrstuvwxyz234567', 1 + "
            "(conv(substr(h, 5 * i div 4 + 1, 3), 16, 10) >> (7 - 5 * i mod 4) & 31), 1) order by "
            "i separator '')) from (select sha2(concat('rowlock', char(10), database(), char(10), "
            "'größe ☾'), 256) as h) as hashed, (with recursive n (i) as (select 0 union all select "
            "i + 1 from n where i < 39) select i from n) as positions";
        CHECK(db->admin->query(text, soon()).text(0, 0) == advisory_text("größe ☾", "rowlock"));
    }
}

// shows: advisory-locks
TEST_CASE("control: above READ COMMITTED a transaction's lock does not prevent stale reads") {
    const auto db = on_postgresql();
    if (!db) return;
    const std::string table = "advisory_stale_" + std::to_string(getpid());
    const std::string name = fresh("stock");
    db->admin->query("create table " + table + " (n int)", soon());
    db->admin->query("insert into " + table + " values (1)", soon());
    for (const char* level : {"read committed", "repeatable read"}) {
        db->admin->query("update " + table + " set n = 1", soon());
        advisory_client others{db->source, unhurried<advisory_options>()};
        auto held = others.try_lock(name);
        const auto reader = db->source.connect(soon());
        reader->query(std::string{"begin isolation level "} + level, soon());
        auto waiting = std::async(std::launch::async, [&] {
            return transaction_lock(*reader, name, 20s, advisory_mode::exclusive,
                                    {.any_isolation = true});
        });
        REQUIRE(db->somebody_waits_for(name));
        db->admin->query("update " + table + " set n = 2", soon());
        held.reset();
        REQUIRE(waiting.get());
        const bool stale = reader->query("select n from " + table, soon()).integer(0, 0) == 1;
        CHECK(stale == (std::string_view{level} == "repeatable read"));
        reader->query("rollback", soon());
    }
    db->admin->query("drop table " + table, soon());
}

TEST_CASE("options that contradict each other are refused") {
    const auto source = sql::connection_source{
        sql::dialect::postgresql, [](sql::deadline) { return std::unique_ptr<sql::connection>{}; },
        "nowhere"};
    const auto kind = [&](advisory_options options) {
        return kind_of([&] { advisory_client{source, std::move(options)}; });
    };
    CHECK(kind({}) == errc{});
    CHECK(kind({.domain = ""}) == errc::invalid_options);
    CHECK(kind({.domain = "a\nb"}) == errc::invalid_options);
    CHECK(kind({.max_connections = 0}) == errc::invalid_options);
    CHECK(kind({.check_period = 0s}) == errc::invalid_options);
    CHECK(kind({.statement_timeout = 2min}) == errc::invalid_options);
    CHECK(kind({.wait_slice = 0ms}) == errc::invalid_options);
    CHECK(kind({.keepalive_timeout = 14s}) == errc::invalid_options);
    CHECK(kind({.keepalive_timeout = 0s}) == errc{});
}

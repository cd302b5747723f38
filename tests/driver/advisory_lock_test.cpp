// Advisory locks on every database through every driver: they work, or refuse as documented.

#include "driver/driver_fixtures.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/unhurried.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::soon;
using support::unhurried;

namespace {

/// A new name for each case, since all programs share the server's locks.
std::string fresh(const std::string& name) {
    static std::atomic<int> count{0};
    return name + " " + std::to_string(getpid()) + " " + std::to_string(++count);
}

template <typename Fixture>
constexpr bool is_postgresql = Fixture::speaks == sql::dialect::postgresql;

}  // namespace

// shows: advisory-locks
TEST_CASE_TEMPLATE_DEFINE("only one of two programs at a time locks a name", F, exclusion) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if (F::speaks == sql::dialect::sqlite) {
        CHECK(kind_of([] { advisory_client{F::source()}; }) == errc::unsupported);
        return;
    }
    const std::string name = fresh("job");
    advisory_client a{F::source(), unhurried<advisory_options>()};
    advisory_client b{F::source(), unhurried<advisory_options>()};
    auto held = a.try_lock(name);
    REQUIRE(held);
    CHECK(held->held());
    CHECK(held->name() == name);
    CHECK_FALSE(held->lost().stop_requested());
    CHECK_FALSE(b.try_lock(name));
    CHECK_FALSE(b.try_lock_for(name, 50ms));
    CHECK(b.try_lock(name + " other"));

    held->unlock();
    CHECK_FALSE(held->held());
    held->unlock();  // does nothing
    auto next = b.try_lock(name);
    REQUIRE(next);
    CHECK_FALSE(a.try_lock(name));
    next.reset();
    CHECK(a.try_lock(name));
}

TEST_CASE_TEMPLATE_DEFINE("a waiter is given the lock when it is unlocked", F, hand_over) {
    if (!F::available() || F::speaks == sql::dialect::sqlite) return;
    CAPTURE(F::name);
    const std::string name = fresh("job");
    advisory_client a{F::source(), unhurried<advisory_options>()};
    advisory_client b{F::source(), unhurried<advisory_options>()};
    auto held = std::make_optional(a.lock(name));
    auto waiter = std::async(std::launch::async, [&] { return b.try_lock_for(name, 20s); });
    REQUIRE(eventually([&] { return b.connections() == 2; }));
    held.reset();
    const auto got = waiter.get();
    REQUIRE(got);
    CHECK(got->held());
    CHECK_FALSE(a.try_lock(name));
}

// shows: advisory-locks
TEST_CASE_TEMPLATE_DEFINE("threads of one process exclude each other on one connection", F,
                          threads) {
    if (!F::available() || F::speaks == sql::dialect::sqlite) return;
    CAPTURE(F::name);
    const std::string name = fresh("counter");
    advisory_client locks{F::source(), unhurried<advisory_options>()};
    {
        const auto held = locks.lock(name);
        CHECK_FALSE(locks.try_lock(name));  // this thread, too
        const auto try_it = [&] { return locks.try_lock_for(name, 20ms).has_value(); };
        CHECK_FALSE(std::async(std::launch::async, try_it).get());
    }
    int inside = 0;
    int most = 0;
    int rounds = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < 4; ++i) {
        all.emplace_back([&] {
            for (int round = 0; round < 10; ++round) {
                const auto held = locks.lock(name);
                most = std::max(most, ++inside);  // protected by the lock alone
                ++rounds;
                --inside;
            }
        });
    }
    for (auto& each : all) each.join();
    CHECK(most == 1);
    CHECK(rounds == 40);
    CHECK(locks.connections() == 1);
}

TEST_CASE_TEMPLATE_DEFINE("many locks share one connection", F, sharing) {
    if (!F::available() || F::speaks == sql::dialect::sqlite) return;
    CAPTURE(F::name);
    advisory_client locks{F::source(), unhurried<advisory_options>()};
    advisory_client other{F::source(), unhurried<advisory_options>()};
    const std::string name = fresh("job");
    std::vector<advisory_lock> held;
    for (int i = 0; i < 20; ++i) held.push_back(locks.lock(name + std::to_string(i)));
    CHECK(locks.connections() == 1);
    for (int i = 0; i < 20; ++i) CHECK_FALSE(other.try_lock(name + std::to_string(i)));
    held.erase(held.begin() + 7);
    CHECK(other.try_lock(name + "7"));
    CHECK_FALSE(other.try_lock(name + "8"));
}

TEST_CASE_TEMPLATE_DEFINE("the end of the advisory_client unlocks what it held", F, ending) {
    if (!F::available() || F::speaks == sql::dialect::sqlite) return;
    CAPTURE(F::name);
    const std::string name = fresh("job");
    advisory_client other{F::source(), unhurried<advisory_options>()};
    CHECK(other.try_lock(name));
    std::optional<advisory_lock> orphan;
    std::stop_token lost;
    {
        advisory_client locks{F::source(), unhurried<advisory_options>()};
        orphan = locks.try_lock(name);
        REQUIRE(orphan);
        lost = orphan->lost();
    }
    CHECK(other.try_lock(name));  // at once
    CHECK_FALSE(orphan->held());
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(kind_of([&] { orphan->unlock(); }) == errc::lock_lost);
}

TEST_CASE_TEMPLATE_DEFINE("shared locks and explicit keys, where the database has them", F, kinds) {
    if (!F::available() || F::speaks == sql::dialect::sqlite) return;
    CAPTURE(F::name);
    advisory_client a{F::source(), unhurried<advisory_options>()};
    advisory_client b{F::source(), unhurried<advisory_options>()};
    const std::string name = fresh("job");
    const auto number = static_cast<std::int32_t>(std::hash<std::string>{}(name)&0x7fffffff);
    if constexpr (is_postgresql<F>) {
        {
            const auto one = a.try_lock_shared(name);
            const auto two = a.try_lock_shared(name);
            const auto three = b.try_lock_shared(name);
            CHECK(one);
            CHECK(two);
            CHECK(three);
            CHECK_FALSE(a.try_lock(name));
            CHECK_FALSE(b.try_lock(name));
        }
        {
            const auto one = a.try_lock(name);
            CHECK_FALSE(a.try_lock_shared(name));
            CHECK_FALSE(b.try_lock_shared(name));
        }
        for (const auto& key :
             {advisory_key::number(number), advisory_key::number(-number),
              advisory_key::pair(0, number), advisory_key::pair(-number, -1),
              advisory_key::number(std::numeric_limits<std::int64_t>::min() + number)}) {
            CAPTURE(key.str());
            const auto held = a.try_lock(key);
            REQUIRE(held);
            CHECK_FALSE(b.try_lock(key));
            CHECK_FALSE(b.try_lock_for(key, 30ms));
        }
        // Two key spaces.
        const auto held = a.try_lock(advisory_key::number(number));
        CHECK(b.try_lock(advisory_key::pair(0, number)));
        CHECK(kind_of([&] { static_cast<void>(a.try_lock(advisory_key::verbatim("job"))); }) ==
              errc::unsupported);
    } else {
        CHECK(kind_of([&] { static_cast<void>(a.try_lock_shared(name)); }) == errc::unsupported);
        CHECK(kind_of([&] { static_cast<void>(a.try_lock(advisory_key::number(1))); }) ==
              errc::unsupported);
        const auto held = a.try_lock(advisory_key::verbatim("Verbatim " + name));
        REQUIRE(held);
        CHECK_FALSE(b.try_lock(advisory_key::verbatim("Verbatim " + name)));
        CHECK_FALSE(a.try_lock(advisory_key::verbatim("VERBATIM " + name)));
    }
}

// shows: advisory-locks
TEST_CASE_TEMPLATE_DEFINE("a transaction's lock ends with it, on the caller's own handle", F,
                          transaction) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const auto handle = F::borrow();
    const auto db = handle->ref();
    const std::string name = fresh("job");
    if constexpr (!is_postgresql<F>) {
        db->query("begin", soon());
        CHECK(kind_of([&] { static_cast<void>(try_transaction_lock(*db, name)); }) ==
              errc::unsupported);
        CHECK(kind_of([&] { static_cast<void>(transaction_lock(*db, name, 1s)); }) ==
              errc::unsupported);
        db->query("rollback", soon());
    } else {
        advisory_client others{F::source(), unhurried<advisory_options>()};
        CHECK(kind_of([&] { static_cast<void>(try_transaction_lock(*db, name)); }) ==
              errc::invalid_options);
        CHECK(others.try_lock(name));
        for (const char* end : {"commit", "rollback"}) {
            handle->run("begin");
            CHECK(try_transaction_lock(*db, name));
            CHECK(try_transaction_lock(*db, name));  // re-entrant
            CHECK_FALSE(others.try_lock(name));
            handle->run(end);
            CHECK(others.try_lock(name));
        }
        {
            handle->run("begin");
            CHECK(try_transaction_lock(*db, name, advisory_mode::shared));
            CHECK(others.try_lock_shared(name));
            CHECK_FALSE(others.try_lock(name));
            handle->run("commit");
        }
    }
}

TEST_CASE_TEMPLATE_DEFINE("a wait without a grant leaves the caller's transaction unchanged", F,
                          in_vain) {
    if (!F::available() || !is_postgresql<F>) return;
    CAPTURE(F::name);
    const auto handle = F::borrow();
    const auto db = handle->ref();
    const std::string name = fresh("job");
    advisory_client others{F::source(), unhurried<advisory_options>()};
    auto held = others.try_lock(name);
    handle->run("set lock_timeout = '17s'");
    handle->run("begin");
    handle->run("set local lock_timeout = '13s'");
    handle->run("create temporary table kept (n int) on commit drop");
    const auto start = std::chrono::steady_clock::now();
    CHECK_FALSE(try_transaction_lock(*db, name));
    CHECK_FALSE(transaction_lock(*db, name, 600ms));
    CHECK(std::chrono::steady_clock::now() - start >= 600ms);
    CHECK(handle->run("show lock_timeout") == "13s");
    CHECK(handle->run("select count(*) from kept") == "0");

    auto releasing = std::async(std::launch::async, [&] {
        const auto watching = F::source().connect(soon());
        CHECK(eventually([&] {
            return watching
                       ->query(
                           "select count(*) from pg_locks where locktype = 'advisory' and not "
                           "granted and ((classid::bigint << 32) | objid::bigint) = " +
                               std::to_string(rowlock::advisory_number(name)),
                           soon())
                       .integer(0, 0) > 0;
        }));
        held.reset();
    });
    CHECK(transaction_lock(*db, name, 20s));
    releasing.get();
    CHECK(handle->run("show lock_timeout") == "13s");
    CHECK_FALSE(others.try_lock(name));
    handle->run("commit");
    CHECK(handle->run("show lock_timeout") == "17s");
    CHECK(others.try_lock(name));
}

// shows: advisory-locks
TEST_CASE_TEMPLATE_DEFINE("a transaction's lock is refused where it would not protect", F,
                          refused) {
    if (!F::available() || !is_postgresql<F>) return;
    CAPTURE(F::name);
    const auto handle = F::borrow();
    const auto db = handle->ref();
    const std::string name = fresh("job");
    advisory_client others{F::source(), unhurried<advisory_options>()};
    for (const char* level : {"repeatable read", "serializable"}) {
        handle->run(std::string{"begin isolation level "} + level);
        CHECK(kind_of([&] { static_cast<void>(try_transaction_lock(*db, name)); }) ==
              errc::unsupported);
        CHECK(kind_of([&] { static_cast<void>(transaction_lock(*db, name, 1s)); }) ==
              errc::unsupported);
        CHECK(others.try_lock(name));
        CHECK(handle->run("select 1") == "1");  // goes on
        CHECK(try_transaction_lock(*db, name, advisory_mode::exclusive, {.any_isolation = true}));
        handle->run("rollback");
    }
    handle->run("begin");
    CHECK_THROWS(handle->run("select 1/0"));
    CHECK(kind_of([&] { static_cast<void>(try_transaction_lock(*db, name)); }) ==
          errc::invalid_options);
    handle->run("rollback");
    CHECK(others.try_lock(name));

    // A statement timeout of the caller's that is shorter than a slice. A stall of the server
    // exceeds it, too: then the wait is made again.
    const auto held = others.try_lock(name);
    const auto waits_in_vain = [&] {
        handle->run("begin");
        bool goes_on = false;
        try {
            handle->run("set local statement_timeout = '120ms'");
            const bool locked = transaction_lock(*db, name, 400ms);
            CHECK_FALSE(locked);
            goes_on = handle->run("select 1") == "1";
        } catch (const std::exception& failure) {
            MESSAGE(std::string{failure.what()});
        }
        handle->run("rollback");
        return goes_on;
    };
    CHECK(eventually(waits_in_vain));
}

TEST_CASE_TEMPLATE_APPLY(exclusion, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(hand_over, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(threads, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(sharing, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(ending, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(kinds, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(transaction, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(in_vain, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(refused, contract::driver_fixtures);

// mutex and recursive_mutex.

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;

namespace {

template <typename Mutex>
concept timed_lockable = requires(Mutex lock, std::chrono::milliseconds time,
                                  std::chrono::system_clock::time_point moment,
                                  std::chrono::steady_clock::time_point steady_moment) {
    lock.lock();
    lock.unlock();
    { lock.try_lock() } -> std::same_as<bool>;
    { lock.try_lock_for(time) } -> std::same_as<bool>;
    { lock.try_lock_until(moment) } -> std::same_as<bool>;
    { lock.try_lock_until(steady_moment) } -> std::same_as<bool>;
};
static_assert(timed_lockable<rowlock::mutex>);
static_assert(timed_lockable<rowlock::recursive_mutex>);

template <typename Mutex>
concept stoppable = requires(Mutex lock, const std::stop_token stop, std::chrono::milliseconds time,
                             std::chrono::system_clock::time_point moment) {
    { lock.lock(stop) } -> std::same_as<bool>;
    { lock.try_lock_for(time, stop) } -> std::same_as<bool>;
    { lock.try_lock_until(moment, stop) } -> std::same_as<bool>;
};
static_assert(stoppable<rowlock::mutex>);
static_assert(stoppable<rowlock::recursive_mutex>);
static_assert(noexcept(std::declval<rowlock::mutex&>().unlock()));

bool free_for(client& other, const char* name) {
    return other.try_acquire(name).has_value();
}

}  // namespace

TEST_CASE("a mutex works with the standard guards and excludes other clients") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        rowlock::mutex a{locks, "account/1"};
        rowlock::mutex b{locks, "account/2"};
        {
            const std::scoped_lock both{a, b};
            CHECK(a.held());
            CHECK(b.held());
            CHECK(a.name() == "account/1");
            CHECK_FALSE(free_for(other, "account/1"));
            CHECK_FALSE(free_for(other, "account/2"));
        }
        CHECK_FALSE(a.held());
        CHECK(free_for(other, "account/1"));
        const auto before = a.token();
        {
            std::unique_lock lock{a, 10s};
            REQUIRE(lock.owns_lock());
            CHECK(a.token() > before);
            lock.unlock();
            CHECK(free_for(other, "account/1"));
            lock.lock();
            CHECK_FALSE(free_for(other, "account/1"));
        }
        CHECK(free_for(other, "account/1"));
    }
}

ROWLOCK_SIMULATED_CASE(
    "two clients that lock the same two mutexes in opposite order both get through", database) {
    const auto work = [&](const char* first, const char* second) {
        client locks{database.source(), database.options({.poll_interval = 10ms})};
        rowlock::mutex a{locks, first};
        rowlock::mutex b{locks, second};
        for (int i = 0; i < 5; ++i) const std::scoped_lock both{a, b};
    };
    auto forth = std::async(std::launch::async, work, "1", "2");
    auto back = std::async(std::launch::async, work, "2", "1");
    CHECK_NOTHROW(forth.get());
    CHECK_NOTHROW(back.get());
}

TEST_CASE("two mutex objects of one name in one client exclude each other") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client locks{database.source(), database.options()};
    rowlock::mutex a{locks, "job"};
    rowlock::mutex b{locks, "job"};
    a.lock();
    CHECK_FALSE(b.try_lock());
    CHECK_FALSE(std::async(std::launch::async, [&] { return b.try_lock_for(20ms); }).get());
    // An entry that its thread has left behind would be granted the lease for a moment.
    REQUIRE(eventually([&] { return locks.waiters("job").empty(); }));
    a.unlock();
    CHECK(b.try_lock());
    b.unlock();
}

namespace {

/// Waits for a lock that another client holds, in each way that can be stopped.
template <typename Mutex>
void wait_until_stopped(support::lock_database& database) {
    client holder{database.source(), database.options()};
    client locks{database.source(), database.options()};
    const auto held = holder.acquire("job");
    const auto far = std::chrono::system_clock::now() + 1h;
    Mutex lock{locks, "job"};
    std::stop_source stop;
    const auto stopped = [&](auto wait) {
        return std::async(std::launch::async, [&lock, wait] {
            const bool locked = wait(lock);
            CHECK_FALSE(lock.held());
            return !locked;
        });
    };
    const auto token = stop.get_token();
    auto endless = stopped([=](Mutex& it) { return it.lock(token); });
    auto limited = stopped([=](Mutex& it) { return it.try_lock_for(1h, token); });
    auto until = stopped([=](Mutex& it) { return it.try_lock_until(far, token); });
    CHECK(eventually([&] { return locks.stats().waiting == 3; }));
    stop.request_stop();
    CHECK(endless.get());
    CHECK(limited.get());
    CHECK(until.get());
    CHECK_FALSE(lock.lock(token));  // requested before the call
}

}  // namespace

ROWLOCK_SIMULATED_CASE("a stop ends every wait of a mutex, and nothing is locked", database) {
    wait_until_stopped<rowlock::mutex>(database);
    wait_until_stopped<recursive_mutex>(database);
}

ROWLOCK_SIMULATED_CASE("a mutex whose wait may be stopped is locked once it is free", database) {
    client locks{database.source(), database.options()};
    client other{database.source(), database.options()};
    std::stop_source stop;
    rowlock::mutex lock{locks, "job"};
    REQUIRE(lock.lock(stop.get_token()));
    CHECK_FALSE(free_for(other, "job"));
    lock.unlock();
    recursive_mutex again{locks, "job"};
    REQUIRE(again.lock(stop.get_token()));
    stop.request_stop();
    CHECK(again.lock(stop.get_token()));  // held already: there is no wait to stop
    CHECK(again.depth() == 2);
    again.unlock();
    again.unlock();
    CHECK(free_for(other, "job"));
}

ROWLOCK_SIMULATED_CASE(
    "a mutex tells the thread that holds it how long the lock remains without a heartbeat",
    database) {
    client locks{database.source(), database.options()};
    rowlock::mutex lock{locks, "job", {.max_duration = 15s}};
    recursive_mutex again{locks, "other job"};
    CHECK(lock.remaining() == 0ms);
    CHECK(again.remaining() == 0ms);
    lock.lock();
    again.lock();
    CHECK(lock.remaining() > 0ms);
    CHECK(lock.remaining() <= 15s);
    CHECK(again.remaining() > 15s);
    std::async(std::launch::async, [&] {
        CHECK(lock.remaining() == 0ms);
        CHECK(again.remaining() == 0ms);
    }).get();
    lock.unlock();
    again.unlock();
    CHECK(lock.remaining() == 0ms);
    CHECK(again.remaining() == 0ms);
}

ROWLOCK_SIMULATED_CASE(
    "a thread that locks a second mutex of the same name is refused, not left waiting", database) {
    support::interception watched;
    client locks{watched.wrap(database.source()), database.options()};
    client other{database.source(), database.options()};
    rowlock::mutex a{locks, "job"};
    rowlock::mutex b{locks, "job"};
    rowlock::recursive_mutex again{locks, "job"};
    a.lock();
    const int before = watched.statements;
    CHECK(kind_of([&] { b.lock(); }) == errc::would_deadlock);
    CHECK(kind_of([&] { static_cast<void>(b.try_lock_for(20ms)); }) == errc::would_deadlock);
    CHECK(kind_of([&] { again.lock(); }) == errc::would_deadlock);
    CHECK_FALSE(b.try_lock());
    CHECK_FALSE(again.try_lock());
    CHECK(watched.statements == before);
    // Another client, another name and another thread wait for the lock as usual.
    rowlock::mutex abroad{other, "job"};
    CHECK_FALSE(abroad.try_lock_for(20ms));
    rowlock::mutex beside{locks, "other job"};
    CHECK(beside.try_lock());
    auto waiting = std::async(std::launch::async, [&] { return b.try_lock_for(20ms); });
    CHECK_FALSE(waiting.get());
    auto next = std::async(std::launch::async, [&] {
        b.lock();
        b.unlock();
    });
    a.unlock();
    next.get();
    again.lock();
    CHECK(kind_of([&] { a.lock(); }) == errc::would_deadlock);
    again.unlock();
    CHECK(a.try_lock());
}

ROWLOCK_SIMULATED_CASE(
    "a thread that acquires a lease which it holds waits for it, which is not reported as a "
    "deadlock",
    database) {
    client locks{database.source(), database.options({.poll_interval = 20ms})};
    auto held = locks.acquire("job");
    CHECK_FALSE(locks.try_acquire_for("job", 400ms));
    CHECK(locks.stats().deadlocks == 0);
    auto other = std::async(std::launch::async, [&] {
        CHECK(eventually([&] { return locks.stats().waiting == 1; }));
        held.release();
    });
    CHECK(locks.try_acquire_for("job", 20s));
    other.get();
}

ROWLOCK_SIMULATED_CASE("a thread that lost a lock may lock it by another mutex object", database) {
    client locks{database.source(), database.watchful()};
    client other{database.source(), database.options()};
    rowlock::mutex a{locks, "job"};
    a.lock();
    CHECK(other.force_release("job"));
    REQUIRE(eventually([&] { return !a.held(); }));
    rowlock::mutex b{locks, "job"};
    CHECK(b.try_lock_for(20s));
    CHECK(b.held());
    CHECK_FALSE(a.held());
    a.unlock();
    CHECK(b.held());
}

ROWLOCK_SIMULATED_CASE("errors of a mutex's caller are reported", database) {
    std::atomic<int> failures{0};
    client locks{database.source(), database.options({.on_event = [&](const event& what) {
                     if (what.kind == event_kind::unlock_failed) ++failures;
                 }})};
    client other{database.source(), database.options()};
    rowlock::mutex lock{locks, "job"};

    CHECK(kind_of([&] { lock.release(); }) == errc::not_owner);
    lock.lock();
    CHECK(kind_of([&] { lock.lock(); }) == errc::would_deadlock);
    CHECK(kind_of([&] { static_cast<void>(lock.try_lock_for(1s)); }) == errc::would_deadlock);
    CHECK_FALSE(lock.try_lock());
    std::async(std::launch::async, [&] {
        CHECK(kind_of([&] { lock.release(); }) == errc::not_owner);
        lock.unlock();
    }).get();
    CHECK(eventually([&] { return failures == 1; }));
    CHECK(lock.held());
    CHECK_FALSE(free_for(other, "job"));

    CHECK(other.force_release("job"));
    CHECK(kind_of([&] { lock.release(); }) == errc::lock_lost);
    CHECK(kind_of([&] { lock.release(); }) == errc::not_owner);
    lock.unlock();
    CHECK(eventually([&] { return failures == 2; }));
    CHECK(lock.try_lock());
    lock.unlock();
}

ROWLOCK_SIMULATED_CASE("a recursive mutex counts holds of a thread without round trips", database) {
    support::interception counted;
    client locks{counted.wrap(database.source()), database.options()};
    client other{database.source(), database.options()};
    recursive_mutex a{locks, "job"};
    recursive_mutex b{locks, "job"};  // the same hold
    a.lock();
    const auto token = a.token();
    counted.statements = 0;
    b.lock();
    CHECK(a.try_lock());
    CHECK(b.try_lock_for(1s));
    CHECK(a.depth() == 4);
    CHECK(b.token() == token);
    for (int i = 0; i < 3; ++i) a.unlock();
    CHECK(counted.statements == 0);
    CHECK(a.depth() == 1);
    CHECK_FALSE(free_for(other, "job"));
    std::async(std::launch::async, [&] {
        CHECK(a.depth() == 0);
        CHECK_FALSE(a.try_lock());
        CHECK(kind_of([&] { a.release(); }) == errc::not_owner);
    }).get();
    b.release();
    CHECK(counted.statements == 1);
    CHECK(free_for(other, "job"));
    CHECK(kind_of([&] { a.release(); }) == errc::not_owner);
}

ROWLOCK_SIMULATED_CASE("re-entry after the lease was lost fails, and the lock can be started over",
                       database) {
    client locks{database.source(), database.watchful()};
    client other{database.source(), database.options()};
    recursive_mutex lock{locks, "job"};
    lock.lock();
    lock.lock();
    CHECK(other.force_release("job"));
    CHECK(eventually([&] { return !lock.held(); }));
    CHECK(kind_of([&] { lock.lock(); }) == errc::lock_lost);
    CHECK(kind_of([&] { static_cast<void>(lock.try_lock()); }) == errc::lock_lost);
    lock.release();  // one of two holds: no statement is sent
    CHECK(kind_of([&] { lock.release(); }) == errc::lock_lost);
    lock.lock();
    CHECK(lock.held());
    lock.unlock();
}

TEST_CASE("threads of several clients count together under a mutex and a recursive mutex") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        int counter = 0;
        std::vector<std::future<void>> workers;
        for (int c = 0; c < 2; ++c) {
            workers.push_back(std::async(std::launch::async, [&] {
                client locks{database.source(), database.options({.poll_interval = 10ms})};
                recursive_mutex shared{locks, "counter"};
                const auto count = [&] {
                    for (int i = 0; i < 10; ++i) {
                        const std::lock_guard once{shared};
                        const std::lock_guard again{shared};
                        const int before = counter;
                        std::this_thread::yield();
                        counter = before + 1;
                    }
                };
                auto second = std::async(std::launch::async, count);
                count();
                second.get();
            }));
        }
        for (auto& worker : workers) worker.get();
        CHECK(counter == 40);
    }
}

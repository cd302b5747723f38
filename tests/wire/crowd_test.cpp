// Hundreds of waiting threads: their cost, and that each is served or stopped.

#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include "support/this_process.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::at_best;
using support::eventually;
using support::nobody_holds;
using support::places;
using support::threads_of_this_process;
using steady = std::chrono::steady_clock;

TEST_CASE("500 threads are stopped at once, and leave no queue entry behind") {
    ROWLOCK_FOR_A_CLIENT(database) {
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options({.ttl = 60s, .poll_interval = 10s})};
        const auto lease = holder.acquire("job");
        std::uint64_t stopped = 0;
        const auto stop_all = [&] {
            std::stop_source stop;
            std::atomic<int> given_up{0};
            std::vector<std::thread> threads;
            for (int i = 0; i < 500; ++i) {
                threads.emplace_back([&] {
                    if (!waiter.acquire("job", stop.get_token())) ++given_up;
                });
            }
            stopped += 500;
            CHECK(eventually([&] { return waiter.stats().queued == stopped; }, 2min));
            CHECK(places(database, 500));
            const auto start = steady::now();
            stop.request_stop();
            CHECK(eventually([&] { return given_up == 500; }));
            const auto took = steady::now() - start;
            for (auto& each : threads) each.join();
            return took;
        };
        // 500 threads are woken and counted on two processors.
        CHECK(at_best(1s, stop_all) < 1s);
        CHECK(places(database, 0));
        CHECK(eventually([&] { return waiter.stats().cancelled == stopped; }));
    }
}

TEST_CASE("2000 waits with random short limits leave neither a queue entry nor a lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options({.ttl = 60s, .poll_interval = 20ms})};
        std::atomic<int> inside{0};
        std::atomic<int> overlaps{0};
        std::atomic<int> got{0};
        std::vector<std::future<void>> threads;
        for (unsigned i = 0; i < 20; ++i) {
            threads.push_back(std::async(std::launch::async, [&, i] {
                for (unsigned round = 0; round < 100; ++round) {
                    const auto limit =
                        std::chrono::microseconds{(i * 7919 + round * 104729) % 9000};
                    std::optional<lease> lease;
                    try {
                        lease = locks.try_acquire_for("job", limit);
                    } catch (const error& failure) {
                        // The limit passed before the first answer.
                        if (failure.kind() != errc::timed_out) throw;
                    }
                    if (!lease) continue;
                    ++got;
                    if (++inside != 1) ++overlaps;
                    --inside;
                }
            }));
        }
        for (auto& each : threads) each.get();
        CHECK(overlaps == 0);
        CHECK(got > 0);
        MESSAGE(got.load(), " of 2000 were granted");
        CHECK(places(database, 0));
        CHECK(nobody_holds(database));
        CHECK(eventually([&] { return locks.stats().unresolved == 0; }));
    }
}

TEST_CASE("a thousand waiting threads use a few connections and share each poll") {
    ROWLOCK_FOR_A_CLIENT(database) {
        const bool server = database.speaks() != sql::dialect::sqlite;
        client holder{database.source(), database.options({.ttl = 60s, .statement_timeout = 1min})};
        const auto options =
            database.options({.ttl = 60s, .poll_interval = 200ms, .statement_timeout = 1min});
        int names = 1;
        SUBCASE("on one name") {}
        if (database.which() == support::backend::postgresql) {
            SUBCASE("on a thousand names") {
                names = 1000;
            }
        }
        constexpr int many = 1000;
        std::vector<lease> held;
        for (int i = 0; i < names; ++i) held.push_back(holder.acquire("job " + std::to_string(i)));
        const int connections_before = support::connections_of_this_process();
        {
            client waiter{database.source(), options};
            std::stop_source stop;
            std::atomic<int> got{0};
            const int threads_before = threads_of_this_process();
            std::vector<std::thread> threads;
            for (int i = 0; i < many; ++i) {
                threads.emplace_back([&, i] {
                    const auto name = "job " + std::to_string(i % names);
                    try {
                        if (waiter.acquire(name, stop.get_token())) ++got;
                    } catch (const error& failure) {
                        FAIL_CHECK(std::string{failure.what()});
                    }
                });
            }
            CHECK(eventually([&] { return waiter.stats().queued == many; }, 2min));
            // Heartbeat, watchdog, waiter loop, MySQL wait thread, events, and the MySQL driver's
            // thread for each connection.
            CHECK(threads_of_this_process() - threads_before - many <= 6 + 8);
            const int connections = support::connections_of_this_process() - connections_before;
            CHECK(connections <= 9);                 // one of them listens
            CHECK(connections >= (server ? 2 : 0));  // they are counted
            CHECK(waiter.stats().connections <= 8);
            const auto polls_in_a_second = [&] {
                const auto polls = waiter.stats().polls;
                std::this_thread::sleep_for(1s);
                return waiter.stats().polls - polls;
            };
            constexpr std::uint64_t too_many = 13;
            CHECK(at_best(too_many, polls_in_a_second) < too_many);
            held.pop_back();
            CHECK(eventually([&] { return got >= (names == 1 ? 50 : 1); }, 30s));
            stop.request_stop();
            for (auto& each : threads) each.join();
        }
        CHECK(places(database, 0));
    }
}

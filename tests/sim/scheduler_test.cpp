// The controls of the scheduler and of the seam: what simulated threads do is what real ones do,
// time is virtual, races and deadlocks are found, and a seed repeats itself.

#define DOCTEST_CONFIG_IMPLEMENT
#include "scheduler.hpp"

#include "base/clock.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "mailbox.hpp"
#include "plan.hpp"
#include "shrink.hpp"
#include "support/progress.hpp"

#include <doctest/doctest.h>
#include <sys/single_threaded.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace rowlock;
using namespace std::chrono_literals;
using sim::i64;
using sim::ms;
using sim::second;
using sim::u64;
using std::chrono::steady_clock;

/// One simulation: `code` is the main thread of a process.
struct simulated {
    explicit simulated(u64 seed = 1, sim::policy how = {}) : world{seed, how} { sim::start_anew(); }
    /// False: a deadlock, or an hour has passed.
    template <typename Code>
    bool run(const Code& code) {
        return run_on(world.add_node(0, 1, 5 * second), code);
    }
    template <typename Code>
    bool run_on(sim::node& home, const Code& code) {
        bool ended = false;
        world.spawn(
            home,
            [&] {
                code();
                ended = true;
            },
            "main");
        return world.run([&] { return ended; }, 3'600 * second);
    }
    sim::scheduler world;
};

// --- time ----------------------------------------------------------------------------------------

TEST_CASE("an hour of sleep takes no time") {
    simulated one;
    CHECK(one.run([] {
        const auto before = steady_clock::now();
        std::this_thread::sleep_for(59min);
        CHECK(steady_clock::now() - before == 59min);
    }));
    CHECK(one.world.now() == 59 * 60 * second);
}

TEST_CASE("each node has a clock with its own rate and origin") {
    simulated one;
    auto& fast = one.world.add_node(0, 1.02, 1'000 * second);
    CHECK(one.run_on(fast, [&] {
        const auto before = steady_clock::now();
        CHECK(before.time_since_epoch() == 1'000s);
        std::this_thread::sleep_for(102s);
        CHECK(steady_clock::now() - before >= 102s);
    }));
    CHECK(one.world.now() / ms == 100 * second / ms);
}

TEST_CASE("sleepers wake in the order of their times") {
    simulated one;
    std::vector<int> order;
    CHECK(one.run([&] {
        std::vector<std::thread> sleepers;
        for (const int delay : {3, 1, 2}) {
            sleepers.emplace_back([&order, delay] {
                std::this_thread::sleep_for(std::chrono::seconds{delay});
                order.push_back(delay);
            });
        }
        for (auto& sleeper : sleepers) sleeper.join();
    }));
    CHECK(order == std::vector{1, 2, 3});
}

// --- what blocks ---------------------------------------------------------------------------------

TEST_CASE("a mutex excludes, and its waiters get it") {
    for (u64 seed = 1; seed <= 50; ++seed) {
        simulated one{seed, {.switch_at_lock = 0.8}};
        int inside = 0, most = 0, turns = 0;
        CHECK(one.run([&] {
            std::mutex lock;
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; ++i) {
                threads.emplace_back([&] {
                    for (int k = 0; k < 10; ++k) {
                        const std::lock_guard locked{lock};
                        most = std::max(most, ++inside);
                        std::this_thread::sleep_for(1us);
                        --inside;
                        ++turns;
                    }
                });
            }
            for (auto& thread : threads) thread.join();
        }));
        CHECK(most == 1);
        CHECK(turns == 40);
    }
}

TEST_CASE("a timed wait ends at its time, and a notified one before") {
    simulated one;
    CHECK(one.run([] {
        std::mutex lock;
        std::condition_variable changed;
        bool ready = false;
        std::unique_lock locked{lock};
        const auto before = steady_clock::now();
        CHECK(!changed.wait_for(locked, 10s, [&] { return ready; }));
        CHECK(steady_clock::now() - before == 10s);
        std::thread other{[&] {
            std::this_thread::sleep_for(3s);
            const std::lock_guard own{lock};
            ready = true;
            changed.notify_all();
        }};
        CHECK(changed.wait_for(locked, 10s, [&] { return ready; }));
        CHECK(steady_clock::now() - before == 13s);
        locked.unlock();
        other.join();
    }));
}

TEST_CASE("notify_one wakes one waiter, and any of them") {
    std::set<int> woken_first;
    for (u64 seed = 1; seed <= 30; ++seed) {
        simulated one{seed};
        std::vector<int> woken;
        CHECK(one.run([&] {
            std::mutex lock;
            std::condition_variable changed;
            std::vector<std::thread> waiters;
            for (int i = 0; i < 3; ++i) {
                waiters.emplace_back([&, i] {
                    std::unique_lock locked{lock};
                    changed.wait(locked);
                    woken.push_back(i);
                });
            }
            std::this_thread::sleep_for(1s);
            changed.notify_one();
            std::this_thread::sleep_for(1s);
            CHECK(woken.size() == 1);
            changed.notify_all();
            for (auto& waiter : waiters) waiter.join();
        }));
        CHECK(woken.size() == 3);
        woken_first.insert(woken.front());
    }
    CHECK(woken_first.size() == 3);
}

TEST_CASE("stop tokens, atomic waits, futures and statics work across threads") {
    for (u64 seed = 1; seed <= 20; ++seed) {
        simulated one{seed, {.switch_at_lock = 0.5, .spurious_wake_up = 0.1}};
        CHECK(one.run([] {
            std::stop_source stop;
            int called = 0;
            std::condition_variable_any changed;
            std::mutex lock;
            std::thread waiter{[&] {
                const std::stop_callback callback{stop.get_token(), [&] { ++called; }};
                std::unique_lock locked{lock};
                CHECK(!changed.wait(locked, stop.get_token(), [] { return false; }));
            }};
            std::atomic<int> word = 0;
            std::thread watcher{[&] { word.wait(0); }};
            std::promise<int> promise;
            std::thread reader{[&] { CHECK(promise.get_future().get() == 7); }};
            static std::once_flag flag;
            std::call_once(flag, [] { std::this_thread::sleep_for(1ms); });
            std::this_thread::sleep_for(1s);
            stop.request_stop();
            word = 1;
            word.notify_all();
            promise.set_value(7);
            waiter.join();
            watcher.join();
            reader.join();
            CHECK(called == 1);
        }));
    }
}

TEST_CASE("an alarm ends at its time, or when it is poked") {
    simulated one;
    CHECK(one.run([] {
        const base::clock clock;
        base::alarm alarm{clock};
        const auto began = clock.now();
        alarm.wait_until(began + 10s);
        CHECK(clock.now() - began == 10s);
        std::thread other{[&] {
            std::this_thread::sleep_for(5s);
            alarm.poke();
        }};
        CHECK(alarm.wait_until(base::alarm::never, {}));
        CHECK(clock.now() - began == 15s);
        other.join();
    }));
}

TEST_CASE("a datagram arrives on the same host alone") {
    simulated one;
    auto& near = one.world.add_node(1, 1, 0);
    auto& far = one.world.add_node(2, 1, 0);
    CHECK(one.run_on(near, [&] {
        const wakeup::mailbox box{42};
        const auto post_from = [&](sim::node& from, i64 host) {
            one.world.spawn(
                from,
                [host] {
                    static_cast<void>(wakeup::mailbox_sender{42, 1'000 + host}.post("hello"));
                },
                "sender");
        };
        post_from(far, 1);
        std::this_thread::sleep_for(1s);
        CHECK(box.take().empty());
        post_from(near, 1);
        std::this_thread::sleep_for(1s);
        CHECK(box.take() == std::vector<std::string>{"hello"});
    }));
}

// --- what belongs to a thread --------------------------------------------------------------------

struct counts_its_end {
    ~counts_its_end() { ++*counter; }
    int* counter = nullptr;
};

TEST_CASE("thread-local variables and caught exceptions are each thread's own") {
    simulated one{1, {.switch_at_lock = 1}};
    int ended = 0;
    CHECK(one.run([&] {
        std::mutex lock;
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&, i] {
                thread_local int own = 0;
                thread_local counts_its_end last;
                last.counter = &ended;
                own = i;
                try {
                    throw std::runtime_error{std::to_string(i)};
                } catch (const std::exception&) {
                    const std::lock_guard locked{lock};
                    std::this_thread::sleep_for(std::chrono::milliseconds{10 - i});
                    try {
                        throw;
                    } catch (const std::exception& again) {
                        CHECK(again.what() == std::to_string(i));
                    }
                }
                CHECK(own == i);
            });
        }
        for (auto& thread : threads) thread.join();
    }));
    CHECK(ended == 3);
}

// --- what is found -------------------------------------------------------------------------------

/// Two threads that add to a number, which is read and written in two steps.
int added(u64 seed, sim::policy how, bool locks) {
    simulated one{seed, how};
    int sum = 0;
    CHECK(one.run([&] {
        std::mutex lock, other;
        const auto add = [&] {
            std::unique_lock locked{lock, std::defer_lock};
            if (locks) locked.lock();
            const int before = sum;
            other.lock();  // a point at which the other thread may run
            other.unlock();
            sum = before + 1;
        };
        std::thread first{add}, second_thread{add};
        first.join();
        second_thread.join();
    }));
    return sum;
}

TEST_CASE("a race is found by some seeds; where a mutex excludes it by none") {
    for (const int priorities : {0, 3}) {
        const sim::policy how{
            .switch_at_lock = 0.5, .priority_changes = priorities, .expected_steps = 20};
        int found = 0;
        for (u64 seed = 1; seed <= 100; ++seed) {
            if (added(seed, how, false) != 2) ++found;
            CHECK(added(seed, how, true) == 2);
        }
        CHECK(found > 0);
        CHECK(found < 100);
    }
}

/// Whether two threads that lock two mutexes come to an end.
bool both_end(u64 seed, bool same_order) {
    simulated one{seed, {.switch_at_lock = 0.5}};
    return one.run([&] {
        // Never destroyed: a thread may still wait for one.
        auto& first = *new std::mutex;
        auto& last = *new std::mutex;
        std::thread other{[&] {
            const std::lock_guard one_lock{same_order ? first : last};
            const std::lock_guard other_lock{same_order ? last : first};
        }};
        {
            const std::lock_guard one_lock{first};
            const std::lock_guard other_lock{last};
        }
        other.join();
    });
}

TEST_CASE("a deadlock is found by some seeds; with one order of locks by none") {
    int found = 0;
    for (u64 seed = 1; seed <= 100; ++seed) {
        if (!both_end(seed, false)) ++found;
        CHECK(both_end(seed, true));
    }
    CHECK(found > 5);
    CHECK(found < 95);
}

TEST_CASE("a thread that waits for nothing that comes is described") {
    simulated one;
    CHECK(!one.run([] {
        std::mutex lock;
        std::condition_variable changed;
        std::unique_lock locked{lock};
        changed.wait(locked);
    }));
    CHECK(one.world.describe().find("(main) is blocked") != std::string::npos);
}

// --- pauses and kills ----------------------------------------------------------------------------

TEST_CASE("a paused process does nothing while its clock goes on") {
    simulated one;
    auto& paused = one.world.add_node(0, 1, 0);
    i64 longest = 0;
    one.world.at(10 * second + 500 * ms, [&] { one.world.pause(paused); });
    one.world.at(70 * second + 500 * ms, [&] { one.world.resume(paused); });
    CHECK(one.run_on(paused, [&] {
        auto last = steady_clock::now();
        for (int i = 0; i < 100; ++i) {
            std::this_thread::sleep_for(1s);
            const auto now = steady_clock::now();
            longest = std::max(longest, (now - last) / 1s);
            last = now;
        }
    }));
    CHECK(longest == 60);
}

TEST_CASE("a killed process does nothing more, and others go on") {
    simulated one;
    auto& killed = one.world.add_node(0, 1, 0);
    int ticks = 0;
    bool unwound = false;
    one.world.spawn(
        killed,
        [&] {
            struct guard {
                ~guard() { *at_end = true; }
                bool* at_end;
            } const unwinding{&unwound};
            for (;; ++ticks) std::this_thread::sleep_for(1s);
        },
        "ticking");
    one.world.at(10 * second + 1, [&] { one.world.kill(killed); });
    CHECK(one.run([] { std::this_thread::sleep_for(60s); }));
    CHECK(ticks == 10);
    CHECK(!unwound);
}

// --- repetition ----------------------------------------------------------------------------------

u64 trace_of(u64 seed) {
    simulated one{seed};
    CHECK(one.run([] {
        std::mutex lock;
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int k = 0; k < 20; ++k) {
                    const std::lock_guard locked{lock};
                    std::this_thread::sleep_for(1us);
                }
            });
        }
        for (auto& thread : threads) thread.join();
    }));
    return one.world.trace();
}

TEST_CASE("a seed repeats itself, and another is another schedule") {
    std::set<u64> traces;
    for (u64 seed = 1; seed <= 20; ++seed) {
        const u64 trace = trace_of(seed);
        CHECK(trace == trace_of(seed));
        traces.insert(trace);
    }
    CHECK(traces.size() == 20);
}

// --- shrinking -----------------------------------------------------------------------------------

TEST_CASE("a plan is shrunk to what it needs to fail") {
    int attempts = 0;
    const auto without = sim::shrink(
        1'000,
        [&](const sim::item_set& missing) {
            ++attempts;
            return !missing.contains(17) && !missing.contains(600);
        },
        [] { return true; });
    CHECK(without.size() == 998);
    CHECK(attempts < 100);
    CHECK(sim::to_text(without) == "1-16,18-599,601-1000");
    CHECK(sim::parse_items("1-16,18-599,601-1000") == without);
}

TEST_CASE("what is left out of a plan changes nothing about the rest") {
    const auto whole = sim::draw_plan(7, sim::climate::mixed);
    // Item 1 is the first process.
    const auto smaller = sim::draw_plan(7, sim::climate::mixed, {1});
    CHECK(smaller.items == whole.items);
    REQUIRE(smaller.processes.size() + 1 == whole.processes.size());
    CHECK(smaller.processes.front().clock_origin == whole.processes[1].clock_origin);
    CHECK(smaller.faults.size() == whole.faults.size());
}

}  // namespace

int main(int argc, char** argv) {
    __libc_single_threaded = 0;  // as in simulate.cpp
    return doctest::Context{argc, argv}.run();
}

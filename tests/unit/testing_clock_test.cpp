#include <rowlock/error.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using rowlock::testing::database;
using rowlock::testing::manual_clock;

TEST_CASE("a manual clock does not advance until it is moved") {
    manual_clock clock;
    const auto start = clock.now();
    CHECK(clock.now() == start);
    clock.advance(1500ms);
    CHECK(clock.now() - start == 1500ms);
    clock.advance(0ns);
    CHECK(clock.now() - start == 1500ms);
}

TEST_CASE("a manual clock does not go back") {
    manual_clock clock;
    const auto start = clock.now();
    CHECK_THROWS_AS(clock.advance(-1ns), rowlock::error);
    CHECK(clock.now() == start);
}

TEST_CASE("moving the clock calls each callback until its handle is destroyed") {
    manual_clock clock;
    int first = 0;
    int second = 0;
    auto one = clock.on_advance([&] { ++first; });
    const auto two = clock.on_advance([&] { ++second; });
    clock.advance(1s);
    one.reset();
    clock.advance(1s);
    CHECK(first == 1);
    CHECK(second == 2);
}

TEST_CASE("a wake-up sees the new time") {
    manual_clock clock;
    const auto start = clock.now();
    std::chrono::nanoseconds seen{};
    const auto handle = clock.on_advance([&] { seen = clock.now() - start; });
    clock.advance(3s);
    CHECK(seen == 3s);
}

TEST_CASE("a wake-up may destroy its own handle, and a handle may outlive the clock") {
    auto clock = std::make_unique<manual_clock>();
    int woken = 0;
    std::shared_ptr<void> own;
    own = clock->on_advance([&] {
        ++woken;
        own.reset();
    });
    auto late = clock->on_advance([&] { ++woken; });
    clock->advance(1s);
    CHECK(woken == 2);
    clock->advance(1s);
    CHECK(woken == 3);
    clock.reset();
    late.reset();
}

TEST_CASE("destroying a handle waits for a running wake-up") {
    manual_clock clock;
    std::mutex guard;
    std::condition_variable changed;
    bool running = false;
    bool may_end = false;
    std::atomic<bool> ended = false;
    auto handle = clock.on_advance([&] {
        std::unique_lock lock{guard};
        running = true;
        changed.notify_all();
        changed.wait(lock, [&] { return may_end; });
        ended = true;
    });
    std::jthread mover{[&] { clock.advance(1s); }};
    {
        std::unique_lock lock{guard};
        changed.wait(lock, [&] { return running; });
    }
    std::jthread releaser{[&] {
        const std::lock_guard lock{guard};
        may_end = true;
        changed.notify_all();
    }};
    handle.reset();
    CHECK(ended);
}

TEST_CASE("several threads move a clock and listen to it") {
    manual_clock clock;
    const auto start = clock.now();
    std::atomic<int> woken = 0;
    {
        std::vector<std::jthread> threads;
        for (int n = 0; n < 4; ++n) {
            threads.emplace_back([&] {
                for (int round = 0; round < 200; ++round) {
                    const auto handle = clock.on_advance([&] { ++woken; });
                    clock.advance(1ms);
                }
            });
        }
    }
    CHECK(clock.now() - start == 800ms);
    CHECK(woken >= 800);
}

TEST_CASE("a testing database is migrated, private, on its own clock, and removed") {
    std::filesystem::path folder;
    {
        database db;
        const auto until = std::chrono::steady_clock::now() + 20s;
        const auto connection = db.source().connect(until);
        folder =
            std::filesystem::path{
                std::string{
                    connection
                        ->query("select file from pragma_database_list where name = 'main'", until)
                        .text(0, 0)}}
                .parent_path();
        CHECK(std::filesystem::status(folder).permissions() == std::filesystem::perms::owner_all);
        CHECK(connection->query("select count(*) from rowlock_lock", until).integer(0, 0) == 0);

        const auto now = [&] {
            return connection->query("select rowlock_testing_now()", until).integer(0, 0);
        };
        const auto start = now();
        CHECK(start == 1'767'225'600'000'000);
        db.clock().advance(2500ms);
        CHECK(now() - start == 2'500'000);
        CHECK(db.options().time->now() == db.clock().now());
        CHECK(db.options({.ttl = 3s}).ttl == 3s);
    }
    CHECK_FALSE(std::filesystem::exists(folder));
}

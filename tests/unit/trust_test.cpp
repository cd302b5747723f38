// How long a client believes, by a clock that is moved by hand.

#include "base/clock.hpp"
#include "base/worker.hpp"
#include "coordination/session/grant.hpp"
#include "coordination/session/session.hpp"
#include <rowlock/client.hpp>
#include <rowlock/options.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <span>

using namespace std::chrono_literals;
using rowlock::detail::trust_window;

TEST_CASE("a trust window is open until its end and can be extended before it") {
    trust_window window{100ms};
    CHECK(window.open(99ms));
    CHECK(window.extend(200ms, 99ms));
    CHECK(window.open(199ms));
    CHECK(window.extend(150ms, 120ms));  // never shortened
    CHECK(window.until() == 200ms);
    CHECK_FALSE(window.open(200ms));
}

TEST_CASE("a trust window that was seen closed stays closed, whatever arrives late") {
    trust_window window{100ms};
    CHECK_FALSE(window.open(100ms));
    CHECK_FALSE(window.extend(500ms, 99ms));
    CHECK_FALSE(window.open(0ms + 1ns));

    trust_window late{100ms};
    CHECK_FALSE(late.extend(500ms, 100ms));  // the reply came when it was over
    CHECK_FALSE(late.open(99ms));
}

TEST_CASE(
    "held() never turns true again while a heartbeat's reply races with the end of the window") {
    for (int round = 0; round < 2000; ++round) {
        trust_window window{100ms};
        std::atomic<bool> go{false};
        auto reply = std::async(std::launch::async, [&] {
            while (!go) {
            }
            window.extend(300ms, 99ms);
        });
        go = true;
        const bool first = window.open(100ms);
        const bool second = window.open(100ms);
        reply.get();
        const bool third = window.open(100ms);
        // Once closed, closed: no true after a false.
        CHECK((first || !second));
        CHECK((second || !third));
    }
}

TEST_CASE("a lease is held while heartbeats come and lost when the clock jumps past the window") {
    rowlock::testing::database database;
    rowlock::client locks{database.source(), database.options({.ttl = 30s})};
    const auto lease = locks.acquire("job");
    CHECK(lease.held());
    CHECK(lease.remaining() == 25s);  // ttl − margin

    database.clock().advance(10s);  // a heartbeat is due
    while (locks.stats().heartbeats == 0) std::this_thread::yield();
    CHECK(lease.held());
    CHECK(lease.remaining() == 25s);

    // A suspended machine: the clock is past the window before any heartbeat could be sent.
    std::promise<void> told;
    const std::stop_callback on_loss{lease.lost(), [&] { told.set_value(); }};
    database.clock().advance(25s);
    CHECK_FALSE(lease.held());
    CHECK(lease.remaining() == 0s);
    told.get_future().wait();
    CHECK(locks.stats().lost == 1);
}

TEST_CASE("another client takes over when the database's clock has passed the ttl, not before") {
    rowlock::testing::database database;
    rowlock::client next{database.source(), database.options({.ttl = 24h})};
    rowlock::client holder{database.source(), database.options({.ttl = 30s})};
    const auto kept = next.acquire("open the session");
    const auto lease = holder.acquire("job");
    CHECK_FALSE(next.try_acquire("job"));
    database.clock().advance(60s);
    const auto taken = next.try_acquire("job");
    REQUIRE(taken);
    CHECK(taken->token() > lease.token());
    CHECK_FALSE(lease.held());
}

TEST_CASE("a worker's step runs when its clock gets there, and when poked") {
    const auto time = std::make_shared<rowlock::testing::manual_clock>();
    const rowlock::base::clock clock{time};
    std::atomic<int> steps{0};
    const auto start = clock.now();
    rowlock::base::worker worker{clock, [&] {
                                     ++steps;
                                     return start + steps.load() * 10s;
                                 }};
    while (steps < 1) std::this_thread::yield();
    time->advance(10s);
    while (steps < 2) std::this_thread::yield();
    worker.poke();
    while (steps < 3) std::this_thread::yield();
    CHECK(steps <= 4);  // the clock's word may come after the step that it was for
}

TEST_CASE("what a worker hears without use wakes it and causes no step") {
    const auto time = std::make_shared<rowlock::testing::manual_clock>();
    const rowlock::base::clock clock{time};
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::atomic<int> steps{0};
    std::atomic<int> heard{0};
    {
        rowlock::base::worker worker{clock,
                                     [&] {
                                         ++steps;
                                         return rowlock::base::alarm::never;
                                     },
                                     {.open =
                                          [&](std::span<pollfd> on) {
                                              on[0].fd = ends[0];
                                              return rowlock::base::alarm::never;
                                          },
                                      .hear =
                                          [&] {
                                              char said = 0;
                                              const bool read = ::read(ends[0], &said, 1) == 1;
                                              ++heard;
                                              return read && said == '!';
                                          }}};
        while (steps < 1) std::this_thread::yield();
        REQUIRE(::write(ends[1], "...", 3) == 3);
        while (heard < 3) std::this_thread::yield();
        CHECK(steps == 1);
        REQUIRE(::write(ends[1], "!", 1) == 1);
        while (steps < 2) std::this_thread::yield();
        worker.poke();
        while (steps < 3) std::this_thread::yield();
    }
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST_CASE("a session that is told of changes is to ask once for each, and once a second at most") {
    using rowlock::detail::session;
    constexpr auto never = rowlock::base::alarm::never;
    session ours{1, "", {}, 60s, 0s};
    CHECK(ours.news().news_at() == never);
    CHECK(ours.news().is_news(1));
    CHECK(ours.news().tell(1, 10s));
    CHECK(ours.news().news_at() == 10s);
    CHECK_FALSE(ours.news().is_news(1));
    CHECK_FALSE(ours.news().tell(1, 11s));  // it is to ask already
    ours.news().revision = 1;               // the heartbeat has found out
    CHECK(ours.news().news_at() == never);
    CHECK_FALSE(ours.news().tell(1, 20s));
    CHECK(ours.news().tell(2, 20s));
    ours.news().revision = 2;
    CHECK(ours.news().tell(3, 20s + 1ms));  // the next one, too soon
    CHECK(ours.news().news_at() == 21s);
    // What the database denies was not true.
    ours.news().settle_news(3, 21s);
    CHECK(ours.news().news_at() == never);
    CHECK(ours.news().tell(4, 30s));
    CHECK_FALSE(ours.news().tell(5, 30s));  // while the heartbeat runs
    ours.news().settle_news(4, 30s);
    CHECK(ours.news().news_at() == 31s);
    ours.news().settle_news(5, 31s);
    CHECK(ours.news().news_at() == never);
    // A heartbeat that was sent before we were told of something denies nothing.
    CHECK(ours.news().tell(6, 40s));
    ours.news().settle_news(0, 40s);
    CHECK(ours.news().news_at() == 40s);
}

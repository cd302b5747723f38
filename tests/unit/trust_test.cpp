// The trust window, by a manual clock.

#include "base/clock.hpp"
#include "base/worker.hpp"
#include "lock/session/grant.hpp"
#include "lock/session/session.hpp"
#include "support/waits.hpp"
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
using support::eventually;

TEST_CASE("a trust window is open until its end and can be extended before it") {
    trust_window window{100ms};
    CHECK(window.open(99ms));
    CHECK(window.extend(200ms, 99ms));
    CHECK(window.open(199ms));
    CHECK(window.extend(150ms, 120ms));  // never shortened
    CHECK(window.until() == 200ms);
    CHECK_FALSE(window.open(200ms));
}

TEST_CASE("a trust window that was seen closed stays closed after a late reply") {
    trust_window window{100ms};
    CHECK_FALSE(window.open(100ms));
    CHECK_FALSE(window.extend(500ms, 99ms));
    CHECK_FALSE(window.open(0ms + 1ns));

    trust_window late{100ms};
    CHECK_FALSE(late.extend(500ms, 100ms));  // the reply arrived after the window's end
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
        // A closed window stays closed: no true follows a false.
        CHECK((first || !second));
        CHECK((second || !third));
    }
}

TEST_CASE("a worker's step runs at its time, and when poked") {
    const auto time = std::make_shared<rowlock::testing::manual_clock>();
    const rowlock::base::clock clock{time};
    std::atomic<int> steps{0};
    const auto start = clock.now();
    rowlock::base::worker worker{clock, [&] {
                                     ++steps;
                                     return start + steps.load() * 10s;
                                 }};
    REQUIRE(eventually([&] { return steps >= 1; }));
    time->advance(10s);
    REQUIRE(eventually([&] { return steps >= 2; }));
    worker.poke();
    REQUIRE(eventually([&] { return steps >= 3; }));
    CHECK(steps <= 4);  // the clock's wake-up may follow the step that it was for
}

TEST_CASE("input that a worker ignores wakes it and causes no step") {
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
                                      .read =
                                          [&] {
                                              char said = 0;
                                              const bool read = ::read(ends[0], &said, 1) == 1;
                                              ++heard;
                                              return read && said == '!';
                                          }}};
        REQUIRE(eventually([&] { return steps >= 1; }));
        REQUIRE(::write(ends[1], "...", 3) == 3);
        REQUIRE(eventually([&] { return heard >= 3; }));
        CHECK(steps == 1);
        REQUIRE(::write(ends[1], "!", 1) == 1);
        REQUIRE(eventually([&] { return steps >= 2; }));
        worker.poke();
        REQUIRE(eventually([&] { return steps >= 3; }));
    }
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST_CASE("a session that is notified of changes asks once for each, and once a second at most") {
    using rowlock::detail::session;
    constexpr auto never = rowlock::base::alarm::never;
    session ours{rowlock::session_id{1}, "", {}, 60s, 0s};
    CHECK(ours.news().news_at() == never);
    CHECK(ours.news().is_news(1));
    CHECK(ours.news().tell(1, 10s));
    CHECK(ours.news().news_at() == 10s);
    CHECK_FALSE(ours.news().is_news(1));
    CHECK_FALSE(ours.news().tell(1, 11s));  // it is already due to ask
    ours.news().revision = 1;               // the heartbeat has read it
    CHECK(ours.news().news_at() == never);
    CHECK_FALSE(ours.news().tell(1, 20s));
    CHECK(ours.news().tell(2, 20s));
    ours.news().revision = 2;
    CHECK(ours.news().tell(3, 20s + 1ms));  // the next notification within a second
    CHECK(ours.news().news_at() == 21s);
    // A notification that the database does not confirm was false.
    ours.news().confirm(3, 21s);
    CHECK(ours.news().news_at() == never);
    CHECK(ours.news().tell(4, 30s));
    CHECK_FALSE(ours.news().tell(5, 30s));  // while the heartbeat runs
    ours.news().confirm(4, 30s);
    CHECK(ours.news().news_at() == 31s);
    ours.news().confirm(5, 31s);
    CHECK(ours.news().news_at() == never);
    // A heartbeat that was sent before a notification does not refute it.
    CHECK(ours.news().tell(6, 40s));
    ours.news().confirm(0, 40s);
    CHECK(ours.news().news_at() == 40s);
}

#include "lock/client/batcher.hpp"

#include "support/waits.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using support::eventually;

namespace {

/// Doubles numbers. The first call waits until it is let go, and so does one for `hangs`.
struct doubling {
    using numbers = rowlock::detail::batcher<int, int>;

    explicit doubling(std::size_t calls = 1, std::size_t most = 32, std::size_t few = 1)
        : sums{calls, most, [this](std::span<numbers::item* const> asked) { answer(asked); }, few} {
    }

    void answer(std::span<numbers::item* const> asked) {
        bool first = false;
        {
            const std::lock_guard lock{mutex};
            first = sizes.empty();
            sizes.push_back(asked.size());
        }
        const bool waits =
            first || std::ranges::any_of(asked, [&](auto* each) { return each->call == hangs; });
        ++begun;
        if (waits) released.wait_for(support::patience);
        const auto is = [](int number) {
            return [number](const auto* each) { return each->call == number; };
        };
        if (std::ranges::any_of(asked, is(13))) throw std::runtime_error{"no thirteen"};
        for (auto* each : asked) {
            if (each->call != 0) each->answer = 2 * each->call;
        }
        if (std::ranges::any_of(asked, is(0))) throw std::runtime_error{"not all"};
    }
    std::future<std::optional<int>> ask(int what, std::chrono::milliseconds patience = 20s) {
        return std::async(std::launch::async, [this, what, patience] {
            ++asking;
            return sums.submit(what, patience);
        });
    }
    /// Starts the first call, before any other request.
    std::future<std::optional<int>> hold_up() {
        auto first = ask(1);
        REQUIRE(eventually([&] { return begun == 1; }));
        return first;
    }

    std::mutex mutex;
    std::vector<std::size_t> sizes;
    std::atomic<int> begun{0};
    std::atomic<int> asking{0};
    std::atomic<int> hangs{-1};
    std::promise<void> let_go;
    std::shared_future<void> released{let_go.get_future()};
    numbers sums;
};

}  // namespace

TEST_CASE("a request without others is answered by its own call") {
    doubling of;
    of.let_go.set_value();
    CHECK(of.sums.submit(4, 1ms) == 8);
    CHECK(of.sums.submit(5, 1ms) == 10);
    CHECK(of.sizes == std::vector<std::size_t>{1, 1});
}

TEST_CASE("requests during a call share the next one, up to its size") {
    doubling of{1, 3};
    auto first = of.hold_up();
    std::vector<std::future<std::optional<int>>> others;
    for (const int number : {2, 3, 4, 5, 6}) others.push_back(of.ask(number));
    REQUIRE(eventually([&] { return of.sums.pending() == 5; }));
    of.let_go.set_value();
    CHECK(first.get() == 2);
    for (int number = 2; auto& each : others) CHECK(each.get() == 2 * number++);
    CHECK(of.sizes == std::vector<std::size_t>{1, 3, 2});
}

TEST_CASE("a few threads call each for itself at once") {
    doubling of{1, 32, 2};
    auto first = of.hold_up();
    CHECK(of.ask(2).get() == 4);  // beside the first, which is still under way
    of.let_go.set_value();
    CHECK(first.get() == 2);
    CHECK(of.sizes == std::vector<std::size_t>{1, 1});
}

TEST_CASE("more threads than a few share calls") {
    doubling of{1, 32, 2};
    auto first = of.hold_up();
    of.hangs = 7;
    auto beside = of.ask(7);
    REQUIRE(eventually([&] { return of.begun == 2; }));
    of.hangs = 8;
    auto leader = of.ask(8);  // the third: the first of a batch
    REQUIRE(eventually([&] { return of.begun == 3; }));
    std::vector<std::future<std::optional<int>>> others;
    for (const int number : {2, 3, 4}) others.push_back(of.ask(number));
    REQUIRE(eventually([&] { return of.sums.pending() == 3; }));
    of.let_go.set_value();
    CHECK(first.get() == 2);
    CHECK(beside.get() == 14);
    CHECK(leader.get() == 16);
    for (int number = 2; auto& each : others) CHECK(each.get() == 2 * number++);
    CHECK(of.sizes == std::vector<std::size_t>{1, 1, 1, 3});
}

TEST_CASE("a failed call fails for all requests of its batch, and for no other") {
    doubling of;
    auto first = of.hold_up();
    auto wrong = of.ask(13);
    auto right = of.ask(5);
    REQUIRE(eventually([&] { return of.sums.pending() == 2; }));
    of.let_go.set_value();
    CHECK(first.get() == 2);
    CHECK_THROWS_AS(wrong.get(), std::runtime_error);
    CHECK_THROWS_AS(right.get(), std::runtime_error);
    CHECK(of.sums.submit(7, 1ms) == 14);
}

TEST_CASE("a request that has its answer keeps it if the call then fails for the others") {
    doubling of;
    auto first = of.hold_up();
    auto answered = of.ask(5);
    auto failed = of.ask(0);
    REQUIRE(eventually([&] { return of.sums.pending() == 2; }));
    of.let_go.set_value();
    CHECK(first.get() == 2);
    CHECK(answered.get() == 10);
    CHECK_THROWS_AS(failed.get(), std::runtime_error);
}

TEST_CASE("a call that hangs delays no request beyond its patience") {
    doubling of;
    auto first = of.hold_up();
    CHECK(of.sums.submit(3, 5ms) == std::nullopt);
    of.let_go.set_value();
    CHECK(first.get() == 2);
    // The request was withdrawn: the next call does not contain it.
    CHECK(of.sums.submit(4, 1ms) == 8);
    CHECK(of.sizes == std::vector<std::size_t>{1, 1});
}

TEST_CASE("as many calls run at a time as are allowed") {
    doubling of{2};
    auto first = of.hold_up();
    CHECK(of.sums.submit(4, 1ms) == 8);
    of.let_go.set_value();
    CHECK(first.get() == 2);
}

TEST_CASE("threads that were answered together form the next batch together") {
    doubling of;
    auto held_up = of.hold_up();
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&](const std::stop_token& stop) {
            while (!stop.stop_requested()) (void)of.sums.submit(2, 20s);
        });
    }
    REQUIRE(eventually([&] { return of.sums.pending() == 3; }));
    of.let_go.set_value();
    (void)held_up.get();
    const auto most = [&] {
        const std::lock_guard lock{of.mutex};
        return std::count(of.sizes.begin(), of.sizes.end(), 3U);
    };
    CHECK(eventually([&] { return most() > 100; }));
    for (auto& each : threads) each.request_stop();
    threads.clear();
    // Later, a request without others is answered too, and then at once.
    CHECK(of.sums.submit(4, 20s) == 8);
    CHECK(of.sums.submit(5, 20s) == 10);
    CHECK(of.sizes.back() == 1);
}

TEST_CASE("while a call hangs for longer than their patience, requests do not wait for it") {
    doubling of;
    auto first = of.hold_up();
    REQUIRE(of.sums.submit(3, 5ms) == std::nullopt);  // one request has waited for that long
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 1'000; ++i) REQUIRE(of.sums.submit(3, 5ms) == std::nullopt);
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    of.let_go.set_value();
    CHECK(first.get() == 2);
}

#include "sql/connection_pool.hpp"

#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace sql = rowlock::sql;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

/// A connection that is never used.
class idle_connection final : public sql::connection {
public:
    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::postgresql; }
    sql::result execute(const sql::statement& /*what*/, std::span<const sql::value> /*parameters*/,
                        sql::deadline /*until*/) override {
        return sql::result{};
    }
    sql::result query(std::string_view /*text*/, sql::deadline /*until*/) override {
        return sql::result{};
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return 0; }
};

struct counted_pool {
    std::atomic<int> connects{0};
    sql::connection_pool pool{{.connect =
                                   [this](sql::deadline) {
                                       ++connects;
                                       return std::make_unique<idle_connection>();
                                   },
                               .when_full = "full"}};
    static sql::deadline in(std::chrono::milliseconds time) { return steady_clock::now() + time; }
    void make_one_idle() { static_cast<void>(pool.take(1, in(1s), in(1s))); }
};

}  // namespace

TEST_CASE(
    "a pool keeps its budget while several threads wait for a connection that is lent briefly") {
    counted_pool of;
    of.make_one_idle();
    const auto lent = of.pool.take_idle();
    REQUIRE(lent);
    constexpr std::size_t budget = 2;
    std::promise<void> over;
    const auto until_over = over.get_future().share();
    const auto taker = [&] {
        try {
            const auto taken = of.pool.take(budget, counted_pool::in(200ms), counted_pool::in(1s));
            until_over.wait();
            return true;
        } catch (const rowlock::error& failure) {
            CHECK(failure.kind() == rowlock::errc::timed_out);
            return false;
        }
    };
    auto first = std::async(std::launch::async, taker);
    auto second = std::async(std::launch::async, taker);
    // One of them is refused at its deadline, and no other ends before.
    const auto end = steady_clock::now() + 5s;
    while (first.wait_for(1ms) != std::future_status::ready &&
           second.wait_for(1ms) != std::future_status::ready && steady_clock::now() < end) {
    }
    CHECK(of.pool.open_connections() <= budget);
    over.set_value();
    CHECK(first.get() != second.get());
    CHECK(of.connects == 2);
}

TEST_CASE("a thread waits for a connection that is lent briefly instead of opening another") {
    int reused = 0;
    for (int i = 0; i < 9; ++i) {
        counted_pool of;
        of.make_one_idle();
        auto lent = of.pool.take_idle();
        REQUIRE(lent);
        CHECK_FALSE(of.pool.take_idle());
        std::promise<void> asked;
        auto taken = std::async(std::launch::async, [&] {
            asked.set_value();
            return of.pool.take(2, counted_pool::in(10s), counted_pool::in(10s)).reused();
        });
        asked.get_future().wait();
        lent.reset();
        const bool waited = taken.get();
        CHECK(of.connects == (waited ? 1 : 2));
        reused += waited ? 1 : 0;
    }
    CHECK(reused >= 5);  // the wait is short: a thread that is stopped meanwhile exceeds it
}

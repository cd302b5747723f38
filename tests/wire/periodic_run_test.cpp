// Work that many schedulers are to do once a period, or not too often, whatever their clocks show.
// shows: promise-15

#include "support/at_end.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using outcome = periodic_outcome;

namespace {

outcome begins(client& locks, const periodic_options& options) {
    return periodic_run::begin(locks, "job", options).outcome;
}

/// Runs to the end.
outcome runs(client& locks, const periodic_options& options) {
    return run_once(locks, "job", options, [](const lease& held) { CHECK(held.held()); });
}

std::int64_t held(support::lock_database& database) {
    return database.number("select count(*) from rowlock_lock where session is not null");
}

/// Moves what the record says of times into the past.
void let_time_pass(support::lock_database& database, const char* column) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    const std::string name{column};
    database.run("update rowlock_run set " + name + " = " + name +
                 (postgresql ? " - interval '1 day'" : " - 86400000000"));
}

/// Days and minutes of one scheduler's clock, which shows local time and is wrong by so many
/// minutes.
class scheduler {
public:
    scheduler(std::int64_t wrong_by, std::function<void(const std::string&)> ask)
        : wrong_by_{wrong_by}, ask_{std::move(ask)} {}

    /// Asks whenever its clock shows another day than before, five minutes past midnight.
    void look(std::int64_t minute, std::int64_t summer_time) {
        constexpr std::int64_t minutes_a_day = 24 * 60;
        const auto day = (minute + wrong_by_ + summer_time - 5) / minutes_a_day;
        if (std::exchange(day_, day) != day) ask_("day " + std::to_string(10'000 + day));
    }

private:
    const std::int64_t wrong_by_;
    const std::function<void(const std::string&)> ask_;
    std::int64_t day_ = -1;
};

/// How many runs each day had, of two schedulers whose clocks are wrong by ten minutes in either
/// direction. Summer time begins in the middle of one night and ends in that of another: then the
/// clocks show midnight twice.
std::map<std::string, int> days_of(std::int64_t days,
                                   const std::function<bool(int who, const std::string&)>& run) {
    std::map<std::string, int> done;
    const auto asks = [&](int who) {
        return [&, who](const std::string& day) {
            if (run(who, day)) ++done[day];
        };
    };
    scheduler fast{10, asks(0)};
    scheduler slow{-10, asks(1)};
    constexpr std::int64_t a_day = 24 * 60;
    for (std::int64_t minute = 600; minute < days * a_day - 600; minute += 5) {
        const bool summer = minute > days / 3 * a_day - 30 && minute < days * 2 / 3 * a_day - 30;
        fast.look(minute, summer ? 60 : 0);
        slow.look(minute, summer ? 60 : 0);
    }
    return done;
}

}  // namespace

TEST_CASE(
    "a period is done once, by whichever scheduler comes first, and never an earlier one later") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client one{database.source(), database.options()};
        client two{database.source(), database.options()};
        CHECK(runs(one, {.period = "2026-11-26"}) == outcome::begun);
        CHECK(runs(two, {.period = "2026-11-26"}) == outcome::done);
        CHECK(runs(two, {.period = "2026-11-25"}) == outcome::done);
        CHECK(runs(two, {.period = "2026-11-27"}) == outcome::begun);
        CHECK(runs(one, {.period = "2026-11-26T23"}) == outcome::done);
        CHECK(runs(one, {}) == outcome::begun);  // there is no period in it
        CHECK(runs(one, {.period = "2026-11-27"}) == outcome::done);
        CHECK(run_once(one, "another", {.period = "2026-11-01"}, [](const lease&) {}) ==
              outcome::begun);
        CHECK(held(database) == 0);
    }
}

ROWLOCK_SIMULATED_CASE("a run that fails, or dies, does not count: the next scheduler runs",
                       database) {
    client one{database.source(), database.options()};
    CHECK_THROWS_AS(run_once(one, "job", {.period = "1"},
                             [](const lease&) { throw std::runtime_error{"no paper"}; }),
                    std::runtime_error);
    CHECK(held(database) == 0);
    {
        auto begun = periodic_run::begin(one, "job", {.period = "1"});
        REQUIRE(begun.run);
        CHECK(begun.run->lease().token().value() > 0);
    }
    client two{database.source(), database.options()};
    CHECK(runs(two, {.period = "1"}) == outcome::begun);
    CHECK(runs(one, {.period = "1"}) == outcome::done);
}

TEST_CASE("what is recorded of runs is shown") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        CHECK_FALSE(periodic_run::inspect(locks, "job").has_value());
        CHECK(begins(locks, {.period = "1", .at_least = 1ms, .wait = 20s}) == outcome::begun);
        auto seen = periodic_run::inspect(locks, "job");
        REQUIRE(seen);
        CHECK_FALSE(seen->finished);
        CHECK_FALSE(seen->period.has_value());
        CHECK_FALSE(seen->ended.has_value());
        CHECK(runs(locks, {.period = "2", .at_least = 1h, .wait = 20s}) == outcome::begun);
        const auto before = *seen;
        seen = periodic_run::inspect(locks, "job");
        REQUIRE(seen);
        CHECK(seen->finished);
        CHECK(seen->period == "2");
        CHECK(seen->ended.has_value());
        CHECK(seen->token > before.token);
        CHECK(seen->rest > 59min);
    }
}

TEST_CASE("one run at a time: others are busy, or wait") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client one{database.source(), database.options()};
        client two{database.source(), database.options()};
        auto begun = periodic_run::begin(one, "job", {.period = "1"});
        REQUIRE(begun.run);
        CHECK(begins(two, {.period = "1"}) == outcome::busy);
        auto same = std::async(std::launch::async,
                               [&] { return begins(two, {.period = "1", .wait = std::nullopt}); });
        CHECK(same.wait_for(30ms) == std::future_status::timeout);
        begun.run->finish();
        CHECK(same.get() == outcome::done);
        CHECK(kind_of([&] { begun.run->finish(); }) == errc::not_owner);  // again
    }
}

ROWLOCK_SIMULATED_CASE(
    "no run begins within at_least of the last, though that ended or died long before", database) {
    client one{database.source(), database.options()};
    const periodic_options rests{.at_least = 1h};
    SUBCASE("it ended") {
        CHECK(runs(one, rests) == outcome::begun);
    }
    SUBCASE("it failed") {
        CHECK(begins(one, rests) == outcome::begun);
    }
    SUBCASE("its process is gone") {
        auto dead = std::make_unique<client>(database.source(), database.options());
        CHECK(begins(*dead, rests) == outcome::begun);
        dead.reset();
    }
    client two{database.source(), database.options()};
    const auto seen = periodic_run::begin(two, "job", {});
    CHECK(seen.outcome == outcome::resting);
    CHECK(seen.rest > 59min);
    CHECK(seen.rest <= 1h);
    // A wait that is too short ends at once; a stop ends a longer one.
    CHECK(begins(two, {.wait = 1s}) == outcome::resting);
    std::stop_source stop;
    const auto looked = two.stats().released;
    auto waiting = std::async(std::launch::async, [&] {
        return periodic_run::begin(two, "job", {.wait = std::nullopt}, stop.get_token()).outcome;
    });
    const support::at_end stops{[&] { stop.request_stop(); }};
    REQUIRE(eventually([&] { return two.stats().released > looked; }));
    CHECK(waiting.wait_for(30ms) == std::future_status::timeout);
    stop.request_stop();
    CHECK(waiting.get() == outcome::resting);
    CHECK(held(database) == 0);
    let_time_pass(database, "not_before");
    CHECK(runs(two, {}) == outcome::begun);
    CHECK(runs(one, {}) == outcome::begun);  // it rests only if it says so
}

ROWLOCK_SIMULATED_CASE("a wait goes on through the rest, and the run begins when that is over",
                       database) {
    client one{database.source(), database.options()};
    // The rest counts from the beginning of the first run, which comes later than this.
    const auto start = std::chrono::steady_clock::now();
    CHECK(runs(one, {.at_least = 200ms}) == outcome::begun);
    CHECK(runs(one, {.wait = 20s}) == outcome::begun);
    CHECK(std::chrono::steady_clock::now() - start > 150ms);
}

ROWLOCK_SIMULATED_CASE("no run begins if one finished recently", database) {
    client one{database.source(), database.options()};
    const periodic_options hourly{.skip_if_within = 1h};
    CHECK(begins(one, hourly) == outcome::begun);  // it does not finish
    CHECK(runs(one, hourly) == outcome::begun);
    CHECK(runs(one, hourly) == outcome::recent);
    CHECK(runs(one, {.skip_if_within = 1ms}) != outcome::done);
    let_time_pass(database, "ended_at");
    CHECK(runs(one, hourly) == outcome::begun);
}

ROWLOCK_SIMULATED_CASE("after a run that did not finish the next waits for lock_delay, once",
                       database) {
    client one{database.source(), database.options()};
    const periodic_options careful{.lock_delay = 1h};
    CHECK(runs(one, careful) == outcome::begun);
    CHECK(runs(one, careful) == outcome::begun);
    CHECK(begins(one, careful) == outcome::begun);  // it dies
    CHECK(begins(one, careful) == outcome::resting);
    CHECK(begins(one, {}) == outcome::resting);
    let_time_pass(database, "not_before");
    CHECK(runs(one, careful) == outcome::begun);
    CHECK(runs(one, careful) == outcome::begun);
    // It runs beside the rest of the one that died, and does not shorten it.
    CHECK(begins(one, {.at_least = 2h}) == outcome::begun);
    const auto seen = periodic_run::begin(one, "job", careful);
    CHECK(seen.outcome == outcome::resting);
    CHECK(seen.rest > 119min);
    database.run("update rowlock_run set not_before = null");
    CHECK(runs(one, careful) == outcome::begun);
}

ROWLOCK_SIMULATED_CASE("after a lost reply a run has begun once, and its end is recorded",
                       database) {
    interception network;
    client one{network.wrap(database.source()), database.options()};
    CHECK(runs(one, {.period = "0"}) == outcome::begun);
    const std::array<std::string_view, 4> statements{"begin_run", "commit", "finish_run",
                                                     "run_record"};
    int period = 0;
    for (const auto statement : statements) {
        std::atomic<bool> once{false};
        network.after([&](std::string_view what) {
            if (what == statement && !once.exchange(true)) interception::lose_reply();
        });
        const auto name = std::to_string(++period);
        CHECK(runs(one, {.period = name, .at_least = 1ms, .wait = 20s}) == outcome::begun);
        CHECK(once);
        CHECK(runs(one, {.period = name}) == outcome::done);
    }
}

ROWLOCK_SIMULATED_CASE(
    "a run counts as held once its call returns it, and not while its record is read", database) {
    interception network;
    client one{network.wrap(database.source()), database.options()};
    std::atomic<int> reads{0};
    std::atomic<int> early{0};
    network.after([&](std::string_view what) {
        if (what != "run_record") return;
        ++reads;
        if (one.holds("job")) ++early;
    });
    auto begun = periodic_run::begin(one, "job", {.period = "1"});
    REQUIRE(begun.run);
    CHECK(one.holds("job"));
    begun.run->finish();
    CHECK(begins(one, {.period = "1"}) == outcome::done);
    CHECK(reads >= 2);
    CHECK(early == 0);
}

ROWLOCK_SIMULATED_CASE("a run whose lease is lost while its record is written does not begin",
                       database) {
    interception network;
    client locks{network.wrap(database.source()), database.watchful()};
    bool recorded = false;
    network.after([&](std::string_view what) {
        if (what == "begin_run") recorded = true;
        if (what != "commit" || !std::exchange(recorded, false)) return;
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"});
        REQUIRE(eventually([&] { return locks.stats().lost == 1; }));
    });
    CHECK(kind_of([&] { (void)periodic_run::begin(locks, "job", {.period = "a"}); }) ==
          errc::lock_lost);
}

TEST_CASE("a run whose lease was broken does not begin, and does not end another") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client one{network.wrap(database.source()), database.watchful()};
        client two{database.source(), database.options()};
        CHECK(runs(one, {.period = "0"}) == outcome::begun);
        SUBCASE("before the record") {
            std::atomic<bool> once{false};
            const bool sqlite = database.speaks() == sql::dialect::sqlite;
            network.before([&](std::string_view what) {
                const bool begins = what == (sqlite ? "begin immediate" : "begin");
                if (begins && !once.exchange(true)) two.force_release("job");
            });
            // The lease that was granted is not this one any more.
            CHECK(kind_of([&] { static_cast<void>(begins(one, {.period = "1"})); }) ==
                  errc::lock_lost);
            CHECK(once);
            CHECK(runs(two, {.period = "1"}) == outcome::begun);
        }
        SUBCASE("before its end, and before it knows") {
            auto begun = periodic_run::begin(one, "job", {.period = "1"});
            REQUIRE(begun.run);
            // As if the run before had ended in the same moment, or the clock had been set back.
            database.run("update rowlock_run set ended_at = began_at");
            std::atomic<bool> once{false};
            // Later than the client's own check, so that only the table knows of it.
            network.before([&](std::string_view what) {
                if (what == "finish_run" && !once.exchange(true)) two.force_release("job");
            });
            CHECK(kind_of([&] { begun.run->finish(); }) == errc::lock_lost);
            CHECK(once);
            CHECK_FALSE(begun.run->lease().held());
            CHECK(runs(two, {.period = "1"}) == outcome::begun);
        }
        SUBCASE("after its end, whose reply was lost") {
            auto begun = periodic_run::begin(one, "job", {.period = "1"});
            REQUIRE(begun.run);
            std::atomic<bool> once{false};
            network.after([&](std::string_view what) {
                if (what != "finish_run" || once.exchange(true)) return;
                two.force_release("job");
                interception::lose_reply();
            });
            begun.run->finish();
            CHECK(once);
            CHECK(runs(two, {.period = "1"}) == outcome::done);
        }
        SUBCASE("before its end, and another began") {
            auto begun = periodic_run::begin(one, "job", {.period = "1"});
            REQUIRE(begun.run);
            REQUIRE(two.force_release("job"));
            auto other = periodic_run::begin(two, "job", {.period = "1"});
            REQUIRE(other.run);
            CHECK(kind_of([&] { begun.run->finish(); }) == errc::lock_lost);
            CHECK(begins(one, {.period = "1"}) == outcome::busy);
            other.run->finish();
            CHECK(runs(one, {.period = "1"}) == outcome::done);
        }
        SUBCASE("before its end, as it knows") {
            auto begun = periodic_run::begin(one, "job", {.period = "1"});
            REQUIRE(begun.run);
            REQUIRE(two.force_release("job"));
            REQUIRE(eventually([&] { return !begun.run->lease().held(); }));
            CHECK(kind_of([&] { begun.run->finish(); }) == errc::lock_lost);
            CHECK(runs(two, {.period = "1"}) == outcome::begun);
        }
        SUBCASE("work that stops when the lease is lost has not finished") {
            const auto failed = kind_of([&] {
                run_once(one, "job", {.period = "1"}, [&](const lease& held) {
                    REQUIRE(two.force_release("job"));
                    static_cast<void>(eventually([&] { return !held.held(); }));
                });
            });
            CHECK(failed == errc::lock_lost);
            CHECK(runs(two, {.period = "1"}) == outcome::begun);
        }
        SUBCASE("an abandoned run does not finish") {
            auto begun = periodic_run::begin(one, "job", {.period = "1"});
            REQUIRE(begun.run);
            begun.run->abandon();
            CHECK(kind_of([&] { begun.run->finish(); }) == errc::not_owner);
            CHECK(runs(two, {.period = "1"}) == outcome::begun);
        }
    }
}

ROWLOCK_SIMULATED_CASE("a client that is destroyed ends a wait for the end of a rest", database) {
    auto one = std::make_unique<client>(database.source(), database.options());
    CHECK(runs(*one, {.at_least = 1h}) == outcome::begun);
    const auto looked = one->stats().released;
    auto waiting = std::async(std::launch::async, [&at = *one] {
        return kind_of([&] { static_cast<void>(begins(at, {.wait = std::nullopt})); });
    });
    CHECK(eventually([&] { return one->stats().released > looked; }));
    CHECK(waiting.wait_for(100ms) == std::future_status::timeout);
    one.reset();
    CHECK(waiting.wait_for(20s) == std::future_status::ready);
}

ROWLOCK_SIMULATED_CASE(
    "schedulers whose clocks differ by twenty minutes run each of a thousand days once", database) {
    constexpr std::int64_t days = 1'000;
    const std::array clients{std::make_unique<client>(database.source(), database.options()),
                             std::make_unique<client>(database.source(), database.options())};
    std::int64_t asked = 0;
    const auto done = days_of(days, [&](int who, const std::string& day) {
        ++asked;
        return runs(*clients[static_cast<std::size_t>(who)], {.period = day}) == outcome::begun;
    });
    CHECK(done.size() == static_cast<std::size_t>(days));
    CHECK(asked > 2 * days);  // summer time ended in the night: they asked again
    for (const auto& [day, count] : done) CHECK(count == 1);
    // By their clocks alone, under a lock that excludes them, they run twice.
    std::array<std::string, 2> last;
    const auto twice = days_of(days, [&](int who, const std::string& day) {
        return std::exchange(last[static_cast<std::size_t>(who)], day) < day;
    });
    CHECK(twice.at("day 10500") == 2);
}

TEST_CASE("schedulers that ask for one period at the same moment: one of them runs") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int many = 6;
        constexpr int periods = 10;
        std::array<std::atomic<int>, periods> done{};
        {
            std::vector<std::jthread> all;
            for (int i = 0; i < many; ++i) {
                all.emplace_back([&] {
                    client locks{database.source(), database.options()};
                    for (int period = 0; period < periods; ++period) {
                        const periodic_options options{.period = "period " + std::to_string(period),
                                                       .wait = 20s};
                        run_once(locks, "job", options,
                                 [&](const lease&) { ++done[static_cast<std::size_t>(period)]; });
                    }
                });
            }
        }
        // One that was late with an earlier period finds a later one finished.
        for (const auto& each : done) CHECK(each <= 1);
        CHECK(done.back() == 1);
    }
}

TEST_CASE("options that make no sense are refused") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client locks{database.source(), database.options()};
    const auto refused = [&](const periodic_options& options) {
        return kind_of([&] { static_cast<void>(begins(locks, options)); });
    };
    CHECK(refused({.period = std::string(256, 'x')}) == errc::invalid_options);
    CHECK(refused({.period = "\xff"}) == errc::invalid_options);
    CHECK(refused({.at_least = -1ms}) == errc::invalid_options);
    CHECK(refused({.at_least = 24h * 400}) == errc::invalid_options);
    CHECK(refused({.skip_if_within = 0ms}) == errc::invalid_options);
    CHECK(refused({.lock_delay = -1ms}) == errc::invalid_options);
    CHECK(std::string{to_string(outcome::resting)} == "resting");
}

TEST_CASE("code that must run under a lock can ask whether it does") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client locks{database.source(), database.options()};
    client other{database.source(), database.options()};
    CHECK_FALSE(locks.holds("job"));
    CHECK(kind_of([&] { locks.assert_held("job"); }) == errc::not_owner);
    auto held = locks.acquire("job");
    CHECK(locks.holds("job"));
    CHECK_NOTHROW(locks.assert_held("job"));
    CHECK_FALSE(locks.holds("jobs"));
    CHECK(kind_of([&] { other.assert_held("job"); }) == errc::not_owner);
    held.release();
    CHECK(kind_of([&] { locks.assert_held("job"); }) == errc::not_owner);
    shared_mutex page{locks, "page"};
    page.lock_shared();
    CHECK_NOTHROW(locks.assert_held("page"));
    page.unlock_shared();
    const auto both = locks.acquire_all({"a", "b"});
    CHECK_NOTHROW(locks.assert_held("b"));
}

#include "base/retry_policy.hpp"

#include <rowlock/error.hpp>
#include <rowlock/options.hpp>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::error;
using rowlock::retry_policy;

namespace {

const error failure{errc::database_unreachable, "away"};

}  // namespace

TEST_CASE("pauses double up to the longest, each shortened by the jitter") {
    const retry_policy policy{.attempts = 100, .backoff = 20ms, .max_backoff = 1s, .jitter = 0.5};
    for (int repeat = 0; repeat < 100; ++repeat) {
        for (const auto& [attempt, longest] :
             {std::pair{1, 20ms}, {2, 40ms}, {5, 320ms}, {7, 1000ms}, {60, 1000ms}}) {
            const auto pause = policy.next(failure, attempt, 0ms);
            REQUIRE(pause);
            CHECK(*pause <= longest);
            CHECK(*pause >= longest / 2 - 1ms);
        }
    }
}

TEST_CASE("retries end after the attempts or the total time") {
    const retry_policy policy{.attempts = 3, .total = 10s};
    CHECK(policy.next(failure, 2, 0ms));
    CHECK_FALSE(policy.next(failure, 3, 0ms));
    CHECK_FALSE(policy.next(failure, 1, 10s));
}

TEST_CASE("a user's policy replaces all of it") {
    const retry_policy policy{.attempts = 1,
                              .decide = [](const error& what, int made, auto elapsed) {
                                  CHECK(what.kind() == errc::database_unreachable);
                                  CHECK(elapsed == 5ms);
                                  return made < 7 ? std::optional{3ms} : std::nullopt;
                              }};
    CHECK(policy.next(failure, 6, 5ms) == 3ms);
    CHECK_FALSE(policy.next(failure, 7, 5ms));
}

TEST_CASE("no time of a policy is longer than a clock can be advanced by") {
    constexpr auto endless = std::chrono::milliseconds::max();
    const auto most =
        rowlock::base::validated({.backoff = endless, .max_backoff = endless, .total = endless});
    for (const auto each : {most.backoff, most.max_backoff, most.total}) {
        CHECK(std::chrono::steady_clock::now() + each + 1h > std::chrono::steady_clock::now());
        CHECK(each >= 24h);
    }
    const retry_policy given{.decide = [](const error&, int, auto) { return endless; }};
    CHECK(given.next(failure, 1, 0ms) == 24h);
    const retry_policy long_ones{.backoff = endless, .max_backoff = endless, .jitter = 0};
    CHECK(long_ones.next(failure, 1, 0ms) == 24h);
}

TEST_CASE("errors report whether they may be repeated") {
    for (const errc kind : {errc::deadlock, errc::timed_out, errc::database_unreachable,
                            errc::out_of_resources, errc::conflict}) {
        CHECK(error{kind, ""}.retryable());
    }
    for (const errc kind : {errc::outcome_unknown, errc::access_denied, errc::lock_lost,
                            errc::schema_outdated, errc::unique_violation, errc::invalid_name}) {
        CHECK_FALSE(error{kind, ""}.retryable());
    }
    const error told{errc::conflict, "do it again", {.sqlstate = "40001", .message = "server"}};
    CHECK(std::string{told.what()} == "do it again");
    CHECK(told.sqlstate() == "40001");
    CHECK(told.server_message() == "server");
    CHECK(told.code() == rowlock::make_error_code(errc::conflict));
}

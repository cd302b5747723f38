#include <rowlock/error.hpp>
#include <rowlock/retry.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using detail::attempt_counter;
using detail::repeat_attempts;
using detail::retry_step;
using std::chrono::milliseconds;

namespace {

using time_point = attempt_counter::time_point;

const error away{errc::database_unreachable, "away"};

/// Pauses of 10 ms, 20 ms, …, for as long as the policy's limits allow.
retry_policy without_jitter(int attempts, milliseconds total = 1h) {
    return {.attempts = attempts, .backoff = 10ms, .jitter = 0, .total = total};
}

/// A caller without a clock: time passes only in its pauses, and where a test says so.
struct scripted_caller {
    time_point time{};
    std::vector<milliseconds> pauses{};
    int judged = 0;
    retry_step verdict = retry_step::repeat;
    retry_step after_pause = retry_step::repeat;

    [[nodiscard]] time_point now() const { return time; }
    retry_step judge(const error&) {
        ++judged;
        return verdict;
    }
    retry_step wait(milliseconds pause) {
        pauses.push_back(pause);
        time += pause;
        return after_pause;
    }
};

/// One whose calls return -1 when it stops.
struct stopping_caller : scripted_caller {
    [[nodiscard]] int stopped() const { return -1; }
};

/// Only where it is made.
struct immovable {
    explicit immovable(int of) : value{of} {}
    immovable(const immovable&) = delete;
    immovable& operator=(const immovable&) = delete;
    int value;
};

/// An action that fails until attempt `good`.
auto fails_before(int good) {
    return [good](int attempt) {
        if (attempt < good) throw error{away};
        return attempt;
    };
}

}  // namespace

TEST_CASE("an action that returns is called once, without a judgement or a pause") {
    const auto policy = without_jitter(5);
    scripted_caller caller;
    CHECK(repeat_attempts(attempt_counter{policy}, caller, fails_before(1)) == 1);
    CHECK(caller.judged == 0);
    CHECK(caller.pauses.empty());
}

TEST_CASE("a failed attempt is repeated after the policy's pause, and each has the next number") {
    const auto policy = without_jitter(5);
    scripted_caller caller;
    CHECK(repeat_attempts(attempt_counter{policy}, caller, fails_before(4)) == 4);
    CHECK(caller.judged == 3);
    CHECK(caller.pauses == std::vector<milliseconds>{10ms, 20ms, 40ms});
}

TEST_CASE("the last failure is thrown once the policy gives up, without another pause") {
    const auto policy = without_jitter(3);
    scripted_caller caller;
    int attempts = 0;
    const auto fail = [&](int attempt) {
        attempts = attempt;
        throw error{errc::timed_out, "attempt " + std::to_string(attempt)};
    };
    CHECK_THROWS_WITH(repeat_attempts(attempt_counter{policy}, caller, fail), "attempt 3");
    CHECK(attempts == 3);
    CHECK(caller.pauses.size() == 2);
}

TEST_CASE("the policy's total time counts from the beginning of the first attempt") {
    const auto policy = without_jitter(100, 50ms);
    scripted_caller caller;
    const auto fail = [&](int) {
        caller.time += 15ms;
        throw error{away};
    };
    // 15 ms have passed after the first attempt, 40 after the second, 75 after the third.
    CHECK_THROWS_AS(repeat_attempts(attempt_counter{policy}, caller, fail), error);
    CHECK(caller.judged == 3);
    CHECK(caller.pauses == std::vector<milliseconds>{10ms, 20ms});
}

TEST_CASE("an attempt that fails after a long time counts as the first again") {
    const auto policy = without_jitter(2, 50ms);
    scripted_caller caller;
    const auto outcome = [&](int attempt) {
        // Two that fail at once would be too many.
        if (caller.judged < 5) {
            caller.time += 51ms;
            throw error{away};
        }
        return attempt;
    };
    CHECK(repeat_attempts(attempt_counter{policy, 50ms}, caller, outcome) == 2);
    CHECK(caller.pauses == std::vector<milliseconds>(5, 10ms));

    scripted_caller strict;
    CHECK_THROWS_AS(repeat_attempts(attempt_counter{policy}, strict,
                                    [&](int) {
                                        strict.time += 51ms;
                                        throw error{away};
                                    }),
                    error);
    CHECK(strict.pauses.empty());
}

TEST_CASE("a policy of the user's is asked about a failure only if its caller may repeat it") {
    int asked = 0;
    const retry_policy policy{.decide = [&](const error&, int, milliseconds) {
        ++asked;
        return std::optional{1ms};
    }};
    scripted_caller caller{.verdict = retry_step::give_up};
    CHECK_THROWS_AS(repeat_attempts(attempt_counter{policy}, caller, fails_before(2)), error);
    CHECK(asked == 0);
    CHECK(caller.judged == 1);
    CHECK(caller.pauses.empty());
}

TEST_CASE("a caller that gives up in the pause throws the failure") {
    const auto policy = without_jitter(5);
    scripted_caller caller{.after_pause = retry_step::give_up};
    CHECK_THROWS_AS(repeat_attempts(attempt_counter{policy}, caller, fails_before(2)), error);
    CHECK(caller.pauses.size() == 1);
}

TEST_CASE("a caller that stops, before a pause or in it, has a result of its own") {
    const auto policy = without_jitter(5);
    stopping_caller before;
    before.verdict = retry_step::stop;
    CHECK(repeat_attempts(attempt_counter{policy}, before, fails_before(2)) == -1);
    CHECK(before.pauses.empty());
    stopping_caller in_pause;
    in_pause.after_pause = retry_step::stop;
    CHECK(repeat_attempts(attempt_counter{policy}, in_pause, fails_before(2)) == -1);
    CHECK(in_pause.pauses.size() == 1);
    // What returns nothing returns.
    int attempts = 0;
    repeat_attempts(attempt_counter{policy}, in_pause, [&](int) {
        ++attempts;
        throw error{away};
    });
    CHECK(attempts == 1);
}

TEST_CASE("exceptions of other types pass through a repeated call") {
    const auto policy = without_jitter(5);
    scripted_caller caller;
    CHECK_THROWS_AS(repeat_attempts(attempt_counter{policy}, caller,
                                    [](int) { throw std::runtime_error{"not of ours"}; }),
                    std::runtime_error);
    CHECK(caller.judged == 0);
}

TEST_CASE("a repeated call may return what cannot be moved, or nothing") {
    const retry_policy policy;
    const std::stop_token none;
    const auto made = detail::repeat(policy, none, [](int) { return immovable{7}; });
    CHECK(made.value.value == 7);
    CHECK(made.attempts == 1);
    CHECK(detail::repeat(policy, none, [](int) {}).attempts == 1);
}

TEST_CASE("a stop that was requested before a failure ends the attempts at once") {
    std::stop_source stop;
    const std::stop_token token = stop.get_token();
    const retry_policy policy{.attempts = 5, .backoff = 1h, .max_backoff = 1h};
    int attempts = 0;
    const auto fail = [&](int attempt) {
        attempts = attempt;
        stop.request_stop();
        throw error{away};
    };
    CHECK_THROWS_AS(detail::repeat(policy, token, fail), error);
    CHECK(attempts == 1);
}

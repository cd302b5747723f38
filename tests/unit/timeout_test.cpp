#include <rowlock/timeout.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <limits>

using namespace std::chrono_literals;
using rowlock::detail::after;
using rowlock::detail::at;
using rowlock::detail::longest_wait;
using steady = std::chrono::steady_clock;

namespace {

/// Whether a wait that ends then is over at once, although a moment has passed since.
bool is_over(steady::time_point then) {
    return then <= steady::now();
}

bool lasts(steady::time_point then, std::chrono::nanoseconds time) {
    const auto left = then - steady::now();
    return left <= time && left > time - 10s;
}

}  // namespace

TEST_CASE("a time limit that is not positive ends a wait at once") {
    CHECK(is_over(after(0s)));
    CHECK(is_over(after(-1ns)));
    CHECK(is_over(after(std::chrono::hours::min())));
    CHECK(is_over(after(std::chrono::seconds::min())));
    CHECK(is_over(after(std::chrono::hours{-3'000'000})));
    CHECK(is_over(after(-std::chrono::duration<double>{std::numeric_limits<double>::infinity()})));
    CHECK(is_over(after(std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()})));
}

TEST_CASE("a wait lasts as long as its limit, rounded up, and ten years at most") {
    CHECK(after(std::chrono::duration<double, std::nano>{0.5}) >= steady::now() - 1s);
    CHECK(lasts(after(1h), 1h));
    CHECK(lasts(after(std::chrono::hours::max()), longest_wait));
    CHECK(lasts(after(std::chrono::duration<double>{std::numeric_limits<double>::infinity()}),
                longest_wait));
}

TEST_CASE("the earliest and the latest moment of a clock are valid limits") {
    CHECK(is_over(at(steady::time_point::min())));
    CHECK(is_over(at(std::chrono::system_clock::time_point::min())));
    CHECK(is_over(at(std::chrono::sys_seconds::min())));
    CHECK(is_over(at(steady::now() - 1s)));
    CHECK(lasts(at(steady::time_point::max()), longest_wait));
    CHECK(lasts(at(std::chrono::system_clock::time_point::max()), longest_wait));
    CHECK(lasts(at(std::chrono::sys_seconds::max()), longest_wait));
    CHECK(lasts(at(steady::now() + 1h), 1h));
    CHECK(lasts(at(std::chrono::system_clock::now() + 1h), 1h));
}

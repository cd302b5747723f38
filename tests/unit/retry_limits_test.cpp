// How often, and for how long, an attempt is made again.

#include "lock/client/retry_limits.hpp"

#include <doctest/doctest.h>

#include <chrono>

using namespace std::chrono_literals;
using rowlock::detail::sweep_patience;

TEST_CASE("an attempt meets another client's sweep four times, and for 50 ms") {
    const sweep_patience::time_point start{1h};
    sweep_patience slow;
    CHECK_FALSE(slow.lasts(start));
    for (int i = 0; i < 4; ++i) CHECK(slow.meet(start + i * 100ms));
    CHECK_FALSE(slow.meet(start + 400ms));
    sweep_patience fast;
    for (int i = 0; i < 20; ++i) CHECK(fast.meet(start));
    CHECK_FALSE(fast.meet(start + 50ms));
}

TEST_CASE("what an attempt meets later does not last because of a sweep that it met once") {
    const sweep_patience::time_point start{1h};
    sweep_patience once;
    CHECK(once.meet(start));
    CHECK(once.lasts(start + 49ms));
    CHECK_FALSE(once.lasts(start + 50ms));
}

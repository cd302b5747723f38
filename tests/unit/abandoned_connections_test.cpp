#include "lock/session/abandoned_connections.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

using namespace std::chrono_literals;
using rowlock::detail::abandoned_connections;
using rowlock::detail::nanoseconds;

TEST_CASE("a server that ends no statement for long is asked again every two seconds") {
    abandoned_connections all;
    all.add(1, 0s);
    all.add(2, 0s);
    CHECK(all.if_too_many(3, 0s).empty());
    const std::vector<std::int64_t> both{1, 2};
    REQUIRE(all.if_too_many(2, 0s) == both);
    nanoseconds now{0};
    for (int asked = 0; asked < 10; ++asked) {
        CHECK_FALSE(all.keep(both, 2, now));
        CHECK(all.refuses(2, now));
        CHECK_FALSE(all.refuses(3, now));  // heartbeats may have more
        now += 2s;
        CHECK_FALSE(all.refuses(2, now));
    }
    CHECK(all.keep(std::vector<std::int64_t>{2}, 2, now));
    CHECK_FALSE(all.refuses(2, now));
}

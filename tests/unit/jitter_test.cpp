#include "base/jitter.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <set>

using namespace rowlock;
using namespace std::chrono_literals;

TEST_CASE("a random time lies between its bounds and reaches both") {
    std::set<std::int64_t> drawn;
    for (int i = 0; i < 1000; ++i) drawn.insert(base::random_between(3us, 5us).count());
    CHECK(drawn == std::set<std::int64_t>{3, 4, 5});
    CHECK(base::random_between(7ms, 7ms) == 7ms);
}

TEST_CASE("a time is shortened by the fraction at most") {
    for (int i = 0; i < 1000; ++i) {
        const auto half = base::shortened(1000ms);
        CHECK(half > 499ms);
        CHECK(half <= 1000ms);
        CHECK(base::shortened(1000ms, 0.1) > 899ms);
    }
    CHECK(base::shortened(1000ms, 0.0) == 1000ms);
    CHECK(base::shortened(0ms) == 0ms);
}

TEST_CASE("a forked child pauses for other times than its parent") {
    const auto draw = [] {
        return base::random_between<std::chrono::nanoseconds>(0ns, 24h * 365).count();
    };
    static_cast<void>(draw());  // the parent's generator exists before the fork
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const std::int64_t theirs = draw();
        const auto written = ::write(pipe_ends[1], &theirs, sizeof theirs);
        ::_exit(written == sizeof theirs ? 0 : 1);
    }
    const std::int64_t ours = draw();
    ::close(pipe_ends[1]);
    std::int64_t theirs = 0;
    CHECK(::read(pipe_ends[0], &theirs, sizeof theirs) == sizeof theirs);
    CHECK(theirs != ours);
    ::close(pipe_ends[0]);
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

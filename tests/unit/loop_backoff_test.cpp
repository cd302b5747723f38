#include "lock/queue/loop_backoff.hpp"

#include <doctest/doctest.h>

#include <chrono>

using namespace rowlock;
using namespace std::chrono_literals;
using rowlock::detail::loop_backoff;

namespace {

const error unreachable{errc::database_unreachable, "connection refused"};

client_options options_of() {
    client_options with;
    with.poll_interval = 1s;
    with.heartbeat = 5s;
    with.retry = {.attempts = 3, .max_backoff = 200ms};
    return with;
}

}  // namespace

TEST_CASE("a loop that has not failed does not pause") {
    const auto with = options_of();
    loop_backoff backoff{with};
    CHECK(backoff.pauses_until(true) == 0s);
    CHECK(backoff.pauses_until(false) == 0s);
}

TEST_CASE("with waiters, a failing loop polls at least in each poll interval") {
    auto with = options_of();
    with.poll_interval = 30ms;
    loop_backoff backoff{with};
    std::chrono::nanoseconds now = 1h;
    for (int i = 0; i < 50; ++i) {
        const auto next = backoff.failed(unreachable, false, now);
        CHECK(next >= now + 5ms);
        CHECK(next <= now + 30ms);
        now = next;
    }
}

TEST_CASE("without waiters it pauses for a heartbeat once the retries are used up") {
    const auto with = options_of();
    loop_backoff backoff{with};
    std::chrono::nanoseconds now = 1h;
    for (int i = 0; i < 10; ++i) now = backoff.failed(unreachable, true, now);
    CHECK(backoff.failed(unreachable, true, now) == now + 5s);
}

TEST_CASE("the first waiter ends a pause that began without one") {
    const auto with = options_of();
    loop_backoff backoff{with};
    const auto until = backoff.failed(unreachable, true, 1h);
    CHECK(backoff.pauses_until(true) == until);
    CHECK(backoff.pauses_until(false) == 0s);
    const auto again = backoff.failed(unreachable, false, 1h);
    CHECK(backoff.pauses_until(false) == again);
}

TEST_CASE("a success begins the count of failures anew") {
    const auto with = options_of();
    loop_backoff backoff{with};
    for (int i = 0; i < 10; ++i) backoff.failed(unreachable, true, 1h);
    CHECK(backoff.failed(unreachable, true, 1h) == 1h + 5s);
    backoff.succeeded();
    CHECK(backoff.failed(unreachable, true, 2h) < 2h + 1s);
}

TEST_CASE("only errors that no repetition mends reach the waiting threads") {
    CHECK(loop_backoff::passes(unreachable));
    CHECK(loop_backoff::passes(error{errc::outcome_unknown, "the reply was lost"}));
    CHECK(loop_backoff::passes(error{errc::read_only, "a standby"}));
    CHECK_FALSE(loop_backoff::passes(error{errc::access_denied, "no right to the table"}));
    CHECK_FALSE(loop_backoff::passes(error{errc::schema_outdated, "not migrated"}));
}

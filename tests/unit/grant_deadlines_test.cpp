// Grants with their own deadlines: first lost, then cleared.

#include "lock/session/grant_deadlines.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

using namespace std::chrono_literals;
using rowlock::base::alarm;
using rowlock::detail::grant;
using rowlock::detail::grant_deadlines;
using std::chrono::nanoseconds;

namespace {

/// A grant that is lost at `deadline`, which has passed for the database at `over`.
std::shared_ptr<grant> grant_until(std::int64_t id, nanoseconds deadline, nanoseconds over,
                                   nanoseconds margin = 1s) {
    auto made = std::make_shared<grant>();
    made->grant_id = rowlock::grant_id{id};
    made->deadline = deadline;
    made->deadline_over = over;
    made->deadline_margin = margin;
    return made;
}

}  // namespace

TEST_CASE("a grant's deadline is due when it passes, and not before") {
    grant_deadlines all;
    CHECK(all.next(0s).next == alarm::never);
    const auto ours = grant_until(1, 10s, 11s);
    all.add(ours);
    const auto early = all.next(10s - 1ns);
    CHECK_FALSE(early.due);
    CHECK(early.next == 10s);
    const auto due = all.next(10s);
    CHECK(due.due == ours);
    CHECK_FALSE(due.again);
}

TEST_CASE(
    "a grant is due again when its margin is over and the database sees the deadline passed") {
    SUBCASE("the database last") {
        grant_deadlines all;
        const auto ours = grant_until(1, 10s, 14s);
        all.add(ours);
        CHECK(all.next(10s).due == ours);
        CHECK(all.next(14s - 1ns).next == 14s);
        const auto due = all.next(14s);
        CHECK(due.due == ours);
        CHECK(due.again);
    }
    SUBCASE("the margin last, which begins when the loss was declared") {
        grant_deadlines all;
        const auto ours = grant_until(1, 10s, 11s, 2s);
        all.add(ours);
        CHECK(all.next(20s).due == ours);  // a watchdog that runs late
        CHECK(all.next(22s - 1ns).next == 22s);
        CHECK(all.next(22s).again);
    }
}

TEST_CASE("a deadline that a thread has seen pass is not moved by an extension that comes later") {
    grant_deadlines all;
    const auto ours = grant_until(1, 10s, 11s);
    all.add(ours);
    CHECK(all.extend(*ours, 12s, 13s, 9s));
    CHECK(ours->in_time(12s - 1ns));
    CHECK_FALSE(ours->in_time(12s));
    // Its clock was read before that of the other thread.
    CHECK_FALSE(all.extend(*ours, 20s, 21s, 11s));
    CHECK_FALSE(ours->in_time(11s));
    all.cap(ours, 5s, 1s, 6s, true);  // nor by an operator's request
    CHECK_FALSE(ours->in_time(1s));
    CHECK(all.next(12s).due == ours);
    CHECK(all.next(13s).again);
}

TEST_CASE("a deadline that has passed when the answer comes is not moved") {
    grant_deadlines all;
    const auto ours = grant_until(1, 10s, 11s);
    all.add(ours);
    CHECK_FALSE(all.extend(*ours, 20s, 21s, 10s));
    CHECK_FALSE(ours->in_time(9s));
    CHECK(all.next(10s).due == ours);
}

TEST_CASE("a grant is due twice and no more") {
    grant_deadlines all;
    const auto ours = grant_until(1, 10s, 11s);
    all.add(ours);
    CHECK(all.next(10s).due);
    CHECK(all.next(30s).due);
    CHECK_FALSE(all.next(100s).due);
    CHECK(all.next(100s).next == alarm::never);
}

TEST_CASE("of several grants the earliest deadline is due first, and equal ones are all due") {
    grant_deadlines all;
    const auto late = grant_until(1, 20s, 21s);
    const auto early = grant_until(2, 10s, 90s);
    const auto equal = grant_until(3, 10s, 90s);
    for (const auto& each : {late, early, equal}) all.add(each);
    CHECK(all.next(15s).due == early);
    CHECK(all.next(15s).due == equal);
    CHECK(all.next(15s).next == 20s);
}

TEST_CASE("a grant that was released, or that has no owner any more, is never due") {
    grant_deadlines all;
    const auto released = grant_until(1, 10s, 11s);
    all.add(released);
    all.remove(*released);
    {
        const auto dropped = grant_until(2, 10s, 11s);
        all.add(dropped);
    }
    CHECK_FALSE(all.next(50s).due);
    CHECK(all.next(50s).next == alarm::never);
    const grant without_deadline;
    all.remove(without_deadline);  // it was never added
}

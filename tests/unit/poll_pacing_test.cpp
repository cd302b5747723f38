#include "lock/queue/poll_pacing.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <utility>

using namespace std::chrono_literals;
using rowlock::detail::poll_pacing;
using rowlock::detail::poll_result;
using rowlock::detail::queue_progress;
using std::chrono::nanoseconds;

namespace {

constexpr nanoseconds never = rowlock::base::alarm::never;
constexpr nanoseconds interval = 1s;
constexpr nanoseconds start = 100s;

poll_result found_at(std::int64_t position, bool changed = false) {
    return {.best_position = position, .changed = changed};
}

void make_poll(poll_pacing& pacing, nanoseconds began, nanoseconds cost, const poll_result& found,
               poll_pacing::wakeup by) {
    pacing.begin_poll(began);
    pacing.end_poll(began + cost, found, by);
}

/// Makes a poll, and returns the planned pause after its start.
nanoseconds pause_after(poll_pacing& pacing, const poll_result& found,
                        poll_pacing::wakeup by = poll_pacing::wakeup::none) {
    make_poll(pacing, start, 0ms, found, by);
    return pacing.due() - start;
}

/// The progress of a queue that took this long for each of ten steps, the last of them at `start`.
queue_progress moving(nanoseconds step) {
    queue_progress made;
    made.observe(start - 10 * step, 0, 1000);
    made.observe(start, 1000, 990);
    return made;
}

/// Whose latest poll began then.
struct polled_at : poll_pacing {
    explicit polled_at(nanoseconds began) : poll_pacing{interval} { begin_poll(began); }
};

}  // namespace

TEST_CASE("nothing is polled until a poll is wanted, and the first one is due at once") {
    poll_pacing pacing{interval};
    CHECK(pacing.due() == never);
    pacing.want();
    CHECK(pacing.due() == 0ns);
}

TEST_CASE("a wanted poll waits until three times the cost of the previous one have passed") {
    poll_pacing pacing{interval};
    make_poll(pacing, start, 4ms, found_at(7), poll_pacing::wakeup::notification);
    pacing.want();
    CHECK(pacing.due() == start + 12ms);
}

TEST_CASE("a wanted poll does not delay one that was due before it") {
    poll_pacing pacing{interval};
    make_poll(pacing, start, 4ms, found_at(7), poll_pacing::wakeup::notification);
    pacing.no_later_than(start + 5ms);
    pacing.want();
    CHECK(pacing.due() == start + 5ms);
}

TEST_CASE("the start of a poll satisfies earlier requests for one, not those during it") {
    poll_pacing pacing{interval};
    pacing.want();
    pacing.no_later_than(start);
    pacing.begin_poll(start);
    CHECK(pacing.due() == never);
    pacing.want();
    pacing.no_later_than(start + 7ms);
    pacing.end_poll(start + 3ms, found_at(1), poll_pacing::wakeup::notification);
    CHECK(pacing.due() == start + 7ms);
    pacing.no_later_than(start + 20ms);
    CHECK(pacing.due() == start + 7ms);
}

TEST_CASE("a failed poll is repeated at the pace of the one before") {
    poll_pacing pacing{interval};
    make_poll(pacing, start, 4ms, found_at(7), poll_pacing::wakeup::notification);
    pacing.begin_poll(start + 1s);
    pacing.want();
    CHECK(pacing.due() == start + 1s + 12ms);
}

TEST_CASE("without wake-ups the pause grows by half from 2 ms a position up to the interval") {
    poll_pacing pacing{interval};
    CHECK(pause_after(pacing, found_at(10)) == 20ms);
    CHECK(pause_after(pacing, found_at(10)) == 30ms);
    CHECK(pause_after(pacing, found_at(10)) == 45ms);
    for (int more = 0; more < 7; ++more) (void)pause_after(pacing, found_at(10));
    CHECK(pause_after(pacing, found_at(10)) == interval);
    CHECK(pause_after(pacing, found_at(10)) == interval);
}

TEST_CASE("without wake-ups the pause starts again after a change") {
    poll_pacing pacing{interval};
    (void)pause_after(pacing, found_at(10));
    (void)pause_after(pacing, found_at(10));
    CHECK(pause_after(pacing, found_at(9, true)) == 18ms);
    CHECK(pause_after(pacing, found_at(9)) == 27ms);
}

TEST_CASE("behind the 64th position the first pause does not grow") {
    for (const auto& [position, pause] : {std::pair<std::int64_t, nanoseconds>{1, 2ms},
                                          {63, 126ms},
                                          {64, 128ms},
                                          {65, 128ms},
                                          {4000, 128ms}}) {
        poll_pacing pacing{interval};
        CHECK(pause_after(pacing, found_at(position)) == pause);
    }
    poll_pacing pacing{interval};
    CHECK(pause_after(pacing, {}) == 128ms);
    poll_pacing impatient{50ms};
    CHECK(pause_after(impatient, {}) == 50ms);
}

TEST_CASE("a client that the database notifies polls once in an interval") {
    poll_pacing pacing{interval};
    CHECK(pause_after(pacing, found_at(1, true), poll_pacing::wakeup::notification) == interval);
    CHECK(pause_after(pacing, found_at(1), poll_pacing::wakeup::notification) == interval);
}

TEST_CASE("a poll is planned from when the previous one began, not from its end") {
    poll_pacing pacing{interval};
    make_poll(pacing, start, 15ms, found_at(10), poll_pacing::wakeup::none);
    CHECK(pacing.due() == start + 20ms);
}

TEST_CASE("a poll comes one millisecond after the first holder's expiry") {
    poll_pacing pacing{interval};
    auto found = found_at(1);
    found.holder_expires(start + 400ms);
    found.holder_expires(start + 300ms);
    found.holder_expires(start + 500ms);
    CHECK(pause_after(pacing, found, poll_pacing::wakeup::notification) == 301ms);
    found.recheck_by(start + 250ms);
    found.recheck_by(start + 260ms);
    CHECK(pause_after(pacing, found, poll_pacing::wakeup::notification) == 250ms);
    CHECK(pause_after(pacing, found_at(1), poll_pacing::wakeup::notification) == interval);
}

TEST_CASE("a holder's expiry does not delay a poll") {
    poll_pacing pacing{interval};
    auto found = found_at(2);
    found.holder_expires(start + 300ms);
    CHECK(pause_after(pacing, found) == 4ms);
}

TEST_CASE("polls follow the start of a sleep soon, then with pauses four times as long each") {
    poll_pacing pacing{interval};
    pacing.before_sleep(start, false);
    CHECK(pacing.due() == start + 3ms);
    CHECK(pause_after(pacing, found_at(50, true), poll_pacing::wakeup::new_sleep) == 12ms);
    CHECK(pause_after(pacing, found_at(50, true), poll_pacing::wakeup::sleep) == 48ms);
    CHECK(pause_after(pacing, found_at(50), poll_pacing::wakeup::sleep) == 192ms);
    CHECK(pause_after(pacing, found_at(50), poll_pacing::wakeup::sleep) == 768ms);
    CHECK(pause_after(pacing, found_at(50), poll_pacing::wakeup::sleep) == interval);
    CHECK(pause_after(pacing, found_at(50), poll_pacing::wakeup::new_sleep) == 12ms);
    poll_pacing impatient{10ms};
    CHECK(pause_after(impatient, found_at(50), poll_pacing::wakeup::new_sleep) == 10ms);
}

TEST_CASE("polls of a sleep that began without one do not follow each other at once") {
    poll_pacing pacing{interval};
    CHECK(pause_after(pacing, found_at(1), poll_pacing::wakeup::sleep) == 12ms);
    CHECK(pause_after(pacing, found_at(1), poll_pacing::wakeup::sleep) == 48ms);
}

TEST_CASE("a sleep that follows another one is polled later") {
    poll_pacing pacing{interval};
    pacing.before_sleep(start, true);
    CHECK(pacing.due() == start + 12ms);
}

TEST_CASE("a wake-up that is not read in time is polled for") {
    poll_pacing pacing{interval};
    make_poll(pacing, start, 1ms, found_at(1), poll_pacing::wakeup::notification);
    pacing.about_to_read(start + 12ms);
    pacing.about_to_read(start + 15ms);
    CHECK(pacing.due() == start + 12ms);
    SUBCASE("read") {
        pacing.was_read();
        CHECK(pacing.due() == start + interval);
    }
    SUBCASE("read, while another poll was planned") {
        pacing.no_later_than(start + 14ms);
        pacing.was_read();
        CHECK(pacing.due() == start + 14ms);
    }
    SUBCASE("a poll comes first") {
        make_poll(pacing, start + 5ms, 1ms, found_at(1), poll_pacing::wakeup::notification);
        CHECK(pacing.due() == start + 5ms + interval);
    }
}

TEST_CASE("each new sleep is taken once, also if others followed it") {
    poll_pacing pacing{interval};
    CHECK_FALSE(pacing.take_new_sleep());
    pacing.before_sleep(start, true);
    CHECK_FALSE(pacing.take_new_sleep());
    pacing.before_sleep(start, false);
    pacing.before_sleep(start + 2s, true);
    make_poll(pacing, start + 2s, 1ms, found_at(1), poll_pacing::wakeup::sleep);
    CHECK(pacing.take_new_sleep());
    CHECK_FALSE(pacing.take_new_sleep());
}

TEST_CASE("an unknown queue counts as the quickest") {
    queue_progress progress;
    progress.observe(start, 0, 11);
    CHECK(progress.expected_wait(11) == 3ms);
    CHECK(progress.still_for(start + 5ms) == 5ms);
}

TEST_CASE("the speed of a queue is that of its latest steps") {
    queue_progress progress;
    progress.observe(start, 0, 21);
    progress.observe(start + 50ms, 21, 11);
    CHECK(progress.expected_wait(11) == 50ms);
    CHECK(progress.still_for(start + 51ms) == 1ms);
    progress.observe(start + 70ms, 11, 1);
    CHECK(progress.expected_wait(6) == 10ms);
    CHECK(progress.expected_wait(2) == 2ms);
    CHECK(progress.expected_wait(1) == 2ms);
}

TEST_CASE("no queue counts as quicker than 300 microseconds a step") {
    queue_progress progress;
    progress.observe(start, 0, 1001);
    progress.observe(start + 1ms, 1001, 11);
    CHECK(progress.expected_wait(11) == 3ms);
}

TEST_CASE("an entry without progress shows that its queue has become slower") {
    auto progress = moving(5ms);
    progress.observe(start + 4ms, 990, 990);
    CHECK(progress.expected_wait(2) == 5ms);
    progress.observe(start + 60ms, 990, 990);
    CHECK(progress.expected_wait(2) == 60ms);
    CHECK(progress.still_for(start + 60ms) == 60ms);
}

TEST_CASE("a waiter that is notified by name rests for all of its expected time") {
    const auto pacing = polled_at(start);
    CHECK(pacing.unwatch_for(11, moving(20ms), true) == 200ms);
    CHECK(pacing.unwatch_for(1, moving(20ms), true) == 20ms);
}

TEST_CASE("a waiter that is not notified by name rests for half of its expected time at most") {
    const auto pacing = polled_at(start);
    CHECK(pacing.unwatch_for(11, moving(2ms), false) == 10ms);
    CHECK(pacing.unwatch_for(11, moving(8ms), false) == 40ms);
}

TEST_CASE("in a slow queue it rests for 5 ms an entry, or an eighth of the time without a step") {
    const auto moved = moving(1s);
    CHECK(polled_at(start).unwatch_for(11, moved, false) == 50ms);
    CHECK(polled_at(start + 400ms).unwatch_for(11, moved, false) == 50ms);
    CHECK(polled_at(start + 800ms).unwatch_for(11, moved, false) == 100ms);
}

TEST_CASE("a waiter rests for a millisecond at least") {
    const auto pacing = polled_at(start);
    CHECK(pacing.unwatch_for(2, moving(300us), true) == 1ms);
    CHECK(pacing.unwatch_for(2, moving(300us), false) == 1ms);
}

TEST_CASE("the first waiter watches the file, the third only if it is not notified by name") {
    CHECK(poll_pacing::should_watch(1, true));
    CHECK_FALSE(poll_pacing::should_watch(2, true));
    CHECK(poll_pacing::should_watch(3, false));
    CHECK_FALSE(poll_pacing::should_watch(4, false));
}

TEST_CASE(
    "after a commit the first waiter polls at once, at most as often as its polls and 200 us "
    "allow") {
    for (const auto& [cost, rest] :
         {std::pair<nanoseconds, nanoseconds>{50us, 200us}, {700us, 700us}}) {
        poll_pacing pacing{interval};
        make_poll(pacing, start, cost, found_at(1), poll_pacing::wakeup::notification);
        pacing.after_commit(1);
        CHECK(pacing.due() == start + rest);
    }
}

TEST_CASE(
    "after a commit the other waiters rest for the quickest hand-overs to those before them") {
    for (const auto& [position, rest] : {std::pair<std::int64_t, nanoseconds>{2, 500us},
                                         {3, 600us},
                                         {64, 18900us},
                                         {65, 18900us},
                                         {1'000'000, 18900us}}) {
        poll_pacing pacing{interval};
        make_poll(pacing, start, 100us, found_at(position), poll_pacing::wakeup::notification);
        pacing.after_commit(position);
        CHECK(pacing.due() == start + rest);
    }
}

TEST_CASE("a commit does not delay a poll") {
    poll_pacing pacing{interval};
    make_poll(pacing, start, 100us, found_at(64), poll_pacing::wakeup::none);
    pacing.no_later_than(start + 1ms);
    pacing.after_commit(64);
    CHECK(pacing.due() == start + 1ms);
}

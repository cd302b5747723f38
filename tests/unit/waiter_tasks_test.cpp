#include "lock/queue/waiter_tasks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock::detail;
using namespace std::chrono_literals;
using rowlock::base::alarm;

namespace {

struct task_fixture {
    int work = 0;
    waiter_tasks tasks{[this] { ++work; }};
};

std::vector<std::string> names_of(const waiter_tasks::due_names& due) {
    std::vector<std::string> names;
    for (const auto& [name, when] : due) names.push_back(name);
    std::ranges::sort(names);
    return names;
}

}  // namespace

TEST_CASE("a check is deferred once, and withdrawn or hastened unless it was planned anew") {
    task_fixture at;
    CHECK_FALSE(at.tasks.defer_check("a", 10ms));
    at.tasks.check_for_waiters("a", false, 10ms);
    const auto first = at.tasks.defer_check("a", 10ms);
    REQUIRE(first);
    CHECK_FALSE(at.tasks.defer_check("a", 10ms));  // by another attempt
    CHECK(at.tasks.next_due() == 30ms);
    CHECK(at.tasks.hasten_check("a", *first, 12ms));
    CHECK_FALSE(at.tasks.defer_check("a", 12ms));  // the loop has it first
    CHECK(names_of(at.tasks.take_checks(12ms)) == std::vector<std::string>{"a"});
    CHECK_FALSE(at.tasks.hasten_check("a", *first, 12ms));

    at.tasks.check_for_waiters("a", false, 40ms);
    const auto second = at.tasks.defer_check("a", 40ms);
    REQUIRE(second);
    at.tasks.check_for_waiters("a", false, 41ms);  // by a later release
    at.tasks.withdraw_check("a", *second, 41ms);
    CHECK(at.tasks.next_due() == 42ms);
    const auto third = at.tasks.defer_check("a", 41ms);
    REQUIRE(third);
    at.tasks.withdraw_check("a", *third, 41ms);
    CHECK(at.tasks.next_due() == alarm::never);
}

TEST_CASE("a check that waits for an open transaction is not deferred, to its last repetition") {
    task_fixture at;
    at.tasks.check_for_a_while("a", 0ms);
    nanoseconds now{0};
    while (at.tasks.next_due() != alarm::never) {
        CHECK_FALSE(at.tasks.defer_check("a", now));
        now = at.tasks.next_due();
        at.tasks.checked(at.tasks.take_checks(now), false, now);
    }
    CHECK(now > 1s);
}

TEST_CASE("a planned check wakes the loop only if that sleeps for longer") {
    task_fixture at;
    at.tasks.check_for_waiters("a", false, 10ms);
    at.tasks.check_for_waiters("b", false, 10ms);
    CHECK(at.work == 1);
    const auto one = at.tasks.defer_check("a", 10ms);
    REQUIRE(one);
    at.tasks.withdraw_check("a", *one, 10ms);
    at.tasks.check_for_waiters("a", false, 10ms + 100us);  // later than the loop wakes
    CHECK(at.work == 1);
    (void)at.tasks.take_checks(1s);
    CHECK(at.tasks.next_due() == alarm::never);
    at.tasks.check_for_waiters("a", false, 2s);
    CHECK(at.work == 2);
}

TEST_CASE("released leases are checked together, a millisecond after the first") {
    task_fixture at;
    CHECK(at.tasks.next_due() == alarm::never);
    at.tasks.check_for_waiters("a", false, 10ms);
    at.tasks.check_for_waiters("b", false, 10ms + 400us);
    CHECK(at.work == 1);
    CHECK(at.tasks.next_due() == 11ms);
    CHECK(names_of(at.tasks.take_checks(12ms)) == std::vector<std::string>{"a", "b"});
    CHECK(at.tasks.next_due() == alarm::never);
}

TEST_CASE("a check that found no waiter delays the next ones, for a while") {
    task_fixture at;
    at.tasks.check_for_waiters("a", false, 10ms);
    at.tasks.checked(at.tasks.take_checks(11ms), false, 11ms);
    at.tasks.check_for_waiters("b", false, 12ms);
    CHECK(at.tasks.next_due() == 17ms);
    (void)at.tasks.take_checks(17ms);
    at.tasks.check_for_waiters("c", false, 30ms);
    CHECK(at.tasks.next_due() == 31ms);
}

TEST_CASE("where a release checks by itself, the check behind it comes later") {
    task_fixture at;
    at.tasks.check_for_waiters("a", true, 10ms);
    CHECK(at.tasks.next_due() == 20ms);
    at.tasks.check_now("a", 10ms);
    CHECK(at.tasks.next_due() == 10ms);
    CHECK(at.work == 1);
}

TEST_CASE(
    "a release in an open transaction is checked for two seconds, with longer and longer pauses") {
    task_fixture at;
    at.tasks.check_for_a_while("a", 0ms);
    nanoseconds now{0};
    int checks = 0;
    while (at.tasks.next_due() != alarm::never) {
        now = at.tasks.next_due();
        at.tasks.checked(at.tasks.take_checks(now), true, now);
        ++checks;
    }
    CHECK(checks == 10);
    CHECK(now == 2046ms);
}

TEST_CASE("checks that failed are due again") {
    task_fixture at;
    at.tasks.check_for_waiters("a", false, 10ms);
    const auto taken = at.tasks.take_checks(11ms);
    CHECK(at.tasks.take_checks(11ms).empty());
    at.tasks.retry_checks(taken);
    CHECK(names_of(at.tasks.take_checks(11ms)) == std::vector<std::string>{"a"});
    at.tasks.check_for_waiters("a", false, 20ms);
    at.tasks.forget_checks();
    CHECK(at.tasks.next_due() == alarm::never);
}

TEST_CASE("a lease that is to be granted is taken once, and again where its row was locked") {
    task_fixture at;
    at.tasks.serve("a", 5ms);
    at.tasks.serve("a", 6ms);
    CHECK(at.tasks.next_due() == 5ms);
    const auto taken = at.tasks.take_names_to_serve(6ms);
    REQUIRE(taken.size() == 1);
    CHECK_FALSE(taken[0].second.counted);
    CHECK(at.tasks.take_names_to_serve(6ms).empty());
    at.tasks.retry_serving("a", taken[0].second.postponed(6ms));
    CHECK(at.tasks.next_due() > 6ms);
    CHECK(at.tasks.next_due() < 1s);
    CHECK(at.work == 0);
}

TEST_CASE("a queue that a counted hold has left is served as such, also after a locked row") {
    task_fixture at;
    at.tasks.serve("a", 9ms);
    at.tasks.serve("a", 5ms, rowlock::protocol::queue_head::counted);
    const auto taken = at.tasks.take_names_to_serve(9ms);
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].second.counted);
    CHECK(taken[0].second.postponed(9ms).counted);
}

TEST_CASE("an ended session stays until its queues were found; then its entries are deleted") {
    task_fixture at;
    at.tasks.session_ended(rowlock::session_id{7});
    CHECK(at.work == 1);
    CHECK(at.tasks.next_due() == 0ms);
    CHECK(at.tasks.next_ended_session() == rowlock::session_id{7});
    CHECK(at.tasks.next_ended_session() == rowlock::session_id{7});
    at.tasks.session_done(rowlock::session_id{7});
    CHECK_FALSE(at.tasks.next_ended_session());
    CHECK(at.tasks.next_due() == 0ms);  // its entries are to be deleted
    CHECK(at.tasks.next_session_with_entries() == rowlock::session_id{7});
    CHECK(at.tasks.next_session_with_entries() == rowlock::session_id{7});
    at.tasks.entries_deleted(rowlock::session_id{7});
    CHECK_FALSE(at.tasks.next_session_with_entries());
    CHECK(at.tasks.next_due() == alarm::never);
}

TEST_CASE("a grant is verified when it is due, and stays until that was done") {
    task_fixture at;
    const auto which =
        std::make_shared<waiter>("a", rowlock::grant_id{11}, nullptr, "", std::nullopt);
    at.tasks.verify({which, nullptr, 5, 10ms});
    at.tasks.verify({which, nullptr, 5, 12ms});
    CHECK(at.tasks.next_due() == 10ms);
    CHECK_FALSE(at.tasks.next_unverified(9ms));
    const auto one = at.tasks.next_unverified(10ms);
    REQUIRE(one);
    CHECK(one->token == 5);
    CHECK(at.tasks.next_unverified(10ms));
    at.tasks.verified(*one);  // both hints were of one grant
    CHECK_FALSE(at.tasks.next_unverified(20ms));
}

TEST_CASE("a wake-up without a name is read at once, and once for all") {
    task_fixture at;
    CHECK_FALSE(at.tasks.take_read_served());
    at.tasks.read_served();
    at.tasks.read_served();
    CHECK(at.tasks.next_due() == 0ms);
    CHECK(at.tasks.take_read_served());
    CHECK_FALSE(at.tasks.take_read_served());
}

TEST_CASE("what is left at the end is handed to another connection") {
    task_fixture at;
    at.tasks.check_for_waiters("checked", false, 10ms);
    at.tasks.serve("served", 10ms);
    at.tasks.session_ended(rowlock::session_id{8});
    at.tasks.session_done(rowlock::session_id{8});
    at.tasks.session_ended(rowlock::session_id{7});
    auto rest = at.tasks.close();
    CHECK(rest.names == std::vector<std::string>{"checked"});
    CHECK(rest.queues == std::vector<std::string>{"served"});
    CHECK(rest.sessions == std::vector{rowlock::session_id{7}, rowlock::session_id{8}});
}

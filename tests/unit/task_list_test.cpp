#include "lock/queue/task_list.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <iterator>
#include <string>

using namespace std::chrono_literals;
using rowlock::detail::task;
using rowlock::detail::task_list;
using std::chrono::nanoseconds;

namespace {

/// Takes the only task of a list.
task take_one(task_list& list) {
    const auto taken = list.take_due(rowlock::base::alarm::never);
    REQUIRE(taken.size() == 1);
    return taken.front().second;
}

}  // namespace

TEST_CASE("the next task of a list is its earliest, and an empty list has none") {
    task_list list;
    CHECK(list.next_due() == rowlock::base::alarm::never);
    list.plan("late", {9ms});
    list.plan("early", {3ms});
    list.plan("between", {5ms});
    CHECK(list.next_due() == 3ms);
}

TEST_CASE("only tasks that are due are taken, each once") {
    task_list list;
    list.plan("past", {3ms});
    list.plan("now", {5ms});
    list.plan("future", {5ms + 1ns});
    CHECK(list.take_due(5ms).size() == 2);
    CHECK(list.take_due(5ms).empty());
    CHECK(list.next_due() == 5ms + 1ns);
    const auto last = list.take_due(6ms);
    REQUIRE(last.size() == 1);
    CHECK(last.front().first == "future");
    CHECK(list.begin() == list.end());
}

TEST_CASE("two tasks with one name become one task at the earlier time") {
    task_list list;
    list.plan("seat", {5ms});
    list.plan("seat", {3ms});
    list.plan("seat", {4ms});
    CHECK(std::distance(list.begin(), list.end()) == 1);
    CHECK(take_one(list).at == 3ms);
}

TEST_CASE("two tasks with one name are repeated as often as the one with more repetitions") {
    task_list list;
    list.plan("seat", {5ms, 2ms, 3});
    list.plan("seat", {5ms, 4ms, 1});
    CHECK(list.begin()->second.again == 3);
    list.plan("seat", {5ms, 6ms, 9});
    CHECK(take_one(list).again == 9);
}

TEST_CASE("a repeated task sets the pause of the task that it joins, a single one does not") {
    task_list list;
    list.plan("seat", {5ms, 2ms, 3});
    list.plan("seat", {5ms, 7ms});
    CHECK(list.begin()->second.pause == 2ms);
    list.plan("seat", {5ms, 4ms, 1});
    CHECK(take_one(list).pause == 4ms);
}

TEST_CASE("repetitions double their pause until none remains") {
    task_list list;
    task done{100ms, 2ms, 2};
    list.repeat("seat", done, 101ms);
    done = take_one(list);
    CHECK(done.at == 105ms);
    CHECK(done.pause == 4ms);
    CHECK(done.again == 1);
    list.repeat("seat", done, 105ms);
    done = take_one(list);
    CHECK(done.at == 113ms);
    CHECK(done.again == 0);
    list.repeat("seat", done, 113ms);
    CHECK(list.next_due() == rowlock::base::alarm::never);
}

TEST_CASE("a failed task is postponed by 100 ms at first, and later by up to a second") {
    task failed{7ms, 0ns, 5};
    for (const nanoseconds pause : {100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
        failed = failed.postponed(3s);
        CHECK(failed.at == 3s + pause);
        CHECK(failed.pause == pause);
    }
    CHECK(failed.again == 5);
}

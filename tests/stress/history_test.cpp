// The stress tests' checkers find what they look for.

#include "stress/history.hpp"

#include <doctest/doctest.h>

using namespace stress;

namespace {

hold held(std::int64_t token, micros from, micros until) {
    hold one;
    one.name = "a";
    one.token = token;
    one.called = from - 5;
    one.acquired = one.db_begin = from;
    one.believed_until = one.db_end = one.release_called = until;
    one.released = until + 1;
    one.result = "ok";
    return one;
}

attempt asked(std::int64_t token, micros called, micros waiting) {
    attempt one;
    one.name = "a";
    one.token = token;
    one.called = called;
    one.waiting = waiting;
    one.returned = 1'000;
    one.queues = true;
    one.result = "granted";
    return one;
}

history of(std::vector<hold> holds, std::vector<attempt> attempts = {}) {
    history all;
    all.holds = std::move(holds);
    all.attempts = std::move(attempts);
    return all;
}

}  // namespace

TEST_CASE("holds one after the other break no rule") {
    const auto all = of({held(1, 10, 20), held(2, 20, 30), held(5, 40, 50)});
    CHECK(overlaps(all).empty());
    CHECK(overlapping_beliefs(all).empty());
    CHECK(token_regressions(all).empty());
    CHECK(late_grants(all, {}, {.usual = 11, .after_fault = 11}).empty());
}

TEST_CASE("a hold that was ended by force overlaps nobody, the others do") {
    auto all = of({held(1, 10, 40), held(3, 20, 30), held(4, 25, 50)});
    CHECK(overlapping_beliefs(all).size() == 2);
    all.forced = {{"a", 15, 18}};
    CHECK(overlapping_beliefs(all).size() == 1);  // 3 and 4: no force took the lock from 3
    CHECK(overlaps(all).size() == 1);
    all.forced = {{"b", 15, 18}};
    CHECK(overlapping_beliefs(all).size() == 2);
}

TEST_CASE("an overlap is found, also with one that is not the neighbour") {
    CHECK(overlaps(of({held(1, 10, 21), held(2, 20, 30)})).size() == 1);
    CHECK(overlapping_beliefs(of({held(1, 10, 100), held(2, 20, 30), held(3, 40, 50)})).size() ==
          2);
    auto elsewhere = held(2, 15, 30);
    elsewhere.name = "b";
    CHECK(overlaps(of({held(1, 10, 20), elsewhere})).empty());
}

TEST_CASE("a hold that was lost before its first look has no time in it") {
    auto lost = held(1, 10, 90);
    lost.db_begin = lost.db_end = 0;
    CHECK(overlaps(of({lost, held(2, 20, 30)})).empty());
}

TEST_CASE("a token that repeats or goes back is found") {
    CHECK(token_regressions(of({held(2, 10, 20), held(2, 30, 40)})).size() == 1);
    CHECK(token_regressions(of({held(3, 10, 20), held(2, 30, 40)})).size() == 1);
}

TEST_CASE("who came after a place had been taken must not be served before it") {
    CHECK(unfair_calls(of({}, {asked(1, 10, 15), asked(2, 20, 25)})).empty());
    CHECK(unfair_calls(of({}, {asked(2, 10, 15), asked(1, 20, 25)})).size() == 1);
    // They overlap: either order.
    CHECK(unfair_calls(of({}, {asked(2, 10, 22), asked(1, 20, 25)})).empty());
    // Far apart in the order of service, and the passer-by never had a place.
    CHECK(unfair_calls(of({}, {asked(9, 10, 15), asked(8, 12, 19), asked(1, 20, 0)})).size() == 1);
    auto barging = asked(1, 20, 0);
    barging.queues = false;
    CHECK(unfair_calls(of({}, {asked(2, 10, 15), barging})).empty());
}

TEST_CASE("a grant that comes late is found, and excused by a fault") {
    const auto all = of({held(1, 10, 20), held(2, 90, 95)});
    auto waited = all;
    waited.holds[1].called = 12;
    CHECK(late_grants(all, {}, {.usual = 50, .after_fault = 60}).empty());
    CHECK(late_grants(waited, {}, {.usual = 50, .after_fault = 60}).size() == 1);
    CHECK(late_grants(waited, {{15, 35, "kill"}}, {.usual = 50, .after_fault = 60}).empty());
    CHECK(late_grants(waited, {{15, 15, "kill"}}, {.usual = 50, .after_fault = 60}).size() == 1);
    CHECK(hand_offs(waited).at(0).took == 70);
    CHECK(hand_offs(all).empty());
}

TEST_CASE("a wait in vain for a lease that was free is found") {
    auto vain = asked(0, 12, 13);
    vain.result = "none";
    vain.returned = 100;
    CHECK(late_grants(of({held(1, 10, 20)}, {vain}), {}, {.usual = 50, .after_fault = 60}).size() ==
          1);
    CHECK(late_grants(of({held(1, 10, 60)}, {vain}), {}, {.usual = 50, .after_fault = 60}).empty());
}

TEST_CASE("results that nobody expects are counted") {
    auto odd = held(1, 10, 20);
    odd.result = "timed_out";
    CHECK(unexpected_results(of({odd, held(2, 20, 30)}), {"ok"}).size() == 1);
}

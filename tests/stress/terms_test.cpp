// The checkers of the stress test of elections find the violations for which they check.

#include "stress/terms.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace stress;
using rowlock::history_kind;
using rowlock::history_record;

namespace {

std::string name_of(std::int64_t term) {
    return "candidate-" + std::to_string(term);
}

believed_term believed(std::int64_t term, micros from, micros until) {
    return {.term = term,
            .value = name_of(term),
            .proclaimed = {},
            .begun = from,
            .until = until,
            .known = from,
            .changed = 0};
}

look saw(micros called, micros returned, std::int64_t term) {
    return {0, called, returned, true, term, true, name_of(term)};
}
look saw_none(micros called, micros returned, std::int64_t after) {
    return {0, called, returned, true, after, false, {}};
}
look saw_nothing_new(micros called, micros returned) {
    return {0, called, returned, false, 0, false, {}};
}

history_record recorded(history_kind kind, std::int64_t term, micros at) {
    history_record one;
    one.at = decltype(one.at){std::chrono::microseconds{at}};
    one.kind = kind;
    one.name = "office";
    one.token = rowlock::fencing_token{term};
    one.session = rowlock::session_id{100 + term};
    one.note = name_of(term);
    return one;
}
history_record expiry(std::int64_t term, micros at, micros expired) {
    auto one = recorded(history_kind::session_expired, term, at);
    one.name.clear();
    one.ends_at = decltype(one.at){std::chrono::microseconds{expired}};
    return one;
}

/// Term 1 from 100, its leader killed, none from 200; term 2 from 250, handed over to term 3 at
/// 400, which is released at 500.
std::vector<history_record> truth() {
    return {recorded(history_kind::granted, 1, 100), expiry(1, 240, 200),
            recorded(history_kind::taken_over, 2, 250), recorded(history_kind::handed_over, 3, 400),
            recorded(history_kind::released, 3, 500)};
}

election_history leaders() {
    election_history all;
    all.terms = {believed(1, 110, 190), believed(2, 260, 380), believed(3, 410, 480)};
    all.kills = {150};
    return all;
}

/// Whose looks break no rule.
std::vector<look> good_looks() {
    return {saw_none(50, 51, 0),      saw(60, 105, 1),           saw_nothing_new(120, 180),
            saw_none(181, 201, 1),    saw(202, 255, 2),          saw_nothing_new(265, 405),
            saw(406, 408, 3),         saw_nothing_new(409, 499), saw_none(499, 502, 3),
            saw_nothing_new(503, 600)};
}

violations wrong(std::vector<look> looks, election_history all = leaders()) {
    all.looks = std::move(looks);
    const auto states = states_of("office", truth(), all);
    return wrong_looks(all, states, 0);
}

}  // namespace

TEST_CASE("terms one after the other, and looks at all of them, break no rule") {
    auto all = leaders();
    all.looks = good_looks();
    const auto states = states_of("office", truth(), all);
    REQUIRE(states.size() == 6);  // none, 1, none, 2, 3, none
    CHECK_FALSE(states[2].led);
    CHECK(states[2].from == 200);
    CHECK(states[2].certain == 200);
    CHECK(states[4].term == 3);
    CHECK(falling_terms(all).empty());
    CHECK(overlapping_terms(all).empty());
    CHECK(unrecorded_terms(all, states).empty());
    CHECK(wrong_looks(all, states, 0).empty());
    CHECK(unseen_ends(all, states, 1).empty());
    CHECK(late_leaders(all, 120).empty());
    CHECK(vacancies(all) == std::vector<micros>{110});
    const auto seen = seen_by(0, all, states);
    CHECK(seen.terms == 3);
    CHECK(seen.missed_terms == 0);
    CHECK(seen.vacancies == 2);
    CHECK(seen.missed_vacancies == 0);
}

TEST_CASE("an observer may miss what came and went between two looks") {
    CHECK(wrong({saw(150, 160, 1), saw(265, 270, 2), saw_none(520, 525, 3)}).empty());
    CHECK(wrong({saw(420, 425, 3)}).empty());
    auto all = leaders();
    all.looks = {saw(420, 425, 3)};
    const auto states = states_of("office", truth(), all);
    CHECK(seen_by(0, all, states).missed_terms == 2);
    CHECK(seen_by(0, all, states).missed_vacancies == 2);
    all.terms.erase(all.terms.begin());  // the candidate died before it led
    CHECK(seen_by(0, all, states).missed_terms == 1);
    CHECK(seen_by(0, all, states).missed_passing == 1);
}

TEST_CASE("a term that repeats or falls is found") {
    auto all = leaders();
    all.terms[2].term = 2;
    CHECK(falling_terms(all).size() == 1);
    all.terms[2].term = 1;
    CHECK(falling_terms(all).size() == 1);
}

TEST_CASE("two leaders at one moment are found, also if others led between them") {
    auto all = leaders();
    all.terms[0].until = 261;
    CHECK(overlapping_terms(all).size() == 1);
    all.terms[0].until = 415;
    CHECK(overlapping_terms(all).size() == 2);
}

TEST_CASE("a leader with another's term, or one that was never given, is found") {
    auto all = leaders();
    const auto states = states_of("office", truth(), all);
    all.terms[1].value = name_of(7);
    CHECK(unrecorded_terms(all, states).size() == 1);
    all.terms[2].term = 9;
    CHECK(unrecorded_terms(all, states).size() == 2);
}

TEST_CASE("a look at what never was is found") {
    CHECK(wrong({saw(150, 160, 4)}).size() == 1);  // a term that was not given
    auto wrong_value = saw(150, 160, 1);
    wrong_value.value = name_of(2);
    CHECK(wrong({wrong_value}).size() == 1);
    // Term 2 was handed over: there never was a moment without a leader.
    CHECK(wrong({saw(300, 310, 2), saw_none(395, 405, 2)}).size() == 1);
}

TEST_CASE("looks in another order than the terms, or twice the same, are found") {
    CHECK(wrong({saw(270, 280, 2), saw(281, 290, 1)}).size() == 2);  // earlier, and missed
    CHECK(wrong({saw(270, 280, 2), saw(281, 290, 2)}).size() == 1);
    CHECK(wrong({saw(270, 280, 2), saw_none(281, 290, 1)}).size() == 2);
}

TEST_CASE("a term or a vacancy that is seen before it began is found") {
    CHECK(wrong({saw(80, 99, 1)}).size() == 1);
    CHECK(wrong({saw(120, 130, 1), saw_none(150, 199, 1)}).size() == 1);
}

TEST_CASE("a look that misses the latest term, or that there is none, is found") {
    auto looks = good_looks();
    SUBCASE("a term, when another is seen") {
        CHECK(wrong({saw(261, 262, 1)}).size() == 1);
    }
    SUBCASE("a term, when nothing new is seen") {
        looks[4] = saw_nothing_new(202, 255);
        CHECK(wrong(looks).size() == 1);  // of the look after it
    }
    SUBCASE("that a leader which died is none") {
        looks[3] = saw_nothing_new(181, 201);
        looks[4] = saw_nothing_new(202, 255);
        CHECK_FALSE(wrong(looks).empty());
    }
    SUBCASE("everything, at first") {
        CHECK(wrong({saw_nothing_new(10, 20)}).size() == 1);
    }
}

TEST_CASE("an observer whose last look is not at the end is found") {
    auto all = leaders();
    const auto states = states_of("office", truth(), all);
    all.looks = good_looks();
    all.looks.resize(8);
    CHECK(unseen_ends(all, states, 1).size() == 1);  // term 3, and not none
    all.looks = good_looks();
    CHECK(unseen_ends(all, states, 2).size() == 1);  // another observer saw nothing
    all.looks[8] = saw_none(499, 502, 2);
    CHECK(unseen_ends(all, states, 1).size() == 1);
}

TEST_CASE("a value that its leader changed is seen after the first one, and from then on") {
    auto all = leaders();
    all.terms[1].proclaimed = "again";
    all.terms[1].changed = 300;
    auto changed = saw(290, 299, 2);
    changed.value = "again";
    CHECK(wrong({saw(265, 270, 2), changed}, all).empty());
    CHECK(wrong({saw(265, 270, 2), saw_nothing_new(290, 320), saw_nothing_new(321, 330)}, all)
              .size() == 1);
    CHECK(wrong({changed, saw(310, 311, 2)}, all).size() == 2);
    all.terms[1].changed = 0;  // killed meanwhile: perhaps it was changed
    CHECK(wrong({saw(265, 270, 2), saw_nothing_new(290, 320), saw_nothing_new(321, 330)}, all)
              .empty());
}

TEST_CASE("a leader whose session had ended before its grant is never certain to be seen") {
    const std::vector<history_record> records{recorded(history_kind::granted, 1, 100),
                                              expiry(1, 101, 90),
                                              recorded(history_kind::taken_over, 2, 110)};
    election_history all;
    all.terms = {believed(2, 115, 200)};
    const auto states = states_of("office", records, all);
    REQUIRE(states.size() == 4);
    all.looks = {saw_none(95, 96, 0), saw_nothing_new(97, 99), saw(111, 112, 2)};
    CHECK(wrong_looks(all, states, 0).empty());
}

TEST_CASE("an office without a leader for long after a kill is found") {
    auto all = leaders();
    CHECK(late_leaders(all, 109).size() == 1);
    all.kills = {450};
    CHECK(late_leaders(all, 1'000'000).size() == 1);  // for ever
}

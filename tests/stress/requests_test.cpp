// The checkers of the stress test of requests for several locks find the violations for which they
// check.

#include "stress/requests.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace stress;
using rowlock::history_kind;

namespace {

const std::string three = note_of_request(7, 1, 3);
const std::string two = note_of_request(8, 5, 2);
const holdings::key_type three_held{17, three};
const holdings::key_type two_held{18, two};

rowlock::history_record grant(const std::string& note, const std::string& name,
                              history_kind kind = history_kind::granted) {
    rowlock::history_record one;
    one.kind = kind;
    one.name = name;
    one.note = note;
    return one;
}

}  // namespace

TEST_CASE("requests that get all of their leases at once, and lose some of them, break no rule") {
    held_parts parts;
    parts.see({});
    parts.see({{three_held, {3}}, {two_held, {2}}});
    parts.see({{three_held, {3}}, {two_held, {1}}});
    parts.see({{three_held, {1}}});
    parts.see({});
    CHECK(parts.found().empty());
}

TEST_CASE("a request that first holds a part of its leases is found") {
    held_parts parts;
    parts.see({{three_held, {1}}, {two_held, {2}}});
    parts.see({{three_held, {1}}});
    CHECK(parts.found().empty());
    parts.see({{three_held, {2}}});
    CHECK(parts.found().size() == 1);
    parts.see({{two_held, {1}}});
    parts.see({{two_held, {2}}});
    CHECK(parts.found().size() == 2);
}

TEST_CASE("a request that holds a part of its leases and waits for another is found at once") {
    held_parts parts;
    parts.see({{three_held, {2, true}}, {two_held, {2}}});
    parts.see({{three_held, {2, true}}, {two_held, {2}}});
    CHECK(parts.found().size() == 1);
}

TEST_CASE("a request with more leases than it asked for is found") {
    held_parts parts;
    parts.see({{two_held, {3}}});
    CHECK(parts.found().size() == 1);
}

TEST_CASE("a request of which a part was granted for good is found") {
    granted_parts all;
    all.see(grant(two, "a"));
    all.see(grant(three, "a", history_kind::taken_over));
    all.see(grant(three, "b", history_kind::handed_over));
    all.see(grant(two, "b"));
    CHECK(all.requests() == 2);
    CHECK(all.found().size() == 1);  // of three
    all.see(grant(three, "c"));
    CHECK(all.found().empty());
    all.see(grant(two, "a"));  // again: given back and granted anew, except a part
    CHECK(all.found().size() == 1);
    all.see(grant(two, "b", history_kind::released));  // no grant
    CHECK(all.found().size() == 1);
    all.see(grant(two, "b"));
    CHECK(all.found().empty());
    all.see(grant("of another kind", "a"));
    CHECK(all.found().empty());
}

TEST_CASE("a standstill is as long as no request is granted") {
    standstill none;
    for (const int grants : {1, 2, 2, 2, 3, 3}) none.turn(grants);
    CHECK(none.longest() == 2);
    for (int i = 0; i < 5; ++i) none.turn(3);
    CHECK(none.longest() == 6);
}

// The names that had a waiter recently.

#include "lock/queue/contended_names.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace std::chrono_literals;
using rowlock::detail::contended_names;

TEST_CASE("a name counts as contended for a second after its latest note") {
    contended_names names;
    const contended_names::time start{};
    CHECK_FALSE(names.has("job", start));
    names.note("job", start);
    CHECK(names.has("job", start));
    CHECK(names.has("job", start + 999ms));
    CHECK_FALSE(names.has("job", start + 1s));
    CHECK_FALSE(names.has("another", start));
    names.note("job", start + 900ms);
    CHECK(names.has("job", start + 1800ms));
}

TEST_CASE("expired notes make room for others") {
    contended_names names;
    const contended_names::time start{};
    for (int i = 0; i < 1024; ++i) names.note("old" + std::to_string(i), start);
    CHECK(names.size() == 1024);
    names.note("new", start + 1s + 1ns);
    CHECK(names.size() == 1);
    CHECK(names.has("new", start + 1s + 1ns));
}

TEST_CASE("a name that is forgotten counts as contended no more") {
    contended_names names;
    const contended_names::time start{};
    names.note("job", start);
    names.note("other", start);
    names.forget("job");
    names.forget("unknown");
    CHECK_FALSE(names.has("job", start));
    CHECK(names.has("other", start));
}

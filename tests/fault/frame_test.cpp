// The judgement of the fault suite's frame.

#include "fault/frame.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

using namespace std::chrono_literals;
using fault::outcome;
using fault::row;
using fault::scale;
using fault::trial;

namespace {

outcome judged(row one) {
    one.id = "F0/here";
    return run_here(one, scale::quick, {}, 1);
}

}  // namespace

TEST_CASE("a row passes if no promise broke, all was in time and the control found its fault") {
    const auto found = judged({.quick_rounds = 3,
                               .bound = 10ms,
                               .run =
                                   [](trial& in) {
                                       in.made(in.rounds());
                                       in.took(4ms);
                                       in.took(9ms, "the nearest");
                                       in.took(1ms, "of its own", 2ms);
                                   },
                               .control = [](trial& in) { in.violation("as it must"); }});
    CHECK(found.passed);
    CHECK(found.rounds == 3);
    CHECK(found.violations == 0);
    CHECK(found.control_violations == 1);
    REQUIRE(found.worst);
    CHECK(found.worst->what == "the nearest");
    CHECK(found.worst->took_ms == 9);
    CHECK(found.worst->bound_ms == 10);
}

TEST_CASE("a broken promise, an exception and a failed assertion fail a row") {
    const auto made = [](const std::function<void(trial&)>& action) {
        return judged({.run = [action](trial& in) {
            in.made();
            action(in);
        }});
    };
    CHECK(made([](trial&) {}).passed);
    CHECK_FALSE(made([](trial& in) { in.violation("broken"); }).passed);
    CHECK_FALSE(made([](trial& in) { in.must(false, "broken"); }).passed);
    CHECK_FALSE(made([](trial&) { throw std::runtime_error{"odd"}; }).passed);
    CHECK(made([](trial&) { throw std::runtime_error{"odd"}; }).violations == 1);
    CHECK_FALSE(made([](trial& in) { in.skip("no server"); }).passed);
}

TEST_CASE("a missed bound fails a row, also a bound of a single measurement") {
    const auto timed = [](std::chrono::milliseconds took) {
        return judged({.bound = 100ms, .run = [took](trial& in) {
                           in.made();
                           in.took(1ms);
                           in.took(took, "of its own", 10ms);
                       }});
    };
    CHECK(timed(10ms).passed);
    CHECK_FALSE(timed(11ms).passed);
    CHECK(timed(11ms).violations == 0);
}

TEST_CASE("a result that a busy machine may spoil fails a row without being a violation") {
    const auto spoilt = judged({.run = [](trial& in) {
        in.made();
        in.must_alone(true, "a race");
        in.must_alone(false, "another");
    }});
    CHECK_FALSE(spoilt.passed);
    CHECK(spoilt.violations == 0);
    CHECK(spoilt.spoilt == 1);

    const auto given_up =
        judged({.run = [](trial&) { throw fault::not_prepared{"too late for a round"}; }});
    CHECK_FALSE(given_up.passed);
    CHECK(given_up.violations == 0);
    CHECK(given_up.spoilt == 1);
}

TEST_CASE("the p95 of several times has its own bound") {
    const auto mostly = [](int late) {
        return judged({.run = [late](trial& in) {
            in.made();
            std::vector<fault::duration> all(100, 1ms);
            for (int i = 0; i < late; ++i) all[static_cast<std::size_t>(i)] = 1s;
            in.took_mostly(all, "notices", 50ms);
        }});
    };
    CHECK(mostly(4).passed);
    CHECK_FALSE(mostly(6).passed);
}

TEST_CASE("a control without findings fails its row, and so does a row without a round") {
    const auto one = [](const std::function<void(trial&)>& control) {
        return judged({.bound = 10ms, .run = [](trial& in) { in.made(); }, .control = control});
    };
    CHECK_FALSE(one([](trial& in) { in.made(); }).passed);
    CHECK(one([](trial& in) { in.unprotected("twice", 2); }).control_violations == 2);
    CHECK(one([](trial& in) { in.took(20ms); }).passed);  // the control misses the bound
    CHECK_FALSE(judged({.run = [](trial& in) { in.made(); }, .control_inside = true}).passed);
    CHECK_FALSE(judged({.run = [](trial&) {}}).passed);
}

TEST_CASE("the results of a row's process arrive") {
    auto sent = judged({.run = [](trial& in) {
        in.made(2);
        in.took(3ms, "a thing", 5ms);
        in.violation("a \"quoted\"\nline and a stray byte: \xff");
    }});
    sent.control_violations = 7;
    const auto got = fault::from_line(to_line(sent));
    CHECK(got.id == sent.id);
    CHECK(got.rounds == 2);
    CHECK(got.violations == 1);
    CHECK(got.control_violations == 7);
    CHECK(got.worst->what == "a thing");
    CHECK_FALSE(got.passed);
    CHECK(got.words.size() == 1);
}

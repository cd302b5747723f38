// The rules of latches and double barriers, against every order of events.

#include "lock/protocol/barrier/barrier_round.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

using namespace rowlock::protocol;

namespace {

barrier_round latch_of(std::int64_t size, bool loss_counts) {
    return {.kind = barrier_kind::latch, .size = size, .loss_counts = loss_counts};
}

barrier_round barrier_of(std::int64_t size, bool loss_counts) {
    return {.kind = barrier_kind::double_barrier, .size = size, .loss_counts = loss_counts};
}

/// An answer that was given stays.
void check_kept(const barrier_round& before, const barrier_round& after) {
    CHECK((before.opened == answer::pending || after.opened == before.opened));
    CHECK((before.closed == answer::pending || after.closed == before.closed));
}

}  // namespace

using stage = party_stage;
using event = barrier_event;

TEST_CASE("a latch opens with the last arrival, and not before") {
    auto round = latch_of(3, false);
    round.arrive();
    CHECK(round.apply(event::arrive, stage::registered) == stage::arrived);
    CHECK(round.apply(event::arrive, stage::arrived) == stage::arrived);
    CHECK(round.opened == answer::pending);
    CHECK(round.admits(latch_of(1, true), false, false) == admittance::none);
    CHECK(round.admits(latch_of(1, true), true, true) == admittance::joins);
    round.arrive();
    CHECK(round.opened == answer::given);
    CHECK(round.is_over());
    CHECK(round.admits(round, false, false) == admittance::begins);
    CHECK(round.admits(round, true, true) == admittance::none);
    round.reset();
    CHECK(round.opened == answer::given);
}

TEST_CASE("a lost party of a latch breaks it or counts, if it had not arrived") {
    for (const auto loss : {event::lose, event::abandon}) {
        auto breaks = latch_of(2, false);
        CHECK(breaks.apply(loss, stage::arrived) == stage::arrived);
        CHECK(breaks.opened == answer::pending);
        CHECK(breaks.apply(loss, stage::registered) == stage::arrived);
        CHECK(breaks.opened == answer::broken);
        breaks.arrive();
        breaks.arrive();
        CHECK(breaks.opened == answer::broken);

        auto counts = latch_of(2, true);
        counts.arrive();
        CHECK(counts.apply(event::withdraw, stage::registered) == stage::withdrawn);
        CHECK(counts.opened == answer::pending);
        CHECK(counts.apply(loss, stage::registered) == stage::arrived);
        CHECK(counts.opened == answer::given);
    }
}

TEST_CASE("a double barrier opens when all have entered, and closes when all have departed") {
    for (const auto leave : {event::withdraw, event::abandon}) {
        auto round = barrier_of(2, false);
        round.arrive();
        CHECK(round.admits(round, true, false) == admittance::joins);
        CHECK(round.admits(barrier_of(3, false), true, false) == admittance::refused);
        CHECK(round.apply(leave, stage::arrived) == stage::withdrawn);
        CHECK(round.arrived == 0);
        round.arrive();
        round.arrive();
        CHECK(round.opened == answer::given);
        CHECK(round.admits(round, true, false) == admittance::begins);
        CHECK(round.apply(event::withdraw, stage::arrived) == stage::arrived);
        CHECK(round.apply(event::depart, stage::arrived) == stage::departed);
        CHECK(round.apply(event::depart, stage::departed) == stage::departed);
        CHECK(round.closed == answer::pending);
        CHECK(round.apply(event::abandon, stage::arrived) == stage::departed);
        CHECK(round.closed == answer::given);
    }
}

TEST_CASE("a lost party of a double barrier breaks what is to come, and not what was answered") {
    auto fills = barrier_of(2, false);
    fills.arrive();
    CHECK(fills.apply(event::lose, stage::arrived) == stage::arrived);
    CHECK(fills.opened == answer::broken);
    CHECK(fills.apply(event::abandon, stage::arrived) == stage::arrived);
    CHECK(fills.departed == 0);

    auto open = barrier_of(2, false);
    open.arrive();
    open.arrive();
    CHECK(open.apply(event::lose, stage::arrived) == stage::departed);
    CHECK(open.opened == answer::given);
    CHECK(open.closed == answer::broken);

    auto counts = barrier_of(2, true);
    counts.arrive();
    CHECK(counts.apply(event::lose, stage::arrived) == stage::arrived);
    CHECK_FALSE(counts.suffers_from_losses());
    counts.arrive();
    CHECK(counts.opened == answer::given);
    CHECK(counts.suffers_from_losses());
    CHECK(counts.apply(event::lose, stage::arrived) == stage::departed);
    CHECK(counts.apply(event::depart, stage::arrived) == stage::departed);
    CHECK(counts.closed == answer::given);
}

TEST_CASE("whatever the order of events, an answer stays, and is given for a reason") {
    std::mt19937 random{7};
    for (int trial = 0; trial < 20'000; ++trial) {
        const bool counts = random() % 2 == 0;
        const auto size = static_cast<std::int64_t>(1 + random() % 4);
        const bool latch = random() % 2 == 0;
        auto round = latch ? latch_of(size, counts) : barrier_of(size, counts);
        std::vector<party_stage> parties;
        bool lost_early = false;
        bool lost_late = false;
        bool was_reset = false;
        for (int step = 0; step < 24; ++step) {
            const auto before = round;
            const auto what = random() % 8;
            auto* const one = parties.empty() ? nullptr : &parties[random() % parties.size()];
            if (what < 3 && round.opened == answer::pending && parties.size() < 8) {
                parties.push_back(latch ? party_stage::registered : party_stage::arrived);
                if (!latch) round.arrive();
            } else if (one == nullptr) {
                continue;
            } else if (what < 5) {
                const bool departs = round.opened == answer::given;
                *one = round.apply(latch     ? event::arrive
                                   : departs ? event::depart
                                             : event::none,
                                   *one);
            } else if (what == 5 && !latch) {
                *one = round.apply(event::withdraw, *one);
            } else if (what == 6) {
                const auto harmless = latch ? stage::arrived : stage::departed;
                lost_early = lost_early || (*one < harmless && round.opened == answer::pending);
                lost_late = lost_late ||
                            (!latch && *one == stage::arrived && round.opened == answer::given);
                *one = round.apply(event::lose, *one);
            } else if (what == 7 && random() % 16 == 0) {
                was_reset = was_reset || round.opened == answer::pending;
                round.reset();
            }
            check_kept(before, round);
        }
        std::array<std::int64_t, 4> at{};
        for (const auto each : parties) ++at.at(static_cast<std::size_t>(each));
        const auto did = at[1] + at[2];  // arrived, or counted
        if (round.opened == answer::given) CHECK(did >= size);
        if (round.opened == answer::broken) CHECK((was_reset || (lost_early && !counts)));
        if (round.closed == answer::given) CHECK(at[2] >= size);
        if (round.closed == answer::broken) CHECK((lost_late && !counts));
        if (round.opened == answer::pending) CHECK(did < size);
    }
}

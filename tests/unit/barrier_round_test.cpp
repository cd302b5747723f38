// The rules of latches and double barriers, against every order of events.

#include "coordination/protocol/barrier/barrier_round.hpp"

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

TEST_CASE("a latch opens with the last arrival, and not before") {
    auto round = latch_of(3, false);
    round.arrive();
    round.arrive();
    CHECK(round.opened == answer::pending);
    round.arrive();
    CHECK(round.opened == answer::given);
    CHECK(round.is_over());
    round.reset();
    CHECK(round.opened == answer::given);
}

TEST_CASE("a lost party of a latch breaks it or counts, if it had not arrived") {
    auto breaks = latch_of(2, false);
    CHECK(breaks.lose(party_stage::arrived) == party_stage::arrived);
    CHECK(breaks.opened == answer::pending);
    CHECK(breaks.lose(party_stage::registered) == party_stage::arrived);
    CHECK(breaks.opened == answer::broken);
    breaks.arrive();
    breaks.arrive();
    CHECK(breaks.opened == answer::broken);

    auto counts = latch_of(2, true);
    counts.arrive();
    counts.lose(party_stage::registered);
    CHECK(counts.opened == answer::given);
}

TEST_CASE("a double barrier opens when all have entered, and closes when all have departed") {
    auto round = barrier_of(2, false);
    round.arrive();
    CHECK(round.takes_parties());
    CHECK(round.withdraw());
    CHECK(round.arrived == 0);
    round.arrive();
    round.arrive();
    CHECK(round.opened == answer::given);
    CHECK_FALSE(round.takes_parties());
    CHECK_FALSE(round.withdraw());
    round.depart();
    CHECK(round.closed == answer::pending);
    round.depart();
    CHECK(round.closed == answer::given);
}

TEST_CASE("a lost party of a double barrier breaks what is to come, and not what was answered") {
    auto fills = barrier_of(2, false);
    fills.arrive();
    CHECK(fills.lose(party_stage::arrived) == party_stage::arrived);
    CHECK(fills.opened == answer::broken);

    auto open = barrier_of(2, false);
    open.arrive();
    open.arrive();
    CHECK(open.lose(party_stage::arrived) == party_stage::departed);
    CHECK(open.opened == answer::given);
    CHECK(open.closed == answer::broken);

    auto counts = barrier_of(2, true);
    counts.arrive();
    CHECK(counts.lose(party_stage::arrived) == party_stage::arrived);
    CHECK_FALSE(counts.suffers_from_losses());
    counts.arrive();
    CHECK(counts.opened == answer::given);
    CHECK(counts.suffers_from_losses());
    CHECK(counts.lose(party_stage::arrived) == party_stage::departed);
    counts.depart();
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
            if (what < 3 && round.takes_parties() && parties.size() < 8) {
                parties.push_back(latch ? party_stage::registered : party_stage::arrived);
                if (!latch) round.arrive();
            } else if (one == nullptr) {
                continue;
            } else if (what < 5) {
                if (latch && *one == party_stage::registered) {
                    *one = party_stage::arrived;
                    round.arrive();
                } else if (!latch && *one == party_stage::arrived &&
                           round.opened == answer::given) {
                    *one = party_stage::departed;
                    round.depart();
                }
            } else if (what == 5 && !latch && *one == party_stage::arrived) {
                if (round.withdraw()) *one = party_stage::withdrawn;
            } else if (what == 6) {
                lost_early =
                    lost_early || (*one < round.harmless() && round.opened == answer::pending);
                lost_late = lost_late || (!latch && *one == party_stage::arrived &&
                                          round.opened == answer::given);
                *one = round.lose(*one);
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

// The decisions of a quorum lock for single events; whole worlds: tests/sim/ballot_simulation
// shows: promise-20
#include "quorum/quorum_ballot.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

using namespace std::chrono_literals;
using rowlock::protocol::quorum_ballot;
using rowlock::protocol::quorum_step;
using std::chrono::nanoseconds;

namespace {

/// Stores that answer at once, and leases that last.
struct calm final : rowlock::protocol::quorum_view {
    nanoseconds trust = 1h;
    [[nodiscard]] nanoseconds trusted_until(int, std::int64_t) const override { return trust; }
    [[nodiscard]] bool answers(int, nanoseconds) const override { return true; }
    [[nodiscard]] nanoseconds round_trip() const override { return 1ms; }
    [[nodiscard]] double random() override { return 0.5; }
};

/// A ballot over three stores, with the asks that it began.
struct begun {
    begun() {
        ballot.begin();
        for (const auto& each : ballot.take_actions()) {
            asks[static_cast<std::size_t>(each.store)] = each.ask;
        }
    }
    void granted(int store) { ballot.granted(store, ask(store), 1ms); }
    void written(int store, std::int64_t token) { ballot.written(store, ask(store), token, 1ms); }
    void ended(int store) { ballot.ended(store, ask(store), 1ms); }
    /// The tokens of the steps of that kind at that store, of the actions since the last call.
    std::vector<std::int64_t> steps(quorum_step of, int store) {
        std::vector<std::int64_t> tokens;
        for (const auto& each : ballot.take_actions()) {
            if (each.what == of && each.store == store) tokens.push_back(each.token);
        }
        return tokens;
    }
    [[nodiscard]] std::int64_t ask(int store) const {
        return asks[static_cast<std::size_t>(store)];
    }

    calm view;
    quorum_ballot ballot{{}, view};
    std::array<std::int64_t, 3> asks{};
};

using tokens = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a holder seals its token in a store that has not granted it") {
    begun one;
    for (const int store : {0, 1}) one.granted(store);
    for (const int store : {0, 1}) one.written(store, 7);
    REQUIRE(one.ballot.held(1ms));
    CHECK(one.steps(quorum_step::seal, 2) == tokens{7});
}

TEST_CASE("a holder's seal does not overtake its own claim, which would go beyond it") {
    begun one;
    for (const int store : {0, 1, 2}) one.granted(store);
    CHECK(one.steps(quorum_step::claim, 2) == tokens{0});
    for (const int store : {0, 1}) one.written(store, 7);
    REQUIRE(one.ballot.held(1ms));
    CHECK(one.steps(quorum_step::seal, 2).empty());

    SUBCASE("the claim brings the token") {
        one.written(2, 7);
        CHECK(one.ballot.take_actions().empty());
        CHECK(one.ballot.counted() == 3);
    }
    SUBCASE("the claim brings less: the token is written") {
        one.written(2, 5);
        CHECK(one.steps(quorum_step::write, 2) == tokens{7});
        CHECK(one.ballot.counted() == 2);
        one.ended(2);
        CHECK(one.steps(quorum_step::seal, 2) == tokens{7});
    }
    SUBCASE("the claim fails: now a seal brings it") {
        one.ended(2);
        CHECK(one.steps(quorum_step::seal, 2) == tokens{7});
    }
    SUBCASE("the hold ends before the answer: now a seal brings it") {
        one.ballot.give_up();
        CHECK(one.steps(quorum_step::seal, 2) == tokens{7});
    }
    SUBCASE("the hold is lost before the answer") {
        one.view.trust = 0ns;
        one.ballot.tick(1ms);
        REQUIRE(one.ballot.now() == quorum_ballot::state::lost);
        CHECK(one.steps(quorum_step::seal, 2) == tokens{7});
    }
    SUBCASE("the hold is lost when the claim fails") {
        one.view.trust = 0ns;
        one.ended(2);
        REQUIRE(one.ballot.now() == quorum_ballot::state::lost);
        CHECK(one.steps(quorum_step::seal, 2) == tokens{7});
    }
}

TEST_CASE("what a lost majority was granted is released when the margin is over, and not before") {
    begun one;
    for (const int store : {0, 1}) one.granted(store);
    for (const int store : {0, 1}) one.written(store, 7);
    REQUIRE(one.ballot.held(1ms));
    static_cast<void>(one.ballot.take_actions());
    one.view.trust = 0ns;
    one.ballot.tick(1ms);
    REQUIRE(one.ballot.now() == quorum_ballot::state::lost);
    static_cast<void>(one.ballot.take_actions());  // of the store that was not counted
    one.ballot.tick(5s);
    CHECK(one.ballot.take_actions().empty());
    one.ballot.tick(5s + 1ms);
    CHECK(one.steps(quorum_step::release, 0).size() == 1);
}

TEST_CASE("stores behind one that knows a greater token catch up at the release") {
    begun one;
    for (const int store : {0, 1, 2}) one.granted(store);
    for (const int store : {0, 1}) one.written(store, 7);
    one.written(2, 9);
    REQUIRE(one.ballot.held(1ms));
    CHECK(one.ballot.token() == 7);
    CHECK(one.ballot.counted() == 3);
    static_cast<void>(one.ballot.take_actions());
    one.ballot.give_up();
    std::vector<std::int64_t> written(3, -1);
    for (const auto& each : one.ballot.take_actions()) {
        CHECK(each.what == quorum_step::release);
        written[static_cast<std::size_t>(each.store)] = each.token;
    }
    CHECK(written == tokens{9, 9, 0});
}

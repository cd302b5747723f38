// The times of heartbeats over links with different round trips.

#include "lock/session/link_timing.hpp"

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using rowlock::detail::link_timing;
using std::chrono::nanoseconds;

namespace {

constexpr link_timing::settings usual{.ttl = 30s, .margin = 5s, .heartbeat = 10s};

}  // namespace

TEST_CASE("the round trip is the shortest recent one") {
    link_timing link{usual};
    CHECK(link.round_trip() == 0ns);
    link.note_round_trip(8ms);
    CHECK(link.round_trip() == 8ms);
    link.note_round_trip(2ms);
    CHECK(link.round_trip() == 2ms);
    link.note_round_trip(900ms);  // a retransmission
    CHECK(link.round_trip() == 2250us);
    for (int i = 0; i < 100; ++i) link.note_round_trip(900ms);
    CHECK(link.round_trip() == 900ms);  // the link has become slow
}

TEST_CASE(
    "heartbeats come twice as often where a round trip takes more than a tenth of the period") {
    link_timing link{usual};
    CHECK(link.period() == 10s);
    link.note_round_trip(1s);
    CHECK(link.period() == 10s);
    link_timing slow{usual};
    slow.note_round_trip(1s + 1ns);
    CHECK(slow.period() == 5s);
}

TEST_CASE("the second heartbeat comes when the first one's answer should be there") {
    link_timing link{usual};
    CHECK(link.late_at(100s, true) == 100s + 10s + 2500ms);
    CHECK(link.late_at(100s, false) == 100s + 10s + 50ms);  // the first has no connection
    SUBCASE("on a slow link after one and a half round trips") {
        link.note_round_trip(2s);
        CHECK(link.late_at(100s, true) == 100s + 5s + 3s);
    }
    SUBCASE("never later than the middle of what the trust window leaves") {
        link.note_round_trip(14s);
        CHECK(link.late_at(100s, true) == 100s + 5s + 10s);
    }
}

TEST_CASE("the heartbeat's connection opens soon after the session, on a slow link at once") {
    link_timing link{usual};
    link.note_round_trip(20ms);
    CHECK(link.connect_at(100s) == 100s + 200ms);
    link_timing quick{{.ttl = 1200ms, .margin = 200ms, .heartbeat = 400ms}};
    CHECK(quick.connect_at(100s) == 100s + 100ms);
    link_timing slow{usual};
    slow.note_round_trip(20ms + 1ns);
    CHECK(slow.connect_at(100s) == nanoseconds::min());
}

TEST_CASE("the pause after failed heartbeats doubles up to a quarter of the period") {
    const link_timing link{usual};
    CHECK(link.pause_after(0) == 20ms);
    CHECK(link.pause_after(1) == 40ms);
    CHECK(link.pause_after(6) == 1280ms);
    CHECK(link.pause_after(7) == 2500ms);
    CHECK(link.pause_after(1000) == 2500ms);
}

TEST_CASE("a ttl is too short if a broken connection cannot be replaced in its trust window") {
    link_timing link{usual};
    CHECK_FALSE(link.wanted_ttl(15s));
    CHECK(link.wanted_ttl(15s + 1ns));
    CHECK(link.wanted_ttl(30s) == 60s);  // opening takes twice what is left: twice the ttl
    SUBCASE("or if it is less than ten round trips") {
        link.note_round_trip(4s);
        const auto wanted = link.wanted_ttl(1ms);
        REQUIRE(wanted);
        CHECK(*wanted == 40s);
    }
}

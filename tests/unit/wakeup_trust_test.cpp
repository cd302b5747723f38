#include "lock/queue/wakeup_trust.hpp"

#include <doctest/doctest.h>

#include <chrono>

using rowlock::detail::wakeup_trust;
using namespace std::chrono_literals;
using way = wakeup_trust::way;

namespace {

void wake(wakeup_trust& trust, int times) {
    for (int i = 0; i < times; ++i) trust.woken("job", way::message, 1ms);
}

}  // namespace

TEST_CASE("a wake-up is expected after one that came, for that name") {
    wakeup_trust trust;
    CHECK_FALSE(trust.expects("job"));
    trust.woken("job", way::interruption, 1ms);
    CHECK(trust.expects("job"));
    CHECK(trust.latest() == way::interruption);
    CHECK_FALSE(trust.expects("other"));
    trust.woken("other", way::message, 1ms);
    CHECK(trust.expects("other"));
    CHECK_FALSE(trust.expects("job"));
}

TEST_CASE("after each missed wake-up twice as many have to come") {
    wakeup_trust trust;
    for (const int needed : {2, 4, 8}) {
        CAPTURE(needed);
        wake(trust, 1);
        trust.missed();
        CHECK(trust.latest() == way::poll);
        wake(trust, needed - 1);
        CHECK_FALSE(trust.expects("job"));
        wake(trust, 1);
        CHECK(trust.expects("job"));
    }
}

TEST_CASE("a missed wake-up is forgiven after many that came") {
    wakeup_trust trust;
    wake(trust, 1);
    trust.missed();  // two are needed now
    wake(trust, 32);
    CHECK(trust.expects("job"));
    trust.missed();  // two again, not four
    wake(trust, 2);
    CHECK(trust.expects("job"));
}

TEST_CASE("with a new session nothing is known, and no wake-up was missed") {
    wakeup_trust trust;
    wake(trust, 3);
    trust.start_anew();
    CHECK_FALSE(trust.expects("job"));
    wake(trust, 1);
    CHECK(trust.expects("job"));
}

TEST_CASE("the time of the latest wait that a wake-up ended is known") {
    wakeup_trust trust;
    trust.woken("job", way::message, 30ms);
    trust.woken("job", way::message, 70ms);
    CHECK(trust.expects("job") == 70ms);
    trust.woken("other", way::message, 10ms);
    CHECK(trust.expects("other") == 10ms);
}

// When lost sessions may be ended, which frees their leases for others.

#include "lock/session/lost_sessions.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

using namespace std::chrono_literals;
using rowlock::base::alarm;
using rowlock::detail::grant;
using rowlock::detail::lost_sessions;
using rowlock::detail::session;
using std::chrono::nanoseconds;

namespace {

constexpr nanoseconds margin = 5s;
constexpr nanoseconds ttl = 30s;

std::shared_ptr<session> session_of(std::int64_t id) {
    return std::make_shared<session>(rowlock::session_id{id}, "", session::endpoint{}, 60s, 0s);
}

std::shared_ptr<grant> lost_grant_in(session& of, std::int64_t id) {
    auto held = std::make_shared<grant>();
    held->grant_id = rowlock::grant_id{id};
    held->now = grant::state::lost;
    of.grants().hold(held);
    return held;
}

}  // namespace

TEST_CASE("a lost session without a holder may be ended at once") {
    lost_sessions lost{margin, ttl};
    CHECK(lost.next_due(1s) == alarm::never);
    CHECK(lost.all_due(1s));
    lost.add(session_of(7));
    CHECK(lost.next_due(1s) == nanoseconds::min());
    CHECK(lost.due(1s) == rowlock::session_id{7});
    lost.ended(rowlock::session_id{7});
    CHECK_FALSE(lost.due(1s));
}

TEST_CASE("a lost session whose holder may still work is due a margin after the loss") {
    lost_sessions lost{margin, ttl};
    const auto ours = session_of(7);
    const auto held = lost_grant_in(*ours, 1);
    lost.add(ours);
    CHECK_FALSE(lost.due(1000s));  // its holders have not been notified yet
    lost.begin_margin(rowlock::session_id{7}, 100s);
    CHECK(lost.next_due(100s) == 105s);
    CHECK_FALSE(lost.all_due(105s - 1ns));
    CHECK_FALSE(lost.due(105s - 1ns));
    CHECK(lost.due(105s) == rowlock::session_id{7});
    CHECK(lost.all_due(105s));
}

TEST_CASE("the margin of a lost session ends when its last holder has stopped") {
    lost_sessions lost{margin, ttl};
    const auto ours = session_of(7);
    const auto first = lost_grant_in(*ours, 1);
    const auto second = lost_grant_in(*ours, 2);
    lost.add(ours);
    lost.begin_margin(rowlock::session_id{7}, 100s);
    first->stopped = true;
    CHECK_FALSE(lost.due(101s));
    second->stopped = true;
    CHECK(lost.due(101s) == rowlock::session_id{7});
}

TEST_CASE("a lost session that the database sees expired needs no end") {
    lost_sessions lost{margin, ttl};
    lost.add(session_of(7));
    lost.begin_margin(rowlock::session_id{7}, 100s);
    CHECK(lost.due(135s) == rowlock::session_id{7});
    CHECK_FALSE(lost.due(135s + 1ns));
    CHECK(lost.next_due(136s) == alarm::never);
}

TEST_CASE("a lost session that is not due does not delay the end of another") {
    lost_sessions lost{margin, ttl};
    const auto busy = session_of(7);
    const auto held = lost_grant_in(*busy, 1);
    lost.add(busy);
    lost.add(session_of(8));
    lost.begin_margin(rowlock::session_id{7}, 100s);
    lost.begin_margin(rowlock::session_id{8}, 100s);
    CHECK(lost.due(101s) == rowlock::session_id{8});
    lost.ended(rowlock::session_id{8});
    CHECK_FALSE(lost.due(101s));
    CHECK(lost.next_due(101s) == 105s);
}

TEST_CASE("a destroyed client ends its lost sessions without a margin") {
    lost_sessions lost{margin, ttl};
    const auto ours = session_of(7);
    const auto held = lost_grant_in(*ours, 1);
    lost.add(ours);
    lost.begin_margin(rowlock::session_id{7}, 100s);
    CHECK_FALSE(lost.due(100s));
    lost.end_all();
    CHECK(lost.due(100s) == rowlock::session_id{7});
}

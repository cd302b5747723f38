// The records of the history, folded into holds.

#include "view/past.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using view::ending;
using enum history_kind;

namespace {

view::history_time at(int seconds) {
    return view::history_time{1'000s + std::chrono::seconds{seconds}};
}

/// A record of the lease "a", as second `second`; ids are in the order of the calls.
history_record of_lease(int second, history_kind kind, int session, int grant, int token = 0) {
    static std::int64_t id = 0;
    history_record one;
    one.id = ++id;
    one.at = at(second);
    one.age = 100s - std::chrono::seconds{second};
    one.kind = kind;
    one.name = "a";
    one.session = session_id{session};
    one.grant_id = grant_id{grant};
    one.token = fencing_token{token};
    return one;
}

history_record begun(int second, history_kind kind, int session, int grant, int token,
                     int previous = 0) {
    auto one = of_lease(second, kind, session, grant, token);
    one.previous_session = session_id{previous};
    one.host = "host";
    one.program = "program " + std::to_string(session);
    one.pid = session;
    return one;
}

history_record of_session(int second, history_kind kind, int session, int expiry) {
    auto one = of_lease(second, kind, session, 0);
    one.name.clear();
    one.ends_at = at(expiry);
    return one;
}

history_record with_mode(history_record one, std::int64_t permits) {
    one.of = history_of::shared_mutex;
    one.permits = permits;
    return one;
}

history_record of_permits(history_record one, std::int64_t permits) {
    one.of = history_of::semaphore;
    one.permits = permits;
    return one;
}

history_record seen(history_record one, hold_now now) {
    one.now = now;
    return one;
}

std::vector<view::past_hold> holds(const std::vector<history_record>& records) {
    return view::holds_in(records);
}

}  // namespace

TEST_CASE("a hold that was handed over ended when the next one began, and is not still held") {
    const auto all = holds({begun(1, granted, 1, 11, 1), of_lease(2, queued, 2, 22),
                            begun(5, history_kind::handed_over, 2, 22, 2, 1),
                            of_lease(5, left, 2, 22), of_lease(9, released, 2, 22, 2)});
    REQUIRE(all.size() == 2);
    CHECK(all[0].from == at(1));
    CHECK(all[0].to == at(5));
    CHECK(all[0].how == ending::handed_over);
    CHECK(all[0].program == "program 1");
    CHECK_FALSE(all[0].waited.has_value());
    CHECK(all[1].from == at(5));
    CHECK(all[1].waited == 3s);
    CHECK(all[1].to == at(9));
    CHECK(all[1].how == ending::released);
}

TEST_CASE("only a hold that the tables show as held is still held") {
    const auto ending_of = [](hold_now now) {
        auto one = seen(begun(1, granted, 1, 11, 1), now);
        if (now == hold_now::over) one.over_since = at(30);
        const auto all = holds({one});
        REQUIRE(all.size() == 1);
        return std::pair{all[0].how, all[0].to};
    };
    CHECK(ending_of(hold_now::held) ==
          std::pair{ending::held, std::optional<view::history_time>{}});
    CHECK(ending_of(hold_now::over) == std::pair{ending::session_expired, std::optional{at(30)}});
    CHECK(ending_of(hold_now::ended) ==
          std::pair{ending::session_ended, std::optional<view::history_time>{}});
    CHECK(ending_of(hold_now::gone) ==
          std::pair{ending::unknown, std::optional<view::history_time>{}});
}

TEST_CASE(
    "a hold that was taken over ended with its session or its deadline, not with the takeover") {
    auto with_deadline = begun(1, granted, 1, 11, 1);
    with_deadline.ends_at = at(4);
    const auto by_deadline = holds({with_deadline, begun(50, taken_over, 2, 22, 2, 1)});
    CHECK(by_deadline[0].how == ending::deadline_passed);
    CHECK(by_deadline[0].to == at(4));

    const auto by_session =
        holds({begun(1, granted, 1, 11, 1), of_session(49, session_expired, 1, 30),
               begun(50, taken_over, 2, 22, 2, 1)});
    CHECK(by_session[0].how == ending::session_expired);
    CHECK(by_session[0].to == at(30));

    // The records of one name do not say when a session ended.
    const auto unknown = holds({begun(1, granted, 1, 11, 1), begun(50, taken_over, 2, 22, 2, 1)});
    CHECK(unknown[0].how == ending::expired);
    CHECK(unknown[0].to == at(50));

    const auto closed = holds({begun(1, granted, 1, 11, 1), of_session(20, session_ended, 1, 40),
                               of_lease(60, expired, 1, 11, 1)});
    CHECK(closed[0].how == ending::session_ended);
    CHECK(closed[0].to == at(20));
}

TEST_CASE("a forced hold names who ended it, and not the token that this used up") {
    auto broken = of_lease(7, forced, 1, 11, 2);
    broken.note = "rowlock break of alice, pid 5 on host";
    broken.db_user = "ops";
    const auto all = holds({begun(1, granted, 1, 11, 1), broken});
    REQUIRE(all.size() == 1);
    CHECK(all[0].how == ending::forced);
    CHECK(all[0].to == at(7));
    CHECK(all[0].token.value() == 1);
    CHECK(all[0].ended_by == "rowlock break of alice, pid 5 on host");
    CHECK(all[0].ended_by_login == "ops");
    CHECK(text_of_end(all[0]) == "broken by rowlock break of alice, pid 5 on host");
}

TEST_CASE("a hold has the requests for its release, and ends by the deadline that they set") {
    auto request = of_lease(3, asked, 1, 11, 1);
    request.note = "rowlock, pid 5 on host";
    request.reason = "a deployment";
    request.ends_at = at(13);
    const auto all =
        holds({begun(1, granted, 1, 11, 1), request, begun(40, taken_over, 2, 22, 2, 1)});
    REQUIRE(all.size() == 2);
    REQUIRE(all[0].asked.size() == 1);
    CHECK(all[0].asked[0].at == at(3));
    CHECK(all[0].asked[0].until == at(13));
    CHECK(all[0].asked[0].by == "rowlock, pid 5 on host");
    CHECK(all[0].how == ending::deadline_passed);
    CHECK(all[0].to == at(13));
    CHECK(text_of_end(all[0]) ==
          "its deadline passed; asked for by rowlock, pid 5 on host: a deployment");
    CHECK(all[1].asked.empty());
}

TEST_CASE("a lease that another session of its owner reclaims, or adopts, is another hold") {
    const auto reclaim = holds({begun(1, granted, 1, 11, 1), begun(5, reclaimed, 2, 11, 2, 1),
                                seen(of_lease(6, renewed, 2, 11, 9), hold_now::held)});
    REQUIRE(reclaim.size() == 2);
    CHECK(reclaim[0].how == ending::reclaimed);
    CHECK(reclaim[0].to == at(5));
    CHECK(reclaim[1].begun == reclaimed);
    CHECK(reclaim[1].is_held());
    CHECK(reclaim[1].token.value() == 9);
}

TEST_CASE("a renewed lease is one hold, with the last of its tokens") {
    const auto all = holds({begun(1, granted, 1, 11, 1), of_lease(3, renewed, 1, 11, 100),
                            of_lease(4, renewed, 1, 11, 101), of_lease(8, released, 1, 11, 101)});
    REQUIRE(all.size() == 1);
    CHECK(all[0].token.value() == 101);
    CHECK(all[0].from == at(1));
    CHECK(all[0].to == at(8));
}

TEST_CASE("several grants of one client are several holds") {
    const auto all = holds(
        {begun(1, granted, 1, 11, 1), of_lease(2, released, 1, 11, 1), begun(3, granted, 1, 12, 2),
         begun(4, history_kind::handed_over, 1, 13, 3, 1), of_lease(5, released, 1, 13, 3)});
    REQUIRE(all.size() == 3);
    CHECK(all[0].how == ending::released);
    CHECK(all[1].how == ending::handed_over);
    CHECK(all[2].how == ending::released);
}

TEST_CASE("permits and shared modes of one name are held at once") {
    const auto api = holds({of_permits(begun(1, granted, 1, 11, 1), 2),
                            of_permits(begun(2, granted, 2, 22, 2), 1),
                            of_permits(of_lease(4, released, 1, 11, 1), 2),
                            of_permits(of_lease(9, forced, 2, 22, 2), 1)});
    REQUIRE(api.size() == 2);
    CHECK(api[0].to == at(4));
    CHECK(api[0].permits == 2);
    CHECK(api[1].to == at(9));
    CHECK(api[1].how == ending::forced);

    const auto moved = holds({of_permits(begun(1, granted, 1, 11, 1), 2),
                              of_permits(begun(3, reclaimed, 2, 11, 5, 1), 2),
                              of_permits(of_lease(4, expired, 2, 11, 5), 2)});
    REQUIRE(moved.size() == 2);
    CHECK(moved[0].how == ending::reclaimed);
    CHECK(moved[1].how == ending::expired);
}

TEST_CASE("an upgrade belongs to its hold, which keeps the strongest mode that it had") {
    constexpr std::int64_t shared_permits = 1, upgradeable_permits = 1'000'000'000;
    constexpr std::int64_t exclusive_permits = 1'999'999'999;
    const auto all = holds({with_mode(begun(1, granted, 1, 11, 1), upgradeable_permits),
                            with_mode(of_lease(2, upgraded, 1, 11, 2), exclusive_permits),
                            with_mode(of_lease(3, downgraded, 1, 11, 1), shared_permits),
                            with_mode(of_lease(4, released, 1, 11, 1), shared_permits)});
    REQUIRE(all.size() == 1);
    CHECK(all[0].mode == lock_mode::exclusive);
    CHECK(all[0].token.value() == 2);
    CHECK(all[0].to == at(4));
}

TEST_CASE("a hold whose beginning was cut off says so") {
    const auto ended = holds({of_lease(3, released, 1, 11, 1)});
    REQUIRE(ended.size() == 1);
    CHECK_FALSE(ended[0].from.has_value());
    CHECK(ended[0].to == at(3));
    CHECK(ended[0].how == ending::released);

    const auto replaced = holds({begun(5, history_kind::handed_over, 2, 22, 2, 1)});
    REQUIRE(replaced.size() == 2);
    CHECK(replaced[0].session == session_id{1});
    CHECK_FALSE(replaced[0].from.has_value());
    CHECK(replaced[0].to == at(5));
    CHECK(replaced[0].how == ending::handed_over);

    const auto renewed_only = holds({seen(of_lease(5, renewed, 1, 11, 7), hold_now::held)});
    REQUIRE(renewed_only.size() == 1);
    CHECK(renewed_only[0].is_held());
    CHECK_FALSE(renewed_only[0].from.has_value());

    const auto upgrade =
        holds({seen(with_mode(of_lease(2, upgraded, 1, 11, 2), 1'999'999'999), hold_now::held)});
    REQUIRE(upgrade.size() == 1);
    CHECK(upgrade[0].grant_id == grant_id{11});
    CHECK(upgrade[0].is_held());
}

TEST_CASE("what happened while nothing was recorded is not invented") {
    // Recording was off between: who gave the lease to session 3 was another.
    const auto all =
        holds({begun(1, granted, 1, 11, 1), begun(50, history_kind::handed_over, 3, 33, 9, 2),
               begun(60, granted, 4, 44, 10)});
    REQUIRE(all.size() == 4);
    CHECK(all[0].how == ending::unknown);
    CHECK_FALSE(all[0].to.has_value());
    CHECK(all[1].session == session_id{2});
    CHECK(all[1].how == ending::handed_over);
    CHECK(all[2].how == ending::unknown);
    const auto deleted_row = holds({begun(1, granted, 1, 11, 1), of_lease(9, deleted, 1, 11, 1)});
    CHECK(deleted_row[0].how == ending::expired);
    const auto by_hand = holds({begun(1, granted, 1, 11, 1), of_lease(9, altered, 2, 22, 1)});
    CHECK(by_hand[0].how == ending::altered);
    CHECK(by_hand[1].how == ending::unknown);
}

TEST_CASE("locks of one name and different kinds, and different names, do not mix") {
    auto other = begun(2, granted, 2, 22, 1);
    other.name = "b";
    auto permit = of_permits(begun(3, granted, 3, 33, 1), 1);
    const auto all = holds({begun(1, granted, 1, 11, 1), other, permit,
                            begun(5, history_kind::handed_over, 4, 44, 2, 1)});
    REQUIRE(all.size() == 4);
    CHECK(all[0].how == ending::handed_over);
    CHECK(all[1].how == ending::unknown);
    CHECK(all[2].how == ending::unknown);
}

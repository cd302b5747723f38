// The stress tests' checkers find the violations for which they check.

#include "stress/history.hpp"

#include "stress/recorded.hpp"

#include <doctest/doctest.h>

using namespace stress;
using rowlock::grant_id;
using rowlock::session_id;

namespace {

observed_hold held(std::int64_t token, micros from, micros until) {
    observed_hold one;
    one.name = "a";
    one.token = token;
    one.called = from - 5;
    one.acquired = one.db_begin = from;
    one.believed_until = one.db_end = one.release_called = until;
    one.released = until + 1;
    one.result = "ok";
    return one;
}

attempt attempt_of(std::int64_t token, micros called, micros waiting) {
    attempt one;
    one.name = "a";
    one.token = token;
    one.called = called;
    one.waiting = waiting;
    one.returned = 1'000;
    one.queues = true;
    one.result = "granted";
    return one;
}

history of(std::vector<observed_hold> holds, std::vector<attempt> attempts = {}) {
    history all;
    all.holds = std::move(holds);
    all.attempts = std::move(attempts);
    return all;
}

}  // namespace

TEST_CASE("holds one after the other break no rule") {
    const auto all = of({held(1, 10, 20), held(2, 20, 30), held(5, 40, 50)});
    CHECK(overlaps(all).empty());
    CHECK(overlapping_beliefs(all).empty());
    CHECK(token_regressions(all).empty());
    CHECK(late_grants(all, {}, {.usual = 11, .after_fault = 11}).empty());
}

TEST_CASE("a hold that was ended by force counts as no overlap, the others do") {
    auto all = of({held(1, 10, 40), held(3, 20, 30), held(4, 25, 50)});
    for (auto& each : all.holds) each.grant_id = grant_id{10 + each.token};
    CHECK(overlapping_beliefs(all).size() == 2);
    all.forced = {grant_id{11}};
    CHECK(overlapping_beliefs(all).size() == 1);  // 3 and 4: 3 did not lose its lock by force
    CHECK(overlaps(all).size() == 1);
    all.forced = {grant_id{12}};
    CHECK(overlapping_beliefs(all).size() == 2);
}

TEST_CASE("an overlap is found, also with a hold that is not the neighbour") {
    CHECK(overlaps(of({held(1, 10, 21), held(2, 20, 30)})).size() == 1);
    CHECK(overlapping_beliefs(of({held(1, 10, 100), held(2, 20, 30), held(3, 40, 50)})).size() ==
          2);
    auto elsewhere = held(2, 15, 30);
    elsewhere.name = "b";
    CHECK(overlaps(of({held(1, 10, 20), elsewhere})).empty());
}

TEST_CASE("a hold that was lost before its first check has no duration") {
    auto lost = held(1, 10, 90);
    lost.db_begin = lost.db_end = 0;
    CHECK(overlaps(of({lost, held(2, 20, 30)})).empty());
}

TEST_CASE("a token that repeats or falls is found") {
    CHECK(token_regressions(of({held(2, 10, 20), held(2, 30, 40)})).size() == 1);
    CHECK(token_regressions(of({held(3, 10, 20), held(2, 30, 40)})).size() == 1);
}

TEST_CASE("a call that was made after another's enqueue must not be served before it") {
    CHECK(unfair_calls(of({}, {attempt_of(1, 10, 15), attempt_of(2, 20, 25)})).empty());
    CHECK(unfair_calls(of({}, {attempt_of(2, 10, 15), attempt_of(1, 20, 25)})).size() == 1);
    // They overlap: either order.
    CHECK(unfair_calls(of({}, {attempt_of(2, 10, 22), attempt_of(1, 20, 25)})).empty());
    // Far apart in the order of service, and the overtaking call never enqueued.
    CHECK(unfair_calls(of({}, {attempt_of(9, 10, 15), attempt_of(8, 12, 19), attempt_of(1, 20, 0)}))
              .size() == 1);
    auto barging = attempt_of(1, 20, 0);
    barging.queues = false;
    CHECK(unfair_calls(of({}, {attempt_of(2, 10, 15), barging})).empty());
}

TEST_CASE("a late grant is found, and excused by a fault") {
    const auto all = of({held(1, 10, 20), held(2, 90, 95)});
    auto waited = all;
    waited.holds[1].called = 12;
    CHECK(late_grants(all, {}, {.usual = 50, .after_fault = 60}).empty());
    CHECK(late_grants(waited, {}, {.usual = 50, .after_fault = 60}).size() == 1);
    CHECK(late_grants(waited, {{15, 35, "kill"}}, {.usual = 50, .after_fault = 60}).empty());
    CHECK(late_grants(waited, {{15, 15, "kill"}}, {.usual = 50, .after_fault = 60}).size() == 1);
    CHECK(hand_offs(waited).at(0).took == 70);
    CHECK(hand_offs(all).empty());
}

TEST_CASE("a wait without a grant for a free lease is found") {
    auto vain = attempt_of(0, 12, 13);
    vain.result = "none";
    vain.returned = 100;
    CHECK(late_grants(of({held(1, 10, 20)}, {vain}), {}, {.usual = 50, .after_fault = 60}).size() ==
          1);
    CHECK(late_grants(of({held(1, 10, 60)}, {vain}), {}, {.usual = 50, .after_fault = 60}).empty());
}

TEST_CASE("unexpected results are counted") {
    auto odd = held(1, 10, 20);
    odd.result = "timed_out";
    CHECK(unexpected_results(of({odd, held(2, 20, 30)}), {"ok"}).size() == 1);
}

// --- the database's records ------------------------------------------------------------------

namespace {

using enum history_kind;

/// Records of the lease "a", numbered from 1, a microsecond each. Takes ids as plain numbers.
class ledger {
public:
    ledger& add(history_kind kind, std::int64_t session, std::int64_t token, std::int64_t grant_id,
                std::int64_t previous_session = 0) {
        record one{.kind = kind,
                   .name = "a",
                   .token = token,
                   .session = session_id{session},
                   .grant_id = rowlock::grant_id{grant_id},
                   .previous_session = session_id{previous_session}};
        return append(std::move(one));
    }
    ledger& place(history_kind kind, std::int64_t session, std::int64_t grant_id,
                  std::int64_t ticket) {
        record one{.kind = kind,
                   .name = "a",
                   .session = session_id{session},
                   .grant_id = rowlock::grant_id{grant_id},
                   .ticket = rowlock::ticket_no{ticket}};
        return append(std::move(one));
    }
    ledger& session(history_kind kind, std::int64_t session, micros ends_at = 0) {
        record one{.kind = kind, .session = session_id{session}, .ends_at = ends_at};
        return append(std::move(one));
    }
    /// Sets the latest record's own deadline, or the transaction and snapshot of a queue entry.
    ledger& until(micros ends_at) {
        all.back().ends_at = ends_at;
        return *this;
    }
    ledger& by(std::int64_t transaction, std::string snapshot) {
        all.back().transaction = transaction;
        all.back().snapshot = std::move(snapshot);
        return *this;
    }

    records all;

private:
    ledger& append(record one) {
        one.id = static_cast<std::int64_t>(all.size()) + 1;
        one.at = 10 * one.id;
        all.push_back(std::move(one));
        return *this;
    }
};

observed_hold seen(std::int64_t id, std::int64_t token, micros from, micros until) {
    auto one = held(token, from, until);
    one.grant_id = grant_id{id};
    return one;
}

}  // namespace

TEST_CASE(
    "C1: a lease that was released, handed over or forced, or whose session is dead, may be "
    "granted") {
    const auto good = ledger{}
                          .add(granted, 1, 1, 11)
                          .add(handed_over, 2, 2, 22, 1)
                          .add(forced, 2, 3, 22)
                          .add(granted, 3, 4, 33)
                          .session(session_expired, 3, 35)
                          .add(taken_over, 4, 5, 44, 3)
                          .session(session_ended, 4)
                          .add(reclaimed, 5, 6, 44, 4)
                          .add(released, 5, 6, 44)
                          .add(granted, 6, 7, 66)
                          .until(95)
                          .add(taken_over, 7, 8, 77, 6)
                          .session(session_ended, 7)
                          .add(expired, 7, 8, 77)
                          .add(deleted, 0, 8, 0)
                          .add(granted, 8, 9, 88)
                          .all;
    CHECK(overlapping_holds(good).empty());
    CHECK(falling_tokens(good).empty());
}

TEST_CASE("C1: a grant during a hold is found") {
    CHECK(overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(granted, 2, 2, 22).all).size() ==
          1);
    // Taken over although its session lived until afterwards.
    const auto stolen = ledger{}
                            .add(granted, 1, 1, 11)
                            .add(taken_over, 2, 2, 22, 1)
                            .session(session_expired, 1, 15)
                            .all;
    CHECK(overlapping_holds(stolen).size() == 1);
    const auto early = ledger{}.add(granted, 1, 1, 11).until(30).add(taken_over, 2, 2, 22, 1).all;
    CHECK(overlapping_holds(early).size() == 1);
    CHECK(
        overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(reclaimed, 2, 2, 11, 1).all).size() ==
        1);
    CHECK(overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(expired, 1, 1, 11).all).size() ==
          1);
    // Handed over by a session that had lost it.
    CHECK(overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(handed_over, 3, 3, 33, 2).all)
              .size() == 1);
    CHECK(overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(released, 1, 1, 12).all).size() ==
          1);
}

TEST_CASE("C1: a session that dies twice, or lives again, is found") {
    CHECK(overlapping_holds(ledger{}.session(session_expired, 1, 5).session(session_ended, 1).all)
              .size() == 1);
    CHECK(overlapping_holds(ledger{}.session(session_ended, 1).session(altered, 1).all).size() ==
          1);
}

TEST_CASE("C1: trust beyond the recorded hold is found") {
    const auto truth = ledger{}
                           .add(granted, 1, 1, 11)
                           .add(handed_over, 2, 2, 22, 1)
                           .session(session_expired, 2, 25)
                           .all;
    CHECK(beliefs_beyond_records(of({seen(11, 1, 10, 20), seen(22, 2, 20, 25)}), truth).empty());
    CHECK(beliefs_beyond_records(of({seen(11, 1, 10, 21)}), truth).size() == 1);
    CHECK(beliefs_beyond_records(of({seen(11, 1, 10, 21)}), truth, 1).empty());
    CHECK(beliefs_beyond_records(of({seen(11, 1, 9, 20)}), truth).size() == 1);
    CHECK(beliefs_beyond_records(of({seen(22, 2, 20, 26)}), truth).size() == 1);  // it had expired
    CHECK(beliefs_beyond_records(of({seen(33, 3, 20, 26)}), truth).size() == 1);  // never granted
}

TEST_CASE("C1: a loss without a reason is found") {
    auto lost = seen(11, 1, 10, 20);
    lost.session = session_id{1};
    lost.result = "the_lock_was_lost";
    lost.released = 20 - wall_time() + boot_time();  // 20 by the database's clock
    const auto stolen = ledger{}.add(granted, 1, 1, 11).add(handed_over, 2, 2, 22, 1).all;
    const micros within = 1'000;
    CHECK(unexplained_losses(of({lost}), stolen, within).size() == 1);
    auto past = of({lost});
    past.forced = {grant_id{11}};
    CHECK(unexplained_losses(past, stolen, within).empty());
    const auto passed = ledger{}.add(granted, 1, 1, 11).until(15).all;
    CHECK(unexplained_losses(of({lost}), passed, within).empty());
    const auto died = ledger{}.add(granted, 1, 1, 11).session(session_expired, 1, 15).all;
    CHECK(unexplained_losses(of({lost}), died, within).empty());
    const auto later = ledger{}.add(granted, 1, 1, 11).session(session_expired, 1, 1'000'000).all;
    CHECK(unexplained_losses(of({lost}), later, within).size() == 1);
}

TEST_CASE(
    "C2: a token that repeats or falls, in the records or as reported to its holder, is found") {
    CHECK(
        falling_tokens(ledger{}.add(granted, 1, 2, 11).add(handed_over, 2, 2, 22, 1).all).size() ==
        1);
    CHECK(falling_tokens(ledger{}.add(granted, 1, 2, 11).add(released, 1, 1, 11).all).size() == 1);
    // Also across the deletion of the row.
    CHECK(falling_tokens(ledger{}.add(deleted, 0, 7, 0).add(granted, 1, 7, 11).all).size() == 1);
    const auto truth = ledger{}.add(granted, 1, 1, 11).all;
    CHECK(other_tokens(of({seen(11, 1, 10, 20)}), truth).empty());
    CHECK(other_tokens(of({seen(11, 2, 10, 20)}), truth).size() == 1);
}

TEST_CASE("C1, C2: the tokens of a renewed lease are its grant's, to its end") {
    const auto truth = ledger{}
                           .add(granted, 1, 1, 11)    // at 10
                           .add(renewed, 1, 17, 11)   // at 20
                           .add(renewed, 1, 81, 11)   // at 30
                           .add(released, 1, 81, 11)  // at 40
                           .add(granted, 2, 82, 22)   // at 50
                           .all;
    CHECK(overlapping_holds(truth).empty());
    CHECK(falling_tokens(truth).empty());
    const auto kept = of({seen(11, 1, 10, 19), seen(11, 1, 21, 22), seen(11, 17, 31, 32),
                          seen(11, 81, 33, 40), seen(22, 82, 50, 60)});
    CHECK(beliefs_beyond_records(kept, truth).empty());
    CHECK(other_tokens(kept, truth).empty());
    for (const auto& wrong : {seen(11, 18, 33, 34), seen(11, 82, 31, 32), seen(22, 81, 51, 52)}) {
        CHECK(other_tokens(of({wrong}), truth).size() == 1);
    }
    CHECK(beliefs_beyond_records(of({seen(11, 81, 29, 31)}), truth).size() == 1);  // too early
    CHECK(beliefs_beyond_records(of({seen(11, 81, 33, 41)}), truth).size() == 1);  // given back
    // A lease that is reclaimed keeps its grant id, and no token in between was granted.
    const auto taken =
        ledger{}.add(granted, 1, 1, 11).session(session_ended, 1).add(reclaimed, 2, 5, 11, 1).all;
    CHECK(other_tokens(of({seen(11, 1, 10, 19), seen(11, 5, 31, 32)}), taken).empty());
    CHECK(other_tokens(of({seen(11, 3, 31, 32)}), taken).size() == 1);
    CHECK(overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(renewed, 2, 9, 22).all).size() ==
          1);
    CHECK(falling_tokens(ledger{}.add(granted, 1, 3, 11).add(renewed, 1, 3, 11).all).size() == 1);
}

TEST_CASE("C3: an update that is lost, overwritten or stale is found") {
    const std::vector<guarded_write> good{
        {"a", 1, 0, 1}, {"a", 3, 1, 2}, {"a", 3, 2, 3, false}, {"a", 4, 3, 4}, {"b", 2, 0, 1}};
    CHECK(broken_counters(good, {{"a", 4}, {"b", 1}}).empty());
    CHECK(broken_counters(good, {{"a", 3}, {"b", 1}}).size() == 1);
    CHECK(broken_counters({{"a", 1, 0, 1}, {"a", 2, 0, 1}}, {{"a", 1}}).size() == 1);
    CHECK(broken_counters({{"a", 2, 0, 1}, {"a", 1, 1, 2}}, {{"a", 2}}).size() == 1);
}

TEST_CASE(
    "C6: a grant past a lower ticket is found, unless that one is deleted, dead or past its "
    "limit") {
    const auto line = [] {
        return ledger{}
            .place(queued, 1, 11, 1)
            .by(100, "100:100:")
            .place(queued, 2, 22, 2)
            .by(101, "101:101:");
    };
    auto served = line();
    served.add(granted, 2, 5, 22).place(left, 2, 22, 2);
    CHECK(unfair_grants(served.all, order_by::snapshot).size() == 1);
    CHECK(unfair_grants(served.all, order_by::ticket).size() == 1);
    CHECK(unfair_grants(served.all, order_by::second).empty());  // too close to tell
    served.all[1].at += 2'000'000;
    CHECK(unfair_grants(served.all, order_by::second).size() == 1);
    served.all[1].snapshot = "100:102:100";  // the other was not committed yet
    CHECK(unfair_grants(served.all, order_by::snapshot).empty());

    auto cancelled = line();
    cancelled.place(left, 1, 11, 1).add(granted, 2, 5, 22);
    CHECK(unfair_grants(cancelled.all, order_by::ticket).empty());
    auto dead = line();
    dead.add(granted, 2, 5, 22).session(session_expired, 1, 29);
    CHECK(unfair_grants(dead.all, order_by::ticket).empty());
    auto limited = line();
    limited.add(granted, 2, 5, 22);
    limited.all[0].ends_at = limited.all[2].at;
    CHECK(unfair_grants(limited.all, order_by::ticket).empty());
    ++limited.all[0].ends_at;
    CHECK(unfair_grants(limited.all, order_by::ticket).size() == 1);
    auto alive = line();
    alive.add(granted, 2, 5, 22).session(session_expired, 1, 31);
    CHECK(unfair_grants(alive.all, order_by::ticket).size() == 1);
    auto ordered = line();
    ordered.add(granted, 1, 5, 11).place(left, 1, 11, 1).add(handed_over, 2, 6, 22, 1);
    CHECK(unfair_grants(ordered.all, order_by::ticket).empty());
}

TEST_CASE("C8: remains of a run are found") {
    const baseline before{.connections = 2, .threads = 3, .descriptors = 9};
    CHECK(leaks(before, before).empty());
    CHECK(leaks(before, {.connections = 1, .threads = 3, .descriptors = 8}).empty());
    CHECK(
        leaks(before, {.connections = 3, .threads = 4, .descriptors = 10, .tickets = 1, .holds = 1})
            .size() == 5);
}

TEST_CASE("C1, C2: a request for the release ends no hold, and shortens it to its deadline") {
    const auto truth = ledger{}
                           .add(granted, 1, 1, 11)  // at 10
                           .add(asked, 1, 1, 11)    // at 20
                           .until(25)
                           .add(taken_over, 2, 2, 22, 1)  // at 30
                           .all;
    CHECK(overlapping_holds(truth).empty());
    CHECK(falling_tokens(truth).empty());
    CHECK(beliefs_beyond_records(of({seen(11, 1, 10, 25)}), truth).empty());
    CHECK(beliefs_beyond_records(of({seen(11, 1, 10, 26)}), truth).size() == 1);
    CHECK(overlapping_holds(ledger{}.add(granted, 1, 1, 11).add(asked, 2, 1, 22).all).size() == 1);
}

// The grant ids of a session: pending, held, unresolved, absent.

#include "lock/session/grant_ledger.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using rowlock::detail::grant;
using rowlock::detail::grant_ledger;

namespace {

using ids = std::vector<std::int64_t>;

std::int64_t number(rowlock::grant_id id) {
    return static_cast<std::int64_t>(id);
}

std::shared_ptr<grant> grant_of(std::int64_t id, std::string thread = {}) {
    auto made = std::make_shared<grant>();
    made->grant_id = rowlock::grant_id{id};
    made->thread = std::move(thread);
    return made;
}

ids unresolved_in(const grant_ledger& grants) {
    ids all;
    for (const auto& each : grants.unresolved()) all.push_back(number(each.grant_id));
    return all;
}

/// The held ids, sorted, since a ledger does not order them.
ids held_in(const grant_ledger& grants) {
    ids all;
    for (const auto& each : grants.held()) all.push_back(number(each->grant_id));
    std::ranges::sort(all);
    return all;
}

void check_absent(const grant_ledger& grants, std::int64_t id) {
    CHECK_FALSE(grants.knows(rowlock::grant_id{id}));
    CHECK_FALSE(grants.is_unresolved(rowlock::grant_id{id}));
    CHECK(grants.held_count() == 0);
    CHECK(grants.unresolved_count() == 0);
}

void check_pending(const grant_ledger& grants, std::int64_t id) {
    CHECK(grants.knows(rowlock::grant_id{id}));
    CHECK_FALSE(grants.is_unresolved(rowlock::grant_id{id}));
    CHECK(grants.held_count() == 0);
    CHECK(grants.leases() == 0);
}

void check_held(const grant_ledger& grants, std::int64_t id) {
    CHECK(grants.knows(rowlock::grant_id{id}));
    CHECK_FALSE(grants.is_unresolved(rowlock::grant_id{id}));
    CHECK(held_in(grants) == ids{id});
    CHECK(grants.held_count() == 1);
    CHECK(grants.unresolved_count() == 0);
}

void check_unresolved(const grant_ledger& grants, std::int64_t id) {
    CHECK_FALSE(grants.knows(rowlock::grant_id{id}));
    CHECK(grants.is_unresolved(rowlock::grant_id{id}));
    CHECK(unresolved_in(grants) == ids{id});
    CHECK(grants.unresolved_count() == 1);
    CHECK(grants.held_count() == 0);
}

}  // namespace

static_assert(noexcept(std::declval<grant_ledger>().forget(rowlock::grant_id{1})));
static_assert(noexcept(std::declval<grant_ledger>().doubt()));

TEST_CASE("an id that was never expected is absent") {
    const grant_ledger grants;
    check_absent(grants, 1);
    CHECK(grants.held().empty());
    CHECK(grants.unresolved().empty());
    CHECK_FALSE(grants.ever_unknown());
}

TEST_CASE("an expected grant is pending, and absent once its attempt is over") {
    grant_ledger grants;
    grants.expect(rowlock::grant_id{1});
    check_pending(grants, 1);
    CHECK_FALSE(grants.knows(rowlock::grant_id{2}));
    grants.forget(rowlock::grant_id{1});
    check_absent(grants, 1);
}

TEST_CASE("a pending grant is held after its answer, and absent after its release") {
    grant_ledger grants;
    grants.expect(rowlock::grant_id{1});
    grants.hold(grant_of(1));
    check_held(grants, 1);
    grants.forget(rowlock::grant_id{1});
    check_absent(grants, 1);
}

TEST_CASE("a reclaimed grant is held without having been pending") {
    grant_ledger grants;
    grants.hold(grant_of(1));
    check_held(grants, 1);
}

TEST_CASE("a grant that is held keeps its object when it is held or expected again") {
    grant_ledger grants;
    const auto first = grant_of(1);
    grants.hold(first);
    grants.hold(grant_of(1));
    grants.expect(rowlock::grant_id{1});
    check_held(grants, 1);
    CHECK(grants.held().front() == first);
}

TEST_CASE("a pending grant with a lost reply becomes unresolved, without a holder") {
    grant_ledger grants;
    grants.expect(rowlock::grant_id{1});
    grants.remember(
        {.name = "job", .grant_id = rowlock::grant_id{1}, .not_after = 9s, .queued = true});
    check_unresolved(grants, 1);
    const auto unknown = grants.unresolved().front();
    CHECK(unknown.name == "job");
    CHECK(unknown.not_after == 9s);
    CHECK(unknown.queued);
    CHECK(unknown.holder == nullptr);
}

TEST_CASE("a held grant that becomes unresolved keeps its holder and is not held any more") {
    grant_ledger grants;
    const auto lost = grant_of(1);
    grants.hold(lost);
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 9s});
    check_unresolved(grants, 1);
    CHECK(grants.unresolved().front().holder == lost);
}

TEST_CASE("an absent grant can become unresolved") {
    grant_ledger grants;
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 9s, .not_before = 20s});
    check_unresolved(grants, 1);
    CHECK(grants.unresolved_due(0s) == 1);  // without a holder there is no margin
}

TEST_CASE("forget() does not drop an unresolved grant, resolved() does") {
    grant_ledger grants;
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 9s});
    grants.forget(rowlock::grant_id{1});
    check_unresolved(grants, 1);
    grants.resolved(rowlock::grant_id{1});
    check_absent(grants, 1);
}

TEST_CASE("resolved() and postpone() leave pending, held and absent grants alone") {
    grant_ledger grants;
    grants.expect(rowlock::grant_id{1});
    grants.hold(grant_of(2));
    for (const std::int64_t id : {1, 2, 3}) {
        grants.resolved(rowlock::grant_id{id});
        grants.postpone(rowlock::grant_id{id});
    }
    CHECK(grants.knows(rowlock::grant_id{1}));
    CHECK(grants.knows(rowlock::grant_id{2}));
    CHECK_FALSE(grants.knows(rowlock::grant_id{3}));
    CHECK(grants.unresolved_count() == 0);
}

TEST_CASE("an unresolved grant that turns out to be held is not released any more") {
    grant_ledger grants;
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 9s});
    grants.hold(grant_of(1));
    check_held(grants, 1);
    grants.forget(rowlock::grant_id{1});
    check_absent(grants, 1);
}

TEST_CASE("an unresolved grant is not expected again") {
    grant_ledger grants;
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 9s});
    grants.expect(rowlock::grant_id{1});
    check_unresolved(grants, 1);
}

TEST_CASE("a grant that is remembered twice is one grant, which ends with the first record") {
    grant_ledger grants;
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 30s});
    grants.remember({.grant_id = rowlock::grant_id{2}, .not_after = 30s});
    grants.remember(
        {.grant_id = rowlock::grant_id{1}, .not_after = 5s, .surely_ended = true, .queued = true});
    CHECK(unresolved_in(grants) == ids{1, 2});
    CHECK(grants.unresolved_due(0s) == 2);
    const auto first = grants.unresolved().front();
    CHECK(first.not_after == 5s);
    CHECK(first.queued);
    CHECK_FALSE(first.surely_ended);  // its outcome is still to be reported
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_after = 40s});
    CHECK(grants.unresolved().front().not_after == 5s);
    CHECK(grants.unresolved().front().queued);
    grants.resolved(rowlock::grant_id{1});
    CHECK(unresolved_in(grants) == ids{2});
}

TEST_CASE("a holder keeps its margin when its grant is remembered once more") {
    grant_ledger grants;
    const auto lost = grant_of(1);
    grants.hold(lost);
    grants.remember({.grant_id = rowlock::grant_id{1}, .surely_ended = true, .not_before = 20s});
    grants.remember({.grant_id = rowlock::grant_id{1}, .surely_ended = true});
    CHECK(grants.unresolved().front().holder == lost);
    CHECK(grants.unresolved_due(19s) == 0);
    CHECK(grants.has_holder(19s));
    lost->stopped = true;
    CHECK(grants.unresolved_due(19s) == 1);
}

TEST_CASE("unresolved grants keep their order, and a postponed one comes last") {
    grant_ledger grants;
    for (const std::int64_t id : {5, 3, 9, 1}) grants.remember({.grant_id = rowlock::grant_id{id}});
    CHECK(unresolved_in(grants) == ids{5, 3, 9, 1});
    grants.postpone(rowlock::grant_id{3});
    CHECK(unresolved_in(grants) == ids{5, 9, 1, 3});
    grants.postpone(rowlock::grant_id{5});
    grants.remember({.grant_id = rowlock::grant_id{7}});
    CHECK(unresolved_in(grants) == ids{9, 1, 3, 5, 7});
    grants.resolved(rowlock::grant_id{1});
    CHECK(unresolved_in(grants) == ids{9, 3, 5, 7});
}

TEST_CASE("a grant that is unresolved again comes last") {
    grant_ledger grants;
    for (const std::int64_t id : {1, 2}) grants.remember({.grant_id = rowlock::grant_id{id}});
    grants.resolved(rowlock::grant_id{1});
    grants.remember({.grant_id = rowlock::grant_id{1}});
    CHECK(unresolved_in(grants) == ids{2, 1});
}

TEST_CASE("a lost grant is due when its margin is over") {
    grant_ledger grants;
    grants.hold(grant_of(1));
    grants.remember({.grant_id = rowlock::grant_id{1}, .surely_ended = true, .not_before = 20s});
    CHECK(grants.unresolved_due(20s - 1ns) == 0);
    CHECK(grants.unresolved_due(20s) == 1);
    CHECK(grants.unresolved_count() == 1);
}

TEST_CASE("a lost grant is due before its margin is over once its holder has stopped") {
    grant_ledger grants;
    const auto lost = grant_of(1);
    grants.hold(lost);
    grants.remember({.grant_id = rowlock::grant_id{1}, .surely_ended = true, .not_before = 20s});
    CHECK_FALSE(grants.unresolved().front().is_due(0s));
    lost->stopped = true;
    CHECK(grants.unresolved().front().is_due(0s));
    CHECK(grants.unresolved_due(0s) == 1);
}

TEST_CASE("a held grant has a holder until that holder has stopped, lost or not") {
    grant_ledger grants;
    const auto one = grant_of(1);
    CHECK_FALSE(grants.has_holder(0s));
    grants.expect(rowlock::grant_id{1});
    CHECK_FALSE(grants.has_holder(0s));  // its call has not returned
    grants.hold(one);
    CHECK(grants.has_holder(24h));
    one->now = grant::state::lost;
    CHECK(grants.has_holder(24h));
    one->stopped = true;
    CHECK_FALSE(grants.has_holder(0s));
}

TEST_CASE("an unresolved grant has a holder until its margin is over or that holder has stopped") {
    grant_ledger grants;
    const auto first = grant_of(1);
    const auto second = grant_of(2);
    grants.hold(first);
    grants.hold(second);
    grants.remember({.grant_id = rowlock::grant_id{1}, .not_before = 20s});
    grants.remember({.grant_id = rowlock::grant_id{2}, .not_before = 30s});
    CHECK(grants.has_holder(29s));
    CHECK_FALSE(grants.has_holder(30s));
    second->stopped = true;
    CHECK(grants.has_holder(19s));
    CHECK_FALSE(grants.has_holder(20s));
}

TEST_CASE("leases() leaves out lost grants, held_count() counts them") {
    grant_ledger grants;
    const auto lost = grant_of(1);
    grants.hold(lost);
    grants.hold(grant_of(2));
    grants.expect(rowlock::grant_id{3});
    grants.remember({.grant_id = rowlock::grant_id{4}});
    CHECK(grants.leases() == 2);
    lost->now = grant::state::lost;
    CHECK(grants.leases() == 1);
    CHECK(grants.held_count() == 2);
    CHECK(held_in(grants) == ids{1, 2});
}

TEST_CASE("a grant that no caller has counts for no thread, and is known all the same") {
    grant_ledger grants;
    const auto one = grant_of(1, "worker");
    one->unclaimed = true;
    grants.hold(one);
    CHECK_FALSE(grants.holds_for("worker"));
    CHECK(grants.leases() == 0);
    CHECK(grants.held_count() == 1);
    CHECK(grants.knows(rowlock::grant_id{1}));
    one->unclaimed = false;
    CHECK(grants.holds_for("worker"));
    CHECK(grants.leases() == 1);
}

TEST_CASE("a thread holds a lease while one that it acquired is held and not ending") {
    grant_ledger grants;
    const auto one = grant_of(1, "worker");
    grants.hold(one);
    CHECK(grants.holds_for("worker"));
    CHECK_FALSE(grants.holds_for("another"));
    one->now = grant::state::releasing;
    CHECK_FALSE(grants.holds_for("worker"));
    one->now = grant::state::held;
    grants.remember({.grant_id = rowlock::grant_id{1}});
    CHECK_FALSE(grants.holds_for("worker"));
}

TEST_CASE("for_each_held() visits the held grants alone") {
    grant_ledger grants;
    grants.expect(rowlock::grant_id{1});
    grants.hold(grant_of(2));
    grants.hold(grant_of(3));
    grants.remember({.grant_id = rowlock::grant_id{4}});
    ids seen;
    grants.for_each_held([&](grant& each) { seen.push_back(number(each.grant_id)); });
    std::ranges::sort(seen);
    CHECK(seen == ids{2, 3});
}

TEST_CASE("an unknown outcome is noted for good, one that surely ended is not") {
    grant_ledger grants;
    grants.remember({.grant_id = rowlock::grant_id{1}, .surely_ended = true});
    CHECK_FALSE(grants.ever_unknown());
    grants.remember({.grant_id = rowlock::grant_id{1}});  // also where the id is unresolved already
    CHECK(grants.ever_unknown());
    grants.resolved(rowlock::grant_id{1});
    CHECK(grants.ever_unknown());

    grant_ledger others;
    others.doubt();
    CHECK(others.ever_unknown());
    check_absent(others, 1);
}

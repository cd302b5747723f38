// Quorum locks in simulated worlds with lost and late messages, pauses, crashes, partitions and
// stores that forget.
//
//   ballot_simulation_test [--grants=N]    N grants in each world that must be safe; controls end
//   with their first failure

#define DOCTEST_CONFIG_IMPLEMENT
// shows: promise-20
#include "sim/ballot_simulation.hpp"

#include "support/progress.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

namespace {

using rowlock::simulation::amnesia;
using rowlock::simulation::report;
using rowlock::simulation::run_many;
using rowlock::simulation::second;
using rowlock::simulation::to_string;
using rowlock::simulation::world;

std::int64_t wanted_grants = 12'000;

world of_stores(int stores) {
    world made;
    made.stores = stores;
    made.majority = stores / 2 + 1;
    return made;
}

int seeds_for(const world& of) {
    return static_cast<int>((wanted_grants + of.grants - 1) / of.grants);
}

void must_be_safe(const world& of, std::uint64_t first) {
    const report seen = run_many(of, seeds_for(of), first);
    MESSAGE(of.stores << " stores: " << to_string(seen));
    CHECK(seen.overlaps == 0);
    CHECK(seen.token_falls == 0);
    CHECK(seen.grants >= wanted_grants);
    CHECK(seen.amnesias > 0);
    CHECK(seen.losses > 0);
}

/// Without that safeguard the worlds show two holders, or a token that falls: the simulation would
/// see it in the product.
void must_fail(const std::function<void(world&)>& leave_out, int stores = 3) {
    world weakened = of_stores(stores);
    leave_out(weakened);
    constexpr int at_most = 400, together = 10;
    report seen;
    for (int seeds = 0; seeds < at_most && seen.safe(); seeds += together) {
        seen.add(run_many(weakened, together, 5000 + static_cast<std::uint64_t>(seeds)));
    }
    MESSAGE(to_string(seen));
    CHECK_FALSE(seen.safe());
}

TEST_CASE("a majority of three, four or five stores has one holder, and its token rises") {
    for (const int stores : {3, 5, 4}) {
        must_be_safe(of_stores(stores), static_cast<std::uint64_t>(stores) * 1'000'000);
    }
}

TEST_CASE("a former primary that lives on for some clients makes no second holder") {
    for (const int stores : {3, 5}) {
        world split = of_stores(stores);
        split.former_primaries = true;
        must_be_safe(split, 77);
    }
}

TEST_CASE("the lease's row and the quorum's token guard data beside a store") {
    const world of = of_stores(3);
    const report seen = run_many(of, seeds_for(of), 9'000'000);
    MESSAGE(to_string(seen));
    CHECK(seen.unguarded.late > 0);    // the control
    CHECK(seen.unguarded.behind > 0);  // likewise
    CHECK(seen.by_row_and_token.behind == 0);
    CHECK(seen.by_row_and_token.late <= seen.by_lease_row.late);
}

TEST_CASE("stores at different distances do not keep a client, or several, from a majority") {
    for (const int clients : {1, 5}) {
        world uneven = of_stores(3);
        uneven.clients = clients;
        uneven.faults = false;
        uneven.forgets = amnesia::none;
        uneven.longest = 60 * second;
        uneven.grants = 1'000'000;
        for (const std::int64_t slowest : {10'000, 20'000, 50'000, 90'000}) {
            uneven.further = {slowest, 0, slowest / 2};
            const report seen = rowlock::simulation::run(uneven, 1);
            MESSAGE(clients << " clients, " << slowest << " us: " << seen.grants << " grants, "
                            << seen.rests << " given back, longest wait " << seen.longest_wait);
            CHECK(seen.grants > 100);
            CHECK(seen.longest_wait < 10 * second);
        }
    }
}

TEST_CASE("the guard beside a store that is counted late lets its holder's writes through") {
    for (const int clients : {1, 2, 5}) {
        world uneven = of_stores(3);
        uneven.clients = clients;
        uneven.faults = false;
        uneven.forgets = amnesia::none;
        uneven.delay_max = 5'000;
        uneven.further = {5'000, 0, 0};
        uneven.work_min = uneven.work_max = 50'000;  // until all are counted
        uneven.grants = 5'000;
        const report seen = rowlock::simulation::run(uneven, 1);
        MESSAGE(clients << " clients: " << seen.ahead << " of " << seen.counted
                        << " counted are ahead; " << to_string(seen));
        CHECK(seen.safe());
        CHECK(seen.counted > 2 * seen.grants);
        CHECK(seen.ahead * 1000 < seen.grants);
    }
}

TEST_CASE("control: half of the stores is no majority") {
    must_fail([](world& of) { of.majority = 2; }, 4);
}
TEST_CASE("control: trust as long as the longest window") {
    must_fail([](world& of) { of.shortest_of_majority = false; });
}
TEST_CASE("control: windows that count from the reply, without a margin") {
    must_fail([](world& of) { of.window_from_request = false; });
}
TEST_CASE("control: tokens that are not written back") {
    must_fail([](world& of) { of.writes_back = false; });
}
TEST_CASE("control: a release of whichever grant is there") {
    must_fail([](world& of) { of.releases_by_grant = false; });
}
TEST_CASE("control: a grant that is known by its id, whatever its session") {
    must_fail([](world& of) {
        of.grants_by_session = false;
        of.forgets = amnesia::none;
        of.pause_every = second;
    });
}
TEST_CASE("control: a majority that was lost comes back") {
    must_fail([](world& of) {
        of.latches = false;
        of.pause_every = second;
    });
}
TEST_CASE("control: a store that has forgotten votes at once") {
    must_fail([](world& of) { of.forgets = amnesia::votes_at_once; });
}
TEST_CASE("control: a store that has forgotten waits, and copies no tokens") {
    must_fail([](world& of) { of.forgets = amnesia::waits_only; });
}
TEST_CASE("control: a store that has forgotten waits, and counts on from far above what it knows") {
    must_fail([](world& of) { of.forgets = amnesia::waits_and_raises; });
}
TEST_CASE("control: a store that has forgotten copies the tokens, and does not wait") {
    must_fail([](world& of) { of.forgets = amnesia::copies_only; });
}
TEST_CASE("control: a store that has forgotten is not detected") {
    must_fail([](world& of) { of.forgets = amnesia::undetected; });
}
TEST_CASE("control: a former primary lives on, and no epoch shuts it out") {
    must_fail([](world& of) {
        of.former_primaries = true;
        of.epochs = false;
    });
}
TEST_CASE("control: a lease of a former primary counts on when the epoch is known") {
    must_fail([](world& of) {
        of.former_primaries = true;
        of.excludes = false;
    });
}
TEST_CASE("control: clock rates that differ by more than the margin covers") {
    must_fail([](world& of) { of.drift = 0.15; });
}

}  // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word{argv[i]};
        if (word.starts_with("--grants=")) wanted_grants = std::stoll(word.substr(9));
    }
    doctest::Context context{argc, argv};
    return context.run();
}

// F31: waiters that cancel at the moment of their grant.

#include "fault/frame.hpp"
#include "stress/crew.hpp"
#include "stress/recorded.hpp"
#include "support/waits.hpp"

#include <algorithm>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::trial;

constexpr int processes = 3;
constexpr int threads = 4;
/// The heartbeat of the default ttl, with which the client releases what it could not at once.
constexpr std::chrono::milliseconds heartbeat = 10s;

/// Starts processes whose threads wait for one of three locks for about as long as it is held.
void start(stress::crew& crew, int calls, unsigned seed) {
    for (int i = 0; i < processes; ++i) {
        stress::role part;
        part.mode = "cancel";
        part.names = 3;
        part.threads = threads;
        part.count = calls;
        part.hold_us = 4'000;
        part.seed = seed;
        crew.add(part);
    }
    crew.begin();
}

bool nothing_left(support::lock_database& database, std::chrono::milliseconds limit) {
    return support::eventually(
        [&] {
            const auto left = stress::left_in(database);
            return left.tickets == 0 && left.holds == 0;
        },
        limit);
}

void give_up_in_time(trial& in, support::lock_database& database) {
    const stress::recording recording{database};
    stress::crew crew{database};
    start(crew, (in.rounds() + processes * threads - 1) / processes / threads, in.seed());
    for (const auto& each : crew.members()) {
        in.must(each->done(in.size() == fault::scale::full ? 60min : 120s),
                "a process does not end");
    }
    // Checked while the clients live, since their destructors clean up in any case.
    const auto quiet = std::chrono::steady_clock::now();
    in.must(nothing_left(database, 3 * heartbeat), "holds or tickets are left");
    in.took(std::chrono::steady_clock::now() - quiet, "until nothing was left");
    crew.stop();
    const auto past = crew.past();
    in.made(static_cast<int>(past.attempts.size()));
    in.violations(overlaps(past));
    in.violations(overlapping_beliefs(past));
    in.violations(token_regressions(past));
    // timed_out: a limit of a millisecond may pass before the database has answered at all.
    in.violations(unexpected_results(past, {"granted", "none", "ok", "timed_out"}));
    in.note("calls said:" + failures_in(past));
    const auto truth = recording.read();
    in.violations(overlapping_holds(truth));
    in.violations(falling_tokens(truth));
    in.violations(unfair_grants(truth, recording.order()));
    const auto count = static_cast<long>(past.attempts.size());
    const auto won = static_cast<long>(past.holds.size());
    in.must_alone(
        won > count / 100 && won < count - count / 100,
        "too few races: " + std::to_string(won) + " of " + std::to_string(count) + " won");
}

/// The control: a killed waiter cancels nothing.
void vanish(trial& in, support::lock_database& database) {
    stress::crew crew{database};
    start(crew, 1'000'000, in.seed());
    support::eventually([&] {
        const auto left = stress::left_in(database);
        return left.tickets > 0 && left.holds > 0;
    });
    for (const auto& each : crew.members()) each->kill();
    if (!nothing_left(database, 500ms)) in.violation("holds or tickets are left");
}

const fault::on_databases f31{{.id = "F31",
                               .what = "cancels race with grants",
                               .databases = fault::all_databases,
                               .quick_rounds = 2'000,
                               .full_rounds = 100'000,
                               .bound = heartbeat + 1s,
                               .run = give_up_in_time,
                               .control = vanish}};

}  // namespace

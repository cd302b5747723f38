// F18: no waiter is woken. Listening connections are killed, or there are none; on MySQL and
// MariaDB no waiter sleeps in the server. Polls find each grant in time.

#include "fault/frame.hpp"
#include "stress/crew.hpp"
#include "stress/recorded.hpp"
#include "support/interception.hpp"
#include "support/pgbouncer.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>

#include <algorithm>
#include <future>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using support::backend;
using steady = std::chrono::steady_clock;

constexpr milliseconds poll = 500ms;
constexpr milliseconds tolerance = 250ms;
constexpr int processes = 4;

/// The number of names, each with as many threads as there are processes. Where half of the waiters
/// find their grants by polls, a hand-off takes a share of the poll interval, so that 100 000 of
/// them require more names at once.
int names_for(const trial& in, const support::lock_database& database) {
    const bool many = in.size() == fault::scale::full && database.which() == backend::mariadb;
    return many ? 24 : 4;
}

void judge(trial& in, const stress::history& past) {
    in.made(static_cast<int>(past.holds.size()));
    const auto passed = hand_offs(past);
    in.note(summary(passed));
    in.took(std::chrono::microseconds{percentile(passed, 1.0)}, "the slowest hand-off");
    in.must_be_none_alone(late_grants(
        past, {},
        {.usual = std::chrono::microseconds{poll + tolerance}.count(), .after_fault = 0}));
    in.violations(overlaps(past));
    in.violations(overlapping_beliefs(past));
    in.violations(token_regressions(past));
    in.violations(unfair_calls(past));
    in.violations(unexpected_results(past, {"granted", "ok"}));
    in.note("calls said:" + failures_in(past));
}

/// Half of the processes run without wake-ups, the others lose their listening connections.
void pass_on_unheard(trial& in, support::lock_database& database) {
    const stress::recording recording{database};
    stress::crew crew{database};
    const bool sqlite = database.which() == backend::sqlite;
    const int names = names_for(in, database);
    for (int i = 0; i < processes; ++i) {
        stress::role part;
        part.names = names;
        part.threads = names;
        part.count = std::max(1, in.rounds() / processes / names);
        part.poll_ms = static_cast<int>(poll.count());
        part.polling = sqlite || i % 2 == 0;
        part.by_database = !part.polling;
        part.seed = in.seed();
        crew.add(part);
    }
    {
        crew.begin();
        std::optional<stress::listener_killer> killer;
        // Seldom enough for a client to reconnect and poll: nothing is promised to a client whose
        // listener is killed again while it connects.
        const auto seldom = poll + tolerance;
        if (!sqlite) killer.emplace(database, in.seed(), seldom, 2 * seldom);
        for (const auto& each : crew.members()) {
            in.must(each->done(in.size() == fault::scale::full ? 60min : 120s),
                    "a wake-up was lost: a process does not come to an end");
        }
        if (killer) in.note(std::to_string(killer->killed()) + " listening connections killed");
        if (killer && killer->unanswered()) {
            in.made();
            in.must_alone(false, "the server did not answer a KILL in time");
            return crew.stop();
        }
        in.must(sqlite || killer->killed() > 0, "no listening connection was killed");
    }
    crew.stop();
    const auto left = stress::left_in(database);
    in.must(left.tickets == 0 && left.holds == 0, "holds or tickets are left");
    judge(in, crew.past());
    const auto truth = recording.read();
    in.violations(overlapping_holds(truth));
    in.violations(falling_tokens(truth));
    in.violations(unfair_grants(truth, recording.order()));
}

/// A waiter without wake-ups and polls is never served.
void neither_hear_nor_look(trial& in, support::lock_database& database) {
    support::interception network;
    network.before([](std::string_view what) {
        const bool looks =
            what == "entries" || what == "entries_by_id" || what.starts_with("served");
        if (looks) support::interception::refuse_to_send();
    });
    rowlock::client holder{database.source(), database.options()};
    rowlock::client waiter{
        network.wrap(database.source()),
        database.options({.poll_interval = poll, .wake_ups = rowlock::wakeup_mode::polling})};
    auto held = holder.acquire("job");
    auto turn = std::async(std::launch::async,
                           [&] { return waiter.try_acquire_for("job", 3 * (poll + tolerance)); });
    static_cast<void>(support::places(database, 1));
    const auto at = steady::now();
    held.release();
    const auto got = turn.get();
    in.took(steady::now() - at, "until the grant was known");
    if (!got) in.violation("the grant was never known");
}

const fault::on_databases f18{{.id = "F18",
                               .what = "wake-ups are lost, or there are none",
                               .databases = fault::all_databases,
                               .quick_rounds = 800,
                               .full_rounds = 100'000,
                               .bound = poll + tolerance,
                               .run = pass_on_unheard,
                               .control = neither_hear_nor_look}};

// --- behind a pooler ---------------------------------------------------------------------------

/// Behind a pooler where LISTEN succeeds and no notification arrives.
void wait_behind_a_pooler(trial& in) {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return in.skip("no PostgreSQL");
    const auto pooler = support::pgbouncer::start(support::pgbouncer::pool_mode::transaction);
    if (!pooler) return in.skip("no PgBouncer");
    const auto source = database.at(pooler->url());
    rowlock::client first{source, database.options({.poll_interval = poll})};
    rowlock::client second{source, database.options({.poll_interval = poll,
                                                     .wake_ups = rowlock::wakeup_mode::polling})};
    rowlock::client* holder = &first;
    rowlock::client* waiter = &second;
    auto held = holder->acquire("job");
    for (int i = 0; i < in.rounds(); ++i) {
        auto turn =
            std::async(std::launch::async, [&] { return support::acquire_soon(*waiter, "job"); });
        in.must(support::places(database, 1), "no ticket exists");
        const auto at = steady::now();
        held.release();
        held = turn.get();
        in.took(steady::now() - at, "until the next held it");
        std::swap(holder, waiter);
        in.made();
    }
}

const fault::registered f18_pooler{{.id = "F18/pgbouncer",
                                    .what = "waiters behind a transaction pooler",
                                    .quick_rounds = 12,
                                    .full_rounds = 2'000,
                                    .bound = poll + tolerance,
                                    .run = wait_behind_a_pooler}};

}  // namespace

// The promises of the queue under load: order, no lost hand-off, no remains. Each case runs on
// every database, in a short form with the other tests and in full by scripts/test -L stress.
//
//   stress_queue_test [--full] [--seed=N] [doctest's options]

#include "stress/crew.hpp"
#include "stress/history.hpp"
#include "stress/recorded.hpp"
#include "support/lock_database.hpp"
#include "support/this_process.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include "support/progress.hpp"
#include "support/servers.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using rowlock::sql::dialect;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using stress::micros;
using stress::told;

struct scale {
    bool full = false;
    unsigned seed = std::random_device{}();
};
scale& chosen() {
    static scale one;
    return one;
}

/// The time by which a busy machine may exceed a promised time. A short run may be beside others,
/// on a machine that stalls.
milliseconds tolerance() {
    return chosen().full ? 500ms : 12s;
}

std::string name_of(const support::lock_database& database) {
    return support::to_string(database.which());
}

micros in_micros(std::chrono::microseconds time) {
    return time.count();
}

/// Checks what the processes saw, and what the database recorded.
void check_exclusion_and_order(stress::history& past, const stress::recording& recording,
                               const stress::records& truth) {
    const auto forced = forced_grants(truth);
    past.forced.insert(forced.begin(), forced.end());
    for (const auto& found :
         {overlaps(past), overlapping_beliefs(past), token_regressions(past),
          overlapping_holds(truth), beliefs_beyond_records(past, truth, recording.slack()),
          falling_tokens(truth), other_tokens(past, truth), unexplained_losses(past, truth, 0),
          unfair_grants(truth, recording.order())}) {
        CHECK_MESSAGE(found.empty(), told(found));
    }
}

bool nothing_left(support::lock_database& database) {
    return support::eventually([&] {
        const auto left = stress::left_in(database);
        return left.tickets == 0 && left.holds == 0;
    });
}

// --- hand-offs -------------------------------------------------------------------------------

constexpr int hand_off_processes = 5;
constexpr int hand_off_names = 3;
constexpr milliseconds poll = 1s;  // the default

void pass_on_under_fire(support::lock_database& database) {
    const int wanted = chosen().full ? 100'000 : 1'000;
    const stress::recording recording{database};
    stress::crew crew{database};
    for (int i = 0; i < hand_off_processes; ++i) {
        crew.add({.names = hand_off_names,
                  .threads = hand_off_names,
                  .count = wanted / hand_off_processes / hand_off_names,
                  .by_database = database.which() != support::backend::sqlite,
                  .seed = chosen().seed});
    }
    int killed = 0;
    bool unanswered = false;
    {
        crew.begin();
        const stress::listener_killer killer{database, chosen().seed, 20ms,
                                             chosen().full ? 1'000ms : 200ms};
        for (const auto& each : crew.members()) {
            const bool done = each->done(chosen().full ? 40min : 2min);
            CHECK(done);
        }
        killed = killer.killed();
        unanswered = killer.unanswered();
    }
    const auto left = stress::left_in(database);
    CHECK(left.tickets == 0);
    CHECK(left.holds == 0);
    crew.stop();

    auto past = crew.past();
    const auto passed = hand_offs(past);
    const auto truth = recording.read();
    const auto placed = std::count_if(past.attempts.begin(), past.attempts.end(),
                                      [](const auto& each) { return each.waiting != 0; });
    CHECK(placed > static_cast<long>(past.holds.size()) / 2);
    MESSAGE(name_of(database), ": ", summary(passed), "; ", killed, " listeners killed",
            std::string{unanswered ? ", until a KILL was not answered; " : "; "}, summary(truth));
    CHECK(static_cast<int>(past.holds.size()) ==
          wanted / hand_off_processes / hand_off_names * hand_off_names * hand_off_processes);
    if (database.which() != support::backend::sqlite) CHECK((killed > 0 || unanswered));
    check_exclusion_and_order(past, recording, truth);
    const auto unfair = unfair_calls(past);
    CHECK_MESSAGE(unfair.empty(), told(unfair));
    const auto late =
        late_grants(past, {}, {.usual = in_micros(poll + tolerance()), .after_fault = 0});
    CHECK_MESSAGE(late.empty(), told(late));
    // A killed listener reconnects at once, and polls for what it missed. Each stall of the server
    // delays one hand-off of each name, of only a thousand in a short run.
    CHECK(percentile(passed, chosen().full ? 0.99 : 0.95) < in_micros(poll / 2));
    const auto odd = unexpected_results(past, {"granted", "ok"});
    CHECK_MESSAGE(odd.empty(), told(odd), failures_in(past));
}

/// Makes a ticket, and a grant, without a client.
void stand_by_hand(support::lock_database& database, int grant_id) {
    database.run(
        "insert into rowlock_ticket (name, session, grant_id, enqueued_at) values ('a', 1, " +
        std::to_string(grant_id) + ", " +
        (database.speaks() == dialect::postgresql ? "clock_timestamp())" : "0)"));
}

void grant_by_hand(support::lock_database& database, int token, int grant_id) {
    const std::string now = database.speaks() == dialect::postgresql ? "clock_timestamp()" : "0";
    if (database.number("select count(*) from rowlock_lock") == 0) {
        database.run("insert into rowlock_lock (name, token, changed_at) values ('a', 1, " + now +
                     ")");
    }
    database.run("update rowlock_lock set session = 1, token = " + std::to_string(token) +
                 ", grant_id = " + std::to_string(grant_id));
}

// --- cancel or grant -------------------------------------------------------------------------

void change_minds(support::lock_database& database) {
    const int wanted = chosen().full ? 100'000 : 1'500;
    constexpr int processes = 3;
    constexpr int threads = 4;
    const stress::recording recording{database};
    stress::crew crew{database};
    for (int i = 0; i < processes; ++i) {
        crew.add({.mode = "cancel",
                  .names = 3,
                  .threads = threads,
                  .count = wanted / processes / threads,
                  .hold_us = 2'000,
                  .seed = chosen().seed});
    }
    crew.begin();
    for (const auto& each : crew.members()) {
        const bool done = each->done(chosen().full ? 40min : 2min);
        CHECK(done);
    }
    // Checked while the clients live, since their destructors clean up in any case.
    CHECK(nothing_left(database));
    crew.stop();
    auto past = crew.past();
    const auto truth = recording.read();
    MESSAGE(name_of(database), ": ", past.attempts.size(), " races, ", past.holds.size(), " won; ",
            summary(truth));
    check_exclusion_and_order(past, recording, truth);
    // A limit of some milliseconds may pass before the first answer.
    const auto odd = unexpected_results(past, {"granted", "none", "ok", "timed_out"});
    CHECK_MESSAGE(odd.empty(), told(odd), failures_in(past));
}

// --- killed waiters --------------------------------------------------------------------------

void stand_in_line(support::lock_database& database, std::int64_t place) {
    const bool stands = support::eventually(
        [&] { return database.number("select count(*) from rowlock_ticket") >= place; }, 60s);
    CHECK(stands);
}

void lose_waiters(support::lock_database& database) {
    constexpr milliseconds ttl = 5s;
    // A survivor whose session ends, because the server stalls on a busy machine, enqueues again.
    constexpr milliseconds long_ttl = 30s;
    constexpr std::size_t waiters = 20;
    const std::vector<std::size_t> killed{0, 6, 7, 12, 19};  // head, middle, tail
    rowlock::client holder{database.source(), database.options({.ttl = long_ttl})};
    auto held = holder.acquire("lock-0");
    stress::crew crew{database};
    for (std::size_t i = 0; i < waiters; ++i) {
        const auto its_ttl = std::ranges::find(killed, i) != killed.end() ? ttl : long_ttl;
        crew.add({.count = 1, .ttl_ms = static_cast<int>(its_ttl.count())});
    }
    std::int64_t place = 0;
    for (const auto& each : crew.members()) {
        each->begin();
        stand_in_line(database, ++place);
    }
    for (const auto each : killed) crew.members()[each]->kill();
    const micros from = stress::boot_time();
    held.release();
    for (const auto& each : crew.members()) {
        if (each->killed()) continue;
        const bool done = each->done(30s);
        CHECK(done);
    }
    const auto past = crew.past();
    REQUIRE(past.holds.size() == waiters - killed.size());
    auto holds = past.holds;
    std::sort(holds.begin(), holds.end(),
              [](const auto& a, const auto& b) { return a.token < b.token; });
    const bool ordered =
        std::is_sorted(holds.begin(), holds.end(),
                       [](const auto& a, const auto& b) { return a.process < b.process; });
    std::string order;
    for (const auto& each : holds) order += ' ' + std::to_string(each.process);
    for (const auto& note : past.notes) order += "\n  " + note;  // such as an entry that was lost
    CHECK_MESSAGE(ordered, "served in this order:", order);
    const auto took = holds.back().acquired - from;
    MESSAGE(name_of(database), ": the last was served after ", took / 1000, " ms, the ttl being ",
            ttl.count(), " ms");
    CHECK(took < in_micros(ttl + poll + tolerance()));
    crew.stop();
}

// --- a long queue ----------------------------------------------------------------------------

struct served {
    std::mutex mutex;
    std::vector<int> order;
    std::vector<std::string> failures;
};

void wait_in_queue(rowlock::client& locks, int place, rowlock::queueing queueing, served& all) {
    std::string failure = "timed out";
    try {
        auto lease = locks.try_acquire_for("line", 120s, {.queueing = queueing});
        if (lease) {
            {
                const std::lock_guard lock{all.mutex};
                all.order.push_back(place);
            }
            lease->release();
            return;
        }
    } catch (const std::exception& error) {
        failure = error.what();
    }
    const std::lock_guard lock{all.mutex};
    all.failures.push_back(failure);
}

/// The order in which `clients` times `threads` waiters are served that enqueue one after the
/// other.
void form_a_line(support::lock_database& database, int clients, int threads,
                 rowlock::queueing queueing, served& all) {
    std::vector<std::unique_ptr<rowlock::client>> locks;
    for (int i = 0; i < clients; ++i) {
        locks.push_back(std::make_unique<rowlock::client>(database.source(), database.options()));
    }
    rowlock::client first{database.source(), database.options()};
    auto held = first.acquire("line");
    std::vector<std::thread> line;
    for (int place = 0; place < clients * threads; ++place) {
        auto& client = *locks[static_cast<std::size_t>(place % clients)];
        line.emplace_back([&, place] { wait_in_queue(client, place, queueing, all); });
        if (queueing == rowlock::queueing::fair) {
            stand_in_line(database, place + 1);
        } else {
            std::this_thread::sleep_for(1ms);
        }
    }
    const auto from = steady_clock::now();
    held.release();
    for (auto& each : line) each.join();
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - from);
    MESSAGE(name_of(database), ": ", line.size(), " served within ", took.count(), " ms");
}

void serve_a_long_line(support::lock_database& database) {
    served all;
    if (chosen().full) {
        form_a_line(database, 10, 50, rowlock::queueing::fair, all);
        CHECK(all.order.size() == 500);
    } else {
        form_a_line(database, 5, 20, rowlock::queueing::fair, all);
        CHECK(all.order.size() == 100);
    }
    CHECK_MESSAGE(all.failures.empty(), told(all.failures));
    CHECK(std::is_sorted(all.order.begin(), all.order.end()));
    const auto left = stress::left_in(database);
    CHECK(left.tickets == 0);
    CHECK(left.holds == 0);
}

// --- a thousand threads ----------------------------------------------------------------------

void wait_by_the_thousand(support::lock_database& database) {
    constexpr int waiters = 1'000;
    rowlock::client other{database.source(), database.options()};
    auto held = other.acquire("line");
    std::stop_source stop;
    std::atomic<int> granted{0};
    std::atomic<int> refused{0};
    std::atomic<int> failed{0};
    const int sockets_before = support::connections_of_this_process();
    const int tasks_before = support::threads_of_this_process();
    // On a busy machine the first statements of a thousand threads take longer than five seconds.
    rowlock::client locks{database.source(),
                          database.options({.ttl = 60s, .statement_timeout = 20s})};
    std::vector<std::thread> line;
    for (int i = 0; i < waiters; ++i) {
        line.emplace_back([&] {
            try {
                if (auto lease = locks.acquire("line", stop.get_token())) {
                    ++granted;
                    lease->release();
                } else {
                    ++refused;
                }
            } catch (const std::exception& failure) {
                if (++failed == 1) MESSAGE(std::string{failure.what()});
            }
        });
    }
    stand_in_line(database, waiters);
    const auto connections = locks.stats().connections;
    const int sockets = support::connections_of_this_process() - sockets_before;
    const int own_tasks = support::threads_of_this_process() - tasks_before - waiters;
    CHECK(connections <= 8);
    CHECK(sockets <= 9);  // one of them listens
    CHECK(own_tasks <= 12);
    held.release();
    const bool moving = support::eventually([&] { return granted >= waiters / 10; }, 30s);
    CHECK(moving);
    const auto from = steady_clock::now();
    stop.request_stop();
    for (auto& each : line) each.join();
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - from);
    MESSAGE(name_of(database), ": ", connections, " connections, ", sockets, " sockets, ",
            own_tasks, " threads of the library; ", granted.load(),
            " granted, the rest stopped within ", took.count(), " ms");
    CHECK(failed.load() == 0);
    CHECK(granted.load() + refused.load() == waiters);
    CHECK(nothing_left(database));
}

}  // namespace

// shows: promise-9
TEST_CASE("hand-offs: none is lost or late while listening connections are killed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        pass_on_under_fire(database);
    }
}

// shows: promise-9
TEST_CASE("hand-offs: control: a grant out of ticket order, or a token granted again, is found") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const stress::recording recording{database};
        const auto unfair = [&] { return unfair_grants(recording.read(), recording.order()); };
        stand_by_hand(database, 1);
        // Much later by the clock, the only order that MariaDB's records show.
        if (database.speaks() == dialect::mysql) std::this_thread::sleep_for(1'100ms);
        stand_by_hand(database, 2);
        grant_by_hand(database, 10, 2);
        grant_by_hand(database, 11, 1);
        CHECK(unfair().size() == 1);
        CHECK(falling_tokens(recording.read()).empty());
        grant_by_hand(database, 11, 3);
        CHECK(falling_tokens(recording.read()).size() == 1);
        CHECK(unfair().size() == 1);
    }
}

// shows: promise-9
TEST_CASE("cancels: cancellations that race with grants leave neither a lease nor a ticket") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        change_minds(database);
    }
}

// shows: promise-9
TEST_CASE("killed waiters: the others keep their order and wait one ttl longer in all") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        lose_waiters(database);
    }
}

// shows: promise-9
TEST_CASE("line: all waiters of a long queue are served in order") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        serve_a_long_line(database);
    }
}

// shows: promise-9
TEST_CASE("line: control: barging acquires are not served in order") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    served all;
    form_a_line(database, 5, 10, rowlock::queueing::barging, all);
    CHECK_MESSAGE(all.failures.empty(), told(all.failures));
    CHECK(all.order.size() == 50);
    CHECK_FALSE(std::is_sorted(all.order.begin(), all.order.end()));
}

TEST_CASE("thousand: a thousand threads wait on one name over a few connections") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        wait_by_the_thousand(database);
    }
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--full") chosen().full = true;
        if (word.starts_with("--seed=")) {
            chosen().seed = static_cast<unsigned>(std::stoul(word.substr(7)));
        }
    }
    std::cout << "seed " << chosen().seed << '\n';
    constexpr int skipped = 77;  // ctest's SKIP_RETURN_CODE
    const int status = doctest::Context{argc, argv}.run();
    return status == 0 && support::missed_a_server() ? skipped : status;
}

// shared_mutexes and semaphores, several leases at once, elections, latches and double barriers,
// under kills, pauses, cut connections, restarts and a reaper: processes hold them in all modes,
// and an oracle in memory that they share adds up what they believe.
//
//   shared_stress_test [--database=SQLite|PostgreSQL|MariaDB|MySQL]… [--seconds=N] [--terms=N]
//                      [--seed=N] [--restarts] [doctest options]
//
//   --restarts  PostgreSQL and MariaDB are servers of the test's own, restarted and crashed at
//               random
//   --terms     how many terms there are at least while leaders are killed
// shows: promise-12, promise-13, promise-14, promise-16, promise-18

#include "stress/shared_stress.hpp"

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "stress/board.hpp"
#include "stress/crew.hpp"
#include "support/own_server.hpp"
#include "support/servers.hpp"
#include <rowlock/reaper.hpp>
#include <rowlock/semaphore.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include "support/progress.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using stress::board;
using stress::chosen;
using stress::crew;
using stress::mapped_board;

namespace {

/// Processes of a crew, each with slots of its own on the board: a killed one is believed to hold
/// until its trust window closes.
class troop {
public:
    troop(support::lock_database& database, const char* mode) : all_{database}, mode_{mode} {}

    [[nodiscard]] std::string path() const { return all_.folder() + "/board"; }
    stress::member& add() {
        constexpr int threads = 3;
        stress::role part;
        part.program = ROWLOCK_SHARED_WORKER;
        part.mode = mode_;
        part.threads = threads;
        part.ttl_ms = 1'500;
        part.poll_ms = 100;
        part.seed = chosen().seed + first_;
        part.words = {"board=" + path(), "first=" + std::to_string(first_)};
        first_ += threads;
        return all_.add(part);
    }
    [[nodiscard]] bool has_room() const { return first_ + 100 < board::threads; }
    [[nodiscard]] crew& members() { return all_; }

private:
    crew all_;
    const char* mode_;
    unsigned first_ = 0;
};

constexpr int disturbances_per_restart = 60;

/// The members that run.
std::vector<stress::member*> alive(crew& all) {
    std::vector<stress::member*> found;
    for (const auto& each : all.members()) {
        if (!each->killed()) found.push_back(each.get());
    }
    return found;
}

/// Kills, pauses or replaces a member, cuts a connection, or reaps.
void disturb_once(support::lock_database& database, troop& workers, std::mt19937& random) {
    const auto running = alive(workers.members());
    auto& one = *running[random() % running.size()];
    switch (random() % 5) {
        case 0:
            if (!workers.has_room()) break;
            one.kill();
            workers.add().begin();
            break;
        case 1:
            one.pause();
            std::this_thread::sleep_for(std::chrono::milliseconds{random() % 2500});
            one.resume();
            break;
        case 2:
            stress::kill_a_connection(database, static_cast<unsigned>(random()));
            break;
        default:
            // Longer than a paused member may wait for the answer of a generation.
            (void)rowlock::reap(database.source(), database.reaping(10s, 200ms));
            break;
    }
}

/// Fewer grants show nothing.
constexpr int enough = 20;

/// Disturbs the members, and restarts the server if it is the test's own, until the time is over.
/// Longer on a machine so busy that there is too little to see.
void disturb(support::lock_database& database, support::own_server* server, troop& workers,
             const board& seen, std::mt19937& random) {
    const auto end = steady_clock::now() + chosen().time;
    const auto limit = end + 60s;
    const auto over = [&] {
        const auto now = steady_clock::now();
        return (now >= end && seen.grants > enough) || now >= limit;
    };
    for (int i = 1; !over(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{100 + random() % 400});
        if (server && i % disturbances_per_restart == 0) {
            random() % 2 == 0 ? server->crash() : server->stop();
            server->start_again();
            database.reconnect();
        }
        try {
            disturb_once(database, workers, random);
        } catch (const rowlock::error& failure) {
            // A busy machine may be late; what the members believe is checked all the same.
            std::cout << "a disturbance failed: " << failure.what() << std::endl;
            database.reconnect();
        }
    }
}

void tell(const board& seen) {
    MESSAGE(seen.grants.load(), " grants, ", seen.upgrades.load(), " upgrades, ", seen.lost.load(),
            " lost, ", seen.overlaps.load(), " overlaps, at most ",
            seen.longest_pause.load() / 1000, " ms without a grant");
}

void hold_amid_disturbances(support::backend which, const char* mode, int processes) {
    std::unique_ptr<support::own_server> server;
    if (chosen().restarts && which != support::backend::sqlite) {
        server = stress::server_of_our_own(which);
        if (!server) return;
    }
    support::lock_database database{which};
    if (!database.there()) return;
    std::mt19937 random{chosen().seed};
    {
        rowlock::client locks{database.source(), database.options()};
        rowlock::semaphore limit{locks, stress::names_on_board.back()};
        limit.set_capacity(stress::semaphore_capacity);
    }
    troop workers{database, mode};
    const mapped_board seen{workers.path()};
    for (int i = 0; i < processes; ++i) workers.add();
    workers.members().begin();
    disturb(database, server.get(), workers, *seen, random);
    workers.members().stop();
    tell(*seen);
    CHECK(seen->overlaps == 0);
    CHECK(seen->failures == 0);
    CHECK(seen->grants > enough);
    // What the killed ones had comes back.
    CHECK(support::eventually([&] {
        (void)rowlock::reap(database.source(), database.reaping(1h, 10min));
        return database.number("select count(*) from rowlock_hold") == 0 &&
               stress::left_in(database).tickets == 0;
    }));
    CHECK(database.number("select coalesce(sum(used), 0) from rowlock_lock") == 0);
}

void hold_everywhere(const char* mode, int processes) {
    for (const auto which : chosen().backends()) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            hold_amid_disturbances(which, mode, processes);
        }
    }
}

}  // namespace

stress::choice& stress::chosen() {
    static choice made;
    return made;
}

TEST_CASE("counted locks: what live processes believe never exceeds the capacity") {
    hold_everywhere("holds", 4);
}

TEST_CASE("several locks at once: no two live processes believe that they hold one of them") {
    hold_everywhere("several", 11);
}

TEST_CASE(
    "elections: one leader believes at a time, terms rise, and no observer misses the latest one") {
    hold_everywhere("elects", 5);
}

TEST_CASE(
    "latches and double barriers: all parties of a generation get the same answer, and none "
    "early") {
    hold_everywhere("meets", 5);
}

TEST_CASE("counted locks: control: processes that believe without asking overlap") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    troop workers{database, "believes"};
    const mapped_board seen{workers.path()};
    for (int i = 0; i < 2; ++i) workers.add();
    workers.members().begin();
    CHECK(support::eventually([&] { return seen->overlaps > 0; }));
    workers.members().stop();
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) chosen().read(argv[i]);
    std::cout << "seed " << chosen().seed << '\n';
    constexpr int skipped = 77;  // ctest's SKIP_RETURN_CODE
    const int status = doctest::Context{argc, argv}.run();
    return status == 0 && support::missed_a_server() ? skipped : status;
}

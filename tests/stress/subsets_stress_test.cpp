// 32 clients that acquire random sets of 12 locks, leases or modes of shared_mutexes, under kills:
// none holds a part of its set while it waits for the rest, and all go on. The control acquires one
// lock after the other, with a ticket for each queue. Part of shared_stress_test.
// shows: promise-14

#include "stress/board.hpp"
#include "stress/crew.hpp"
#include "stress/requests.hpp"
#include "stress/shared_stress.hpp"
#include <rowlock/history.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/reaper.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using stress::chosen;

namespace {

constexpr int processes = 8;
constexpr int clients_each = 4;
/// What a killed client holds blocks the others for that long at most, and with it all that wait
/// for one of them in turn.
constexpr milliseconds ttl{1'000};
/// Of clients that are not killed: no session is to end and free what it held.
constexpr milliseconds long_ttl{60'000};
constexpr auto between_kills = 2 * ttl;
/// Within this time one of the clients is granted its set.
constexpr milliseconds longest_standstill{2'000};

/// What the sets consist of.
struct kind_of_lock {
    const char* together;  ///< modes of the workers
    const char* apart;
    const char* holds;  ///< tables
    const char* entries;
};
constexpr kind_of_lock leases{"together", "apart", "rowlock_lock", "rowlock_ticket"};
constexpr kind_of_lock modes{"modes", "modes_apart", "rowlock_hold", "rowlock_ticket"};

class subset_crew {
public:
    subset_crew(support::lock_database& database, const char* mode, milliseconds their_ttl)
        : all_{database}, mode_{mode}, ttl_{their_ttl} {
        for (int i = 0; i < processes; ++i) add();
        all_.begin();
    }

    void kill_one(std::mt19937& random) {
        std::vector<stress::member*> running;
        for (const auto& each : all_.members()) {
            if (!each->killed()) running.push_back(each.get());
        }
        running.at(random() % running.size())->kill();
        add().begin();
    }
    [[nodiscard]] bool has_room() const {
        return first_ + clients_each <= static_cast<int>(stress::board::threads);
    }
    void stop() { all_.stop(); }
    [[nodiscard]] const stress::board& board() const { return *board_; }
    [[nodiscard]] const std::string& folder() const { return all_.folder(); }

private:
    stress::member& add() {
        stress::role part;
        part.program = ROWLOCK_SHARED_WORKER;
        part.mode = mode_;
        part.threads = clients_each;
        part.ttl_ms = static_cast<int>(ttl_.count());
        part.poll_ms = 100;
        part.seed = chosen().seed;
        part.words = {"board=" + all_.folder() + "/board", "first=" + std::to_string(first_)};
        first_ += clients_each;
        return all_.add(part);
    }

    stress::crew all_;
    const char* mode_;
    const milliseconds ttl_;
    stress::mapped_board board_{all_.folder() + "/board"};
    int first_ = 0;
};

/// Looks for grants in a thread of its own. It counts its turns, each a pause and a small write to
/// the disk and on the server, not the time: a machine, a disk or a server that stops for a while
/// stops it, too, and is not taken for a standstill.
class progress_check {
public:
    progress_check(support::lock_database& database, const stress::board& on,
                   const std::string& folder)
        : database_{database},
          table_{database.prefix() + "turns"},
          file_{open((folder + "/synced").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)} {
        // On SQLite its writes would wait for the clients'.
        if (database_.speaks() != rowlock::sql::dialect::sqlite) {
            database_.run("create table " + table_ + " (number int)");
            database_.run("insert into " + table_ + " values (0)");
            connection_ = database_.source().connect(support::soon());
        }
        thread_ = std::jthread{[this, &on](const std::stop_token& over) {
            while (!over.stop_requested()) {
                std::this_thread::sleep_for(pause);
                write_to_disk();
                if (connection_) write_on_server();
                seen_.turn(on.grants);
                longest_ = seen_.longest();
            }
        }};
    }
    progress_check(const progress_check&) = delete;
    progress_check& operator=(const progress_check&) = delete;
    ~progress_check() {
        thread_.request_stop();
        thread_.join();
        close(file_);
        if (!connection_) return;
        connection_.reset();
        database_.run("drop table " + table_);
    }

    /// The longest time without a grant.
    [[nodiscard]] milliseconds longest() const { return longest_.load() * pause; }

private:
    static constexpr milliseconds pause{20};

    void write_to_disk() const {
        if (pwrite(file_, "x", 1, 0) != 1 || fsync(file_) != 0) std::abort();
    }

    void write_on_server() const {
        connection_->query("update " + table_ + " set number = number + 1", support::soon());
    }

    support::lock_database& database_;
    const std::string table_;
    const int file_;
    std::unique_ptr<rowlock::sql::connection> connection_;
    stress::standstill seen_;
    std::atomic<int> longest_{0};
    std::jthread thread_;
};

/// By one statement, which sees one moment.
stress::holdings held_in(support::lock_database& database, const kind_of_lock& kind) {
    const auto rows =
        database.run("select l.session, l.note, count(distinct l.name), count(w.ticket) from " +
                     std::string{kind.holds} + " l left join " + kind.entries +
                     " w on w.note = l.note and w.session = l.session where l.session is not null "
                     "and l.note is not null group by l.session, l.note");
    stress::holdings now;
    for (std::size_t i = 0; i < rows.rows(); ++i) {
        now[{rows.integer(i, 0), std::string{rows.text(i, 1)}}] = {rows.integer(i, 2),
                                                                   rows.integer(i, 3) > 0};
    }
    return now;
}

stress::granted_parts granted_in(support::lock_database& database) {
    constexpr int page = 50'000;
    stress::granted_parts all;
    for (auto before = std::numeric_limits<std::int64_t>::max();;) {
        const auto records =
            rowlock::read_history(database.source(), {.limit = page, .before = before});
        if (records.empty()) return all;
        for (const auto& each : records) all.see(each);
        before = records.front().id;
    }
}

/// What a run has shown.
struct outcome {
    stress::violations held_parts;     ///< while the clients ran
    stress::violations granted_parts;  ///< by the database's records, of stopped clients too
    milliseconds standstill{0};
    std::size_t requests = 0;
    std::int64_t grants = 0, overlaps = 0, failures = 0, deadlocks = 0;
};

/// Until `over` says that it is, given the longest time without a grant and the number of sets
/// used.
template <typename Over>
outcome acquire_subsets(support::lock_database& database, const kind_of_lock& kind, bool kills,
                        Over over) {
    rowlock::record_history(database.source(), true);
    std::mt19937 random{chosen().seed};
    outcome seen;
    subset_crew clients{database, kills ? kind.together : kind.apart, kills ? ttl : long_ttl};
    stress::held_parts parts;
    int killed = 0;
    {
        const progress_check progress{database, clients.board(), clients.folder()};
        auto next_kill = steady_clock::now() + ttl / 2;
        while (!over(progress.longest(), clients.board().grants.load()) || (kills && killed == 0)) {
            parts.see(held_in(database, kind));
            if (kills && steady_clock::now() >= next_kill && clients.has_room()) {
                clients.kill_one(random);
                ++killed;
                next_kill = steady_clock::now() + between_kills;
            }
            std::this_thread::sleep_for(2ms);
        }
        seen.standstill = progress.longest();
    }
    clients.stop();
    const auto granted = granted_in(database);
    const auto& board = clients.board();
    seen.held_parts = parts.found();
    seen.granted_parts = granted.found();
    seen.requests = granted.requests();
    seen.grants = board.grants;
    seen.overlaps = board.overlaps;
    seen.failures = board.failures;
    seen.deadlocks = board.deadlocks;
    MESSAGE(seen.grants, " sets used, ", seen.requests, " granted, ", killed, " x ", clients_each,
            " clients killed, ", board.lost.load(), " lost; held in part: ", seen.held_parts.size(),
            ", granted in part: ", seen.granted_parts.size(), ", ", seen.deadlocks,
            " deadlocks; at most ", seen.standstill.count(), " ms without a grant, by the clock ",
            board.longest_pause.load() / 1000, " ms");
    return seen;
}

void go_on_under_kills(support::backend which, const kind_of_lock& kind) {
    support::lock_database database{which};
    if (!database.there()) return;
    // Longer on a machine so busy that there is too little to see.
    constexpr std::int64_t enough = 50;
    const auto end = steady_clock::now() + chosen().time;
    const auto limit = end + 60s;
    const auto seen = acquire_subsets(database, kind, true, [&](milliseconds, std::int64_t grants) {
        const auto now = steady_clock::now();
        return (now >= end && grants >= enough) || now >= limit;
    });
    CHECK_MESSAGE(seen.held_parts.empty(), stress::told(seen.held_parts));
    CHECK_MESSAGE(seen.granted_parts.empty(), stress::told(seen.granted_parts));
    CHECK(seen.standstill < longest_standstill);
    CHECK(seen.deadlocks == 0);
    CHECK(seen.overlaps == 0);
    CHECK(seen.failures == 0);
    CHECK(seen.grants >= enough);
    // What the killed ones had comes back.
    CHECK(support::eventually([&] {
        (void)rowlock::reap(database.source(), database.reaping(1h, 10min));
        const auto left = stress::left_in(database);
        return left.tickets == 0 && left.holds == 0;
    }));
}

void stop_for_good(support::backend which, const kind_of_lock& kind) {
    support::lock_database database{which};
    if (!database.there()) return;
    const auto limit = steady_clock::now() + 60s;
    const auto seen =
        acquire_subsets(database, kind, false, [&](milliseconds standstill, std::int64_t) {
            return standstill >= longest_standstill || steady_clock::now() >= limit;
        });
    CHECK(seen.standstill >= longest_standstill);
    // As they stop, each holds a part and waits.
    CHECK_FALSE(seen.held_parts.empty());
    CHECK_FALSE(seen.granted_parts.empty());
    // The locks exclude each other all the same, and detection was off.
    CHECK(seen.overlaps == 0);
    CHECK(seen.deadlocks == 0);
}

}  // namespace

TEST_CASE(
    "subsets: 32 clients with random sets of locks hold no part of them, and go on within two "
    "seconds, under kills") {
    for (const auto which : chosen().backends()) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            go_on_under_kills(which, leases);
        }
    }
}

TEST_CASE(
    "modes of subsets: 32 clients hold no part of them, and go on within two seconds, under "
    "kills") {
    for (const auto which : chosen().backends()) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            go_on_under_kills(which, modes);
        }
    }
}

TEST_CASE("subsets: control: clients with a ticket for each queue hold parts, and stop") {
    for (const auto which : chosen().backends()) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            stop_for_good(which, leases);
        }
    }
}

TEST_CASE("modes of subsets: control: clients with a ticket for each queue hold parts, and stop") {
    for (const auto which : chosen().backends()) {
        DOCTEST_SUBCASE(support::to_string(which)) {
            stop_for_good(which, modes);
        }
    }
}

// A quorum of five servers of its own, of which up to two at a time are killed, cut off, silent, or
// restored from a backup, while processes that are killed and paused take one lock: two never
// believe at once, and tokens rise.
//
//   quorum_stress_test [--seconds=N] [--seed=N]

#define DOCTEST_CONFIG_IMPLEMENT
// shows: promise-20
#include "stress/board.hpp"
#include "stress/history.hpp"
#include "stress/run_length.hpp"
#include "support/own_server.hpp"
#include "support/progress.hpp"
#include "support/server_process.hpp"
#include "support/servers.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/quorum.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;
using support::eventually;

constexpr std::chrono::milliseconds ttl{2000};

stress::run_length& chosen() {
    static stress::run_length length;
    return length;
}

/// A worker process. The destructor kills it.
class worker {
public:
    /// @param log what it says is appended there
    worker(const std::string& board, std::size_t first, unsigned seed, const std::string& urls,
           const std::string& log) {
        const std::vector<std::string> words{ROWLOCK_QUORUM_WORKER, board, std::to_string(first),
                                             std::to_string(seed), std::to_string(ttl.count())};
        std::vector<char*> arguments;
        for (const auto& each : words) arguments.push_back(const_cast<char*>(each.c_str()));
        arguments.push_back(nullptr);
        std::string urls_variable = "ROWLOCK_STRESS_URLS=" + urls;
        std::vector<char*> variables{urls_variable.data()};
        for (char** each = environ; *each != nullptr; ++each) variables.push_back(*each);
        variables.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                         0600);
        REQUIRE(posix_spawn(&id_, words[0].c_str(), &actions, nullptr, arguments.data(),
                            variables.data()) == 0);
        posix_spawn_file_actions_destroy(&actions);
    }
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;
    ~worker() {
        ::kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
    }
    /// It never ends by itself.
    [[nodiscard]] bool is_running() const {
        siginfo_t how{};
        return waitid(P_PID, static_cast<id_t>(id_), &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               how.si_pid == 0;
    }
    void pause() const { ::kill(id_, SIGSTOP); }
    void resume() const { ::kill(id_, SIGCONT); }

private:
    pid_t id_ = 0;
};

/// A member: a server behind a relay, with one fault at a time.
struct member {
    std::unique_ptr<support::own_server> server;
    std::unique_ptr<support::tcp_relay> relay;
    std::string direct, relayed;
    std::optional<steady::time_point> ends{};  ///< of its fault
    enum class fault : unsigned char { none, down, silent, one_way, restored } now = fault::none;
    bool can_restore = false;
};

std::uint16_t port_of(const std::string& url) {
    const auto colon = url.rfind(':');
    return static_cast<std::uint16_t>(std::stoul(url.substr(colon + 1)));
}

class quorum_of_servers {
public:
    explicit quorum_of_servers(stress::board& board) : board_{board} {}

    bool start() {
        using support::server;
        for (const auto which : {server::postgresql, server::mariadb, server::postgresql,
                                 server::mariadb, server::postgresql}) {
            member one;
            one.can_restore = which == server::postgresql;
            one.server = support::own_server::start(
                which,
                one.can_restore
                    ? support::own_server_settings{}
                    : support::own_server_settings{
                          .arguments = {"--server-id=" + std::to_string(members_.size() + 1)}});
            if (!one.server) return false;
            one.direct = one.server->url();
            const auto port = port_of(one.direct);
            one.relay = std::make_unique<support::tcp_relay>(port);
            one.relayed = one.direct;
            const auto at = one.relayed.rfind(std::to_string(port));
            one.relayed.replace(at, std::to_string(port).size(), std::to_string(one.relay->port()));
            rowlock::migrate(rowlock::open(one.direct));
            members_.push_back(std::move(one));
        }
        rowlock::found_quorum(sources(), ttl);
        for (auto& each : members_) {
            if (!each.can_restore) continue;
            each.server->stop();
            each.server->back_up();
            each.server->start_again();
        }
        return true;
    }

    [[nodiscard]] std::vector<rowlock::sql::connection_source> sources() const {
        std::vector<rowlock::sql::connection_source> all;
        for (const auto& each : members_) all.push_back(rowlock::open(each.direct));
        return all;
    }
    [[nodiscard]] std::string urls() const {
        std::string all;
        for (const auto& each : members_) all += each.relayed + "\n";
        return all;
    }
    [[nodiscard]] std::vector<member>& members() { return members_; }
    [[nodiscard]] std::size_t faulty() const {
        return static_cast<std::size_t>(std::ranges::count_if(
            members_, [](const member& each) { return each.now != member::fault::none; }));
    }

    void break_one(std::minstd_rand& random) {
        auto& one = members_[random() % members_.size()];
        if (one.now != member::fault::none) return;
        one.ends = steady::now() + std::chrono::milliseconds{random() % 4000};
        switch (random() % 4) {
            case 0:
                one.now = member::fault::down;
                return one.server->crash();
            case 1:
                one.now = member::fault::silent;
                return one.relay->fall_silent();
            case 2:
                one.now = member::fault::one_way;
                return one.relay->hold(random() % 2 == 0 ? support::tcp_relay::direction::requests
                                                         : support::tcp_relay::direction::answers);
            default:
                if (!one.can_restore) return;
                one.now = member::fault::restored;
                note_change();
                one.server->stop();
                one.server->restore();
                one.server->start_again();
                ++restored;
        }
    }

    void mend(std::size_t position) {
        auto& one = members_[position];
        switch (one.now) {
            case member::fault::none:
                return;
            case member::fault::down:
                one.server->start_again();
                break;
            case member::fault::silent:
            case member::fault::one_way:
                one.relay->resume();
                one.relay->cut();
                break;
            case member::fault::restored:
                try {
                    rowlock::readmit_member(sources(), position);
                    ++readmitted;
                } catch (const rowlock::error& failure) {
                    refused = failure.what();
                    one.ends = steady::now() + 1s;  // others are down: later
                    return;
                }
                // The next restore is from here.
                one.server->stop();
                one.server->back_up();
                one.server->start_again();
                break;
        }
        one.now = member::fault::none;
        note_change();
    }

    int restored = 0, readmitted = 0;
    std::string refused;  ///< why the last readmission was

private:
    /// Of a server by another, which ends locks before their time.
    void note_change() {
        const bool changing = std::ranges::any_of(
            members_, [](const member& each) { return each.now == member::fault::restored; });
        if (changing) {
            board_.members_changed = std::numeric_limits<std::int64_t>::max();
        } else if (board_.members_changed == std::numeric_limits<std::int64_t>::max()) {
            board_.members_changed = stress::boot_time();
        }
    }

    stress::board& board_;
    std::vector<member> members_;
};

TEST_CASE("a quorum of five servers has one holder, whatever two of them do") {
    const support::server_folder folder;
    const auto path = folder.path() + "/board";
    const auto log = folder.path() + "/log";
    const stress::mapped_board seen{path};
    quorum_of_servers quorum{*seen};
    if (!quorum.start()) return;
    std::minstd_rand random{chosen().seed};
    constexpr std::size_t processes = 4;
    std::size_t next_slot = 0;
    std::vector<std::unique_ptr<worker>> workers(processes);
    std::vector<std::optional<steady::time_point>> paused(processes);
    const auto begin_worker = [&](std::size_t i) {
        workers[i].reset();
        workers[i] = std::make_unique<worker>(path, next_slot,
                                              1 + chosen().seed + static_cast<unsigned>(next_slot),
                                              quorum.urls(), log);
        next_slot = (next_slot + 2) % stress::board::threads;
    };
    for (std::size_t i = 0; i < processes; ++i) begin_worker(i);
    constexpr auto patience = 5min;  // on a busy machine all sessions may be lost, several times
    CHECK(eventually([&] { return seen->grants > 20; }, patience));

    const auto end = steady::now() + chosen().time;
    int faults = 0, kills = 0, pauses = 0;
    while (steady::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50 + random() % 200});
        const auto now = steady::now();
        for (std::size_t i = 0; i < quorum.members().size(); ++i) {
            auto& each = quorum.members()[i];
            if (each.ends && *each.ends <= now) {
                each.ends.reset();
                quorum.mend(i);
                if (each.now != member::fault::none && !each.ends) each.ends = now + 1s;
            }
        }
        if (quorum.faulty() < 2 && random() % 4 == 0) {
            quorum.break_one(random);
            ++faults;
        }
        const std::size_t i = random() % processes;
        if (paused[i]) {
            if (*paused[i] <= now) {
                workers[i]->resume();
                paused[i].reset();
            }
        } else if (random() % 12 == 0) {
            workers[i]->pause();
            paused[i] =
                now + std::chrono::milliseconds{random() % static_cast<unsigned>(ttl.count() * 2)};
            ++pauses;
        } else if (random() % 40 == 0) {
            begin_worker(i);
            ++kills;
        }
        if (quorum.faulty() > 2) break;
    }
    // The lock works again once all members do.
    for (std::size_t i = 0; i < processes; ++i) {
        if (paused[i]) workers[i]->resume();
    }
    CHECK(eventually(
        [&] {
            for (std::size_t i = 0; i < quorum.members().size(); ++i) quorum.mend(i);
            return quorum.faulty() == 0;
        },
        patience));
    const auto before = seen->grants.load();
    CHECK(eventually([&] { return seen->grants > before + 20; }, patience));
    for (const auto& each : workers) CHECK(each->is_running());
    workers.clear();
    MESSAGE("seed " << chosen().seed << ": " << seen->grants.load() << " grants, "
                    << seen->lost.load() << " lost, " << faults << " faults of servers, "
                    << quorum.restored << " restored and " << quorum.readmitted << " readmitted, "
                    << kills << " processes killed, " << pauses
                    << " paused; longest time without a grant "
                    << static_cast<double>(seen->longest_pause.load()) / 1e6 << " s; "
                    << seen->overlaps.load() << " overlaps, " << seen->failures.load()
                    << " tokens that did not rise");
    INFO("first overlap: ", std::string{seen->first_overlap.data()});
    INFO("last readmission that failed: ", quorum.refused);
    const auto said = folder.read("log");
    INFO("the processes said at the end: ",
         said.substr(said.size() - std::min(said.size(), 2000UL)));
    CHECK(seen->overlaps == 0);
    CHECK(seen->failures == 0);
    CHECK(quorum.readmitted == quorum.restored);
}

TEST_CASE("control: processes that believe without asking are caught") {
    const support::server_folder folder;
    const auto path = folder.path() + "/board";
    const stress::mapped_board seen{path};
    const auto log = folder.path() + "/log";
    const worker first{path, 0, 0, "", log};
    const worker second{path, 2, 0, "", log};
    CHECK(eventually([&] { return seen->overlaps > 0; }));
}

}  // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) chosen().read(argv[i]);
    std::cout << "seed " << chosen().seed << '\n';
    constexpr int skipped = 77;  // ctest's SKIP_RETURN_CODE
    const int status = doctest::Context{argc, argv}.run();
    return status == 0 && support::missed_a_server() ? skipped : status;
}

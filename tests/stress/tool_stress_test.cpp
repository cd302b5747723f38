// Commands under `rowlock run` with shared_mutexes and a semaphore: many at once, some of whose
// tools are killed. An oracle in memory that they share adds up what runs.
//
//   tool_stress_test [--seconds=N] [--seed=N] [doctest's options]
// shows: promise-12, promise-13

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "stress/board.hpp"
#include "stress/run_length.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include "support/progress.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using rowlock::lock_mode;
using rowlock::protocol::permits_for;
using std::chrono::steady_clock;
using stress::board;

namespace {

stress::run_length& chosen() {
    static stress::run_length made;
    return made;
}

/// A command under a lock of a random kind, again and again. Its slot on the board is its own.
class runner {
public:
    runner(const tool::tables& in, board& on, std::string path, std::size_t slot, bool locks)
        : in_{in},
          board_{on},
          path_{std::move(path)},
          slot_{slot},
          random_{chosen().seed + static_cast<unsigned>(slot)},
          locks_{locks} {}

    void turn() {
        const auto name = random_() % stress::counted_names;
        const std::string lock = stress::names_on_board.at(name);
        std::int64_t permits = 1 + static_cast<std::int64_t>(random_() % 3);
        tool::arguments how{"run", "--wait", "5s", "--ttl", "2s"};
        if (name == stress::counted_names - 1) {
            how.insert(how.end(), {"--limit", std::to_string(stress::semaphore_capacity),
                                   "--weight", std::to_string(permits), lock});
        } else {
            const auto mode = random_() % 4 == 0 ? lock_mode::exclusive : lock_mode::shared;
            permits = permits_for(mode);
            how.insert(how.end(), {mode == lock_mode::shared ? "--shared" : "--exclusive", lock});
        }
        // In a long run some outlast the ttl.
        const bool outlasts = chosen().time > 30s && random_() % 32 == 0;
        const auto milliseconds = outlasts ? 2'500 : random_() % 30;
        how.insert(how.end(), {"--", ROWLOCK_SHARED_WORKER, "mode=command", "board=" + path_,
                               "first=" + std::to_string(slot_ + 8 * (turns_++ % 500)),
                               "name=" + std::to_string(name), "permits=" + std::to_string(permits),
                               "ms=" + std::to_string(milliseconds)});
        if (!locks_) how.erase(how.begin(), std::ranges::find(how, "--") + 1);
        const auto from = steady_clock::now();
        tool::process one{locks_ ? tool::command_line(in_(how)) : how, in_.in_environment()};
        if (random_() % 8 == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds{random_() % 100});
            one.send(SIGKILL);
        }
        const int code = one.wait();
        constexpr int busy = 75;
        constexpr int lost = 70;
        // A machine that stalls for longer than the trust window costs a lock.
        const bool may_lose = steady_clock::now() - from > 1'400ms;
        if (code != 0 && code != busy && code != 1000 + SIGKILL && !(code == lost && may_lose)) {
            std::cerr << "rowlock run: " << code << ": " << one.err() << std::endl;
            ++board_.failures;
        }
    }

private:
    const tool::tables& in_;
    board& board_;
    const std::string path_;
    const std::size_t slot_;
    std::mt19937 random_;
    const bool locks_;
    std::size_t turns_ = 0;  ///< each has a slot of its own: a killed one may live on for a moment
};

void run_commands(const tool::tables& in, board& on, const std::string& path, bool locks = true) {
    const auto end = steady_clock::now() + chosen().time;
    std::vector<std::jthread> all;
    for (std::size_t slot = 0; slot < 8; ++slot) {
        all.emplace_back([&, slot] {
            runner each{in, on, path, slot, locks};
            while (steady_clock::now() < end) each.turn();
        });
    }
}

}  // namespace

TEST_CASE("counted locks: commands under rowlock run never exceed the capacity") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const tool::scratch folder;
        const auto path = folder / "board";
        const stress::mapped_board seen{path};
        run_commands(*in, *seen, path);
        MESSAGE(std::string{in->name()}, ": ", seen->grants.load(), " commands, ",
                seen->overlaps.load(), " overlaps");
        CHECK(seen->overlaps == 0);
        CHECK(seen->failures == 0);
        CHECK(seen->grants > 4);
        // What the killed ones had comes back, within a ttl and the supervisor's time.
        rowlock::client locks{rowlock::open(in->url()).with_tables({.prefix = in->prefix()})};
        rowlock::semaphore limit{locks, stress::names_on_board.back()};
        CHECK(limit.try_acquire_for(stress::semaphore_capacity, 20s));
    }
}

TEST_CASE("counted locks: control: the same commands without rowlock overlap") {
    const auto in = tool::sqlite_tables();
    const tool::scratch folder;
    const auto path = folder / "board";
    const stress::mapped_board seen{path};
    run_commands(*in, *seen, path, false);
    CHECK(seen->overlaps > 0);
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) chosen().read(argv[i]);
    constexpr int skipped = 77;  // ctest's SKIP_RETURN_CODE
    const int status = doctest::Context{argc, argv}.run();
    return status == 0 && support::missed_a_server() ? skipped : status;
}

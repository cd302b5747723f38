// The cases of other folders that wait for time to pass (ROWLOCK_SIMULATED_CASE), in simulated
// time: the same objects, under several schedules. Nothing stalls, and no reply is lost unless a
// case says so.

#define DOCTEST_CONFIG_IMPLEMENT
#include "database.hpp"
#include "mailbox.hpp"
#include "scheduler.hpp"
#include "support/error_text.hpp"
#include "support/lock_database.hpp"
#include "support/progress.hpp"
#include "test_dialect.hpp"

#include <doctest/doctest.h>
#include <sys/single_threaded.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

using namespace rowlock;
using sim::second;
using sim::u64;

int open_databases = 0;

void close_tables(sim::database* which) {
    // Connections close a moment after their clients.
    sim::world->sleep_until(sim::world->now() + second);
    delete which;
    if (--open_databases == 0) sim::present_sqlite();
}

support::simulated_database open_tables(bool is_server) {
    static int servers = 0;
    if (open_databases > 0 && sim::presented().has_server != is_server) {
        throw std::logic_error{"the databases of a simulated case are all servers, or all files"};
    }
    if (is_server) sim::present_server();
    ++open_databases;
    const std::string identity = is_server ? "server " + std::to_string(++servers) : "";
    const std::shared_ptr<sim::database> made{new sim::database{identity}, &close_tables};
    return {made->source(), made};
}

constexpr support::simulated_world simulated{&open_tables};

/// The chosen cases, one after the other.
int run(int argc, char** argv, u64 seed) {
    sim::scheduler world{seed, {}};
    auto& process = world.add_node(0, 1, second);
    sim::start_anew();
    std::optional<int> status;
    world.spawn(
        process,
        [&] {
            doctest::Context context{argc, argv};
            context.setOption("test-suite", support::simulated_cases);
            status = context.run();
        },
        "cases");
    constexpr sim::i64 limit = 10'000'000 * second;
    if (world.run([&] { return status.has_value(); }, limit)) return *status;
    std::fprintf(stderr, "seed %llu: no thread can run, or the cases do not end\n%s",
                 static_cast<unsigned long long>(seed), world.describe().c_str());
    world.print_stacks();
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    __libc_single_threaded = 0;  // as in simulate.cpp
    sim::prepare_databases();
    support::simulation = &simulated;
    constexpr u64 schedules = 5;
    for (u64 seed = 1; seed <= schedules; ++seed) {
        if (const int status = run(argc, argv, seed); status != 0) {
            std::fprintf(stderr, "under schedule %llu\n", static_cast<unsigned long long>(seed));
            return status;
        }
    }
    if (support::cases_begun == 0) {
        std::fprintf(stderr, "this program has no such case\n");
        return 1;
    }
    return 0;
}

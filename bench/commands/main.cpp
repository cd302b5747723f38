// Whole commands (T10): `rowlock run … -- true` compared with `flock FILE true`.
#include "common/measure.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace bench {
namespace {

using command = std::vector<std::string>;

/// The time of a command in milliseconds, from before its start to its end.
double milliseconds_of(const command& words) {
    std::vector<char*> arguments;
    for (const std::string& each : words) arguments.push_back(const_cast<char*>(each.c_str()));
    arguments.push_back(nullptr);
    int status = -1;
    const double us = duration_us([&] {
        pid_t child = 0;
        if (::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) !=
            0) {
            throw std::runtime_error{"cannot run " + words[0]};
        }
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    });
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error{words[0] + " failed"};
    }
    return us / 1000;
}

/// Medians, in milliseconds; the commands take turns.
std::vector<double> medians_of(const std::vector<command>& commands, int rounds) {
    constexpr int warm_up = 3;
    std::vector<std::vector<double>> seen(commands.size());
    for (int round = -warm_up; round < rounds; ++round) {
        for (std::size_t i = 0; i < commands.size(); ++i) {
            const double ms = milliseconds_of(commands[i]);
            if (round >= 0) seen[i].push_back(ms);
        }
    }
    std::vector<double> result;
    for (const auto& each : seen) result.push_back(median(each));
    return result;
}

/// Of a command and of all that it starts.
cpu_cost cost_of(const command& words, int times, const std::string& what, findings& found) {
    const cpu_meter cpu{ended_children_cpu_time};
    for (int i = 0; i < times; ++i) (void)milliseconds_of(words);
    const auto cost = cpu.for_each_of(times);
    found.note(
        fmt::format("{}: processor {:.0f} + {:.0f} µs", what, cost.client_us, cost.server_us));
    return cost;
}

command rowlock_run(const tables& where) {
    return {ROWLOCK_TOOL_PATH, "run",   "--url", where.url(), "--prefix",
            where.prefix(),    "bench", "--",    "true"};
}

void measure(const program_options& common, int rounds, findings& found) {
    if (rounds == 0) rounds = common.quick ? 50 : 300;
    const temporary_folder folder;
    const tables file{"sqlite:" + (folder.path() / "locks.db").string()};
    const command flock{"flock", (folder.path() / "flock").string(), "true"};
    const auto seen = medians_of({rowlock_run(file), flock}, rounds);
    found.add({.id = "T10/sqlite",
               .ours = seen[0],
               .theirs = seen[1],
               .unit = "ms",
               .side = wanted::at_most,
               .target = 3,
               .our_cpu = cost_of(rowlock_run(file), rounds, "rowlock run on SQLite", found),
               .their_cpu = cost_of(flock, rounds, "flock", found)});

    const tables server{need(postgresql_url(), "PostgreSQL")};
    const auto with = medians_of({rowlock_run(server), {"true"}}, rounds);
    found.note(fmt::format("rowlock run on PostgreSQL: {:.2f} ms, true alone: {:.2f} ms", with[0],
                           with[1]));
    found.add({.id = "T10/postgresql",
               .ours = with[0] - with[1],
               .unit = "ms added",
               .side = wanted::at_most,
               .target = 20,
               .our_cpu = cost_of(rowlock_run(server), rounds, "rowlock run on PostgreSQL", found),
               .their_cpu = cost_of({"true"}, rounds, "true alone", found)});
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    int rounds = 0;
    return bench::run_program(
        argc, argv, "Measures whole commands.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, rounds, found);
        },
        [&](CLI::App& app) {
            app.add_option("--rounds", rounds, "Runs of each command")
                ->check(CLI::Range(1, 100'000));
        });
}

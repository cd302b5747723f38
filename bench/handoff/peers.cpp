// A contended lock on PostgreSQL compared with the peers' queues (T8): the time from the release in
// one process to the grant in the next.
#include "common/program.hpp"
#include "handoff/contests.hpp"
#include "handoff/report.hpp"
#include "handoff/rounds.hpp"
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace handoff {
namespace {

constexpr int judged = 16;

struct peers_options {
    std::vector<int> clients{judged};
    double seconds = 0;
    int rounds = 3;
};

std::vector<contest> contests_of(const lease_options& ours, const std::string& tag) {
    std::vector<contest> result{leases(ours)};
    if (const auto socket = bench::redis_socket(); !socket.empty()) {
        result.push_back(bench::redis_fair_queue(socket, tag));
    }
    if (const auto host = bench::zookeeper_host(); !host.empty()) {
        result.push_back(bench::zookeeper_queue(host, tag));
    }
    return result;
}

void add_rows(bench::findings& found, const std::vector<contest>& contests,
              const std::vector<race_result>& seen) {
    for (std::size_t i = 1; i < contests.size(); ++i) {
        const bool redis = contests[i].title.starts_with("Redis");
        found.add({.id = redis ? "T8/redis" : "T8/zookeeper",
                   .ours = seen[0].handoff_p50_us,
                   .theirs = seen[i].handoff_p50_us,
                   .unit = "µs",
                   .side = bench::wanted::at_most,
                   .target = redis ? 1.2 : 0.4,
                   .our_cpu = seen[0].cpu,
                   .their_cpu = seen[i].cpu});
        if (redis) found.add(bench::cpu_compared("T19/hand-off", seen[0].cpu, seen[i].cpu, 1.5));
    }
}

void run(const bench::program_options& common, peers_options options, bench::findings& found) {
    if (options.seconds == 0) options.seconds = common.quick ? 1.5 : 3;
    const std::string tag = fmt::format("rowlock_bench_{}", ::getpid());
    lease_options ours;
    ours.url = bench::need(bench::postgresql_url(), "PostgreSQL");
    ours.prefix = tag + "_";
    const auto contests = contests_of(ours, tag);
    prepared_tables tables{ours};
    print_heading();
    race_options race;
    race.duration = std::chrono::milliseconds{static_cast<long>(options.seconds * 1000)};
    for (const int clients : options.clients) {
        race.clients = clients;
        const auto seen = take_turns("", contests, race, options.rounds);
        if (clients == judged) add_rows(found, contests, seen);
    }
    tables.clear();
}

void add_options(CLI::App& app, peers_options& options) {
    app.add_option("--clients", options.clients, "Processes")
        ->delimiter(',')
        ->check(CLI::Range(2, 500))
        ->capture_default_str();
    app.add_option("--seconds", options.seconds, "Duration of a round")
        ->check(CLI::Range(0.05, 3600.0));
    app.add_option("--rounds", options.rounds, "Number of rounds")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
}

}  // namespace
}  // namespace handoff

int main(int argc, char** argv) {
    handoff::peers_options options;
    return bench::run_program(
        argc, argv, "Measures hand-offs between processes, rowlock's and the peers'.",
        [&](const bench::program_options& common, bench::findings& found) {
            handoff::run(common, options, found);
        },
        [&](CLI::App& app) { handoff::add_options(app, options); });
}

// A contended lock compared with the peers' queues (T8): the time from the release in one process
// to the grant in the next.
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
#include <cstddef>
#include <list>
#include <map>
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

/// rowlock's contests. "by database": without datagrams and over TCP, as between machines.
struct ours {
    const char* name;
    lease_options how;
};

/// PostgreSQL and SQLite, and MariaDB if it is there.
std::vector<ours> all_ours(const bench::temporary_folder& folder, const std::string& tag) {
    const std::string prefix = tag + "_";
    const auto postgresql = bench::need(bench::postgresql_url(), "PostgreSQL");
    std::vector<ours> all{
        {"postgresql", {.url = postgresql, .prefix = prefix}},
        {"by-database",
         {.url = bench::network_url("postgresql"),
          .prefix = prefix + "tcp_",
          .wake_ups = rowlock::wakeup_mode::database}},
        {"sqlite", {.url = "sqlite:" + (folder.path() / "locks.db").string(), .prefix = prefix}}};
    if (const auto mariadb = bench::mariadb_url(); !mariadb.empty()) {
        all.push_back({"mariadb", {.url = mariadb, .prefix = prefix}});
    }
    return all;
}

using results = std::map<std::string, race_result>;

/// The hand-off of `name` beside that of a peer, if both were measured.
void add_row(bench::findings& found, const results& seen, const std::string& id,
             const std::string& name, const std::string& peer, double target) {
    const auto ours = seen.find(name);
    const auto theirs = seen.find(peer);
    if (ours == seen.end() || theirs == seen.end()) return;
    found.add({.id = id,
               .ours = ours->second.handoff_p50_us,
               .theirs = theirs->second.handoff_p50_us,
               .unit = "µs",
               .side = bench::wanted::at_most,
               .target = target,
               .our_cpu = ours->second.cpu,
               .their_cpu = theirs->second.cpu});
}

void add_rows(bench::findings& found, const results& seen) {
    add_row(found, seen, "T8/redis", "postgresql", "redis", 1.2);
    add_row(found, seen, "T8/by-database", "by-database", "redis", 1.5);
    add_row(found, seen, "T8/mariadb", "mariadb", "redis", 2);
    add_row(found, seen, "T8/zookeeper", "postgresql", "zookeeper", 0.4);
    const auto& postgresql = seen.at("postgresql");
    found.add({.id = "T8/p99",
               .ours = postgresql.handoff_p99_us,
               .theirs = postgresql.handoff_p50_us,
               .unit = "µs",
               .side = bench::wanted::at_most,
               .target = 5,
               .our_cpu = postgresql.cpu});
    for (const std::string each : {"postgresql", "mariadb", "sqlite"}) {
        if (!seen.contains(each)) continue;
        found.add({.id = "T8/statements-" + each,
                   .ours = seen.at(each).statements_per_grant,
                   .unit = "statements",
                   .side = bench::wanted::at_most,
                   .target = 4,
                   .our_cpu = seen.at(each).cpu});
    }
    if (const auto redis = seen.find("redis"); redis != seen.end()) {
        found.add(bench::cpu_compared("T19/hand-off", postgresql.cpu, redis->second.cpu, 1.5));
    }
}

void run(const bench::program_options& common, peers_options options, bench::findings& found) {
    if (options.seconds == 0) options.seconds = common.quick ? 1.5 : 3;
    const std::string tag = fmt::format("rowlock_bench_{}", ::getpid());
    const bench::temporary_folder folder;
    std::vector<std::string> names;
    std::vector<contest> contests;
    std::list<prepared_tables> tables;
    for (const auto& [name, how] : all_ours(folder, tag)) {
        tables.emplace_back(how);
        names.emplace_back(name);
        contests.push_back(leases(how));
        contests.back().title = "rowlock, " + names.back();
    }
    if (const auto socket = bench::redis_socket(); !socket.empty()) {
        names.emplace_back("redis");
        contests.push_back(bench::redis_fair_queue(socket, tag));
    }
    if (const auto host = bench::zookeeper_host(); !host.empty()) {
        names.emplace_back("zookeeper");
        contests.push_back(bench::zookeeper_queue(host, tag));
    }
    print_heading();
    race_options race;
    race.duration = std::chrono::milliseconds{static_cast<long>(options.seconds * 1000)};
    for (const int clients : options.clients) {
        race.clients = clients;
        const auto medians = take_turns("", contests, race, options.rounds);
        if (clients != judged) continue;
        results seen;
        for (std::size_t i = 0; i < names.size(); ++i) seen[names[i]] = medians[i];
        add_rows(found, seen);
    }
    for (auto& each : tables) each.clear();
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

// Free locks, taken and released by many clients of one thread each (T18), in this process and in
// one each. Beside the floors, and the peers with a connection each.
#include "clients/process_crew.hpp"
#include "peers/redis.hpp"
#include "peers/shedlock.hpp"
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr const char* by_processes = "-processes";

/// Clients in a process each, in turns with a peer, whose threads share nothing either. Returns
/// their pace, and the peer's.
std::vector<pace> of_processes(findings& found, const std::string& id, const tables& where,
                               int processes, contestant* peer, const round_options& rounds) {
    process_crew crew{where, processes};
    (void)crew.run_round(rounds.warm_up);
    std::vector<pace> ours;
    std::vector<pace> theirs;
    for (int i = 0; i < rounds.rounds; ++i) {
        ours.push_back(crew.run_round(rounds.each));
        if (peer != nullptr) theirs.push_back(run_round(*peer, rounds.each));
    }
    contestant who{.title = "rowlock, processes", .workers = {}};
    who.workers.resize(static_cast<std::size_t>(processes));
    std::vector<pace> seen{median(ours)};
    tell(found, id, who, seen[0]);
    if (peer != nullptr) {
        seen.push_back(median(theirs));
        tell(found, id, *peer, seen[1]);
    }
    return seen;
}

void add_processes(findings& found, const std::string& id, const tables& where, int processes,
                   contestant& peer, const round_options& rounds) {
    const auto seen = of_processes(found, id, where, processes, &peer, rounds);
    found.add(compared(id + by_processes, seen[0], seen[1], "pairs/s", 1.2));
}

void on_postgresql(findings& found, int clients, const round_options& rounds) {
    const std::string url = need(postgresql_url(), "PostgreSQL");
    const tables where{url};
    const auto floor = postgresql_floor(url);
    const std::string id = fmt::format("T18/postgresql-{}", clients);
    std::vector<contestant> all;
    all.push_back(a_client_each(where, clients));
    all.push_back(floor_of(*floor, clients));
    if (!redis_always_socket().empty()) {
        all.push_back(line_up("Redis, fsync always, a hash", clients, [](int i) {
            return redis_hash_lock(redis_always_socket(), name_of(i));
        }));
    }
    const auto seen = measured(found, id, all, rounds);
    if (seen.size() < 3) return;
    found.add(compared(id, seen[0], seen[2], "pairs/s", 1.2));
    if (clients == 16) found.add(cpu_compared("T19/clients-16", seen[0].cpu, seen[2].cpu, 1.5));
    auto peer = std::move(all[2]);
    all.clear();  // closes their connections
    add_processes(found, id, where, clients, peer, rounds);
}

void on_mariadb(findings& found, int clients, const round_options& rounds) {
    const std::string url = need(mariadb_url(), "MariaDB");
    const tables where{url};
    const auto floor = mariadb_floor(url);
    const auto tasks = shedlock_on_mariadb(url);
    const std::string id = fmt::format("T18/mariadb-{}", clients);
    std::vector<contestant> all;
    all.push_back(a_client_each(where, clients));
    all.push_back(floor_of(*floor, clients));
    all.push_back(
        line_up("ShedLock's statements", clients, [&](int i) { return tasks->task(name_of(i)); }));
    const auto seen = measured(found, id, all, rounds);
    found.add(compared(id, seen[0], seen[2], "pairs/s", 1.2));
    auto peer = std::move(all[2]);
    all.clear();  // closes their connections
    add_processes(found, id, where, clients, peer, rounds);
}

/// The 99th percentile of the client that waits the longest: a client that starves has few turns.
finding evenness(std::string id, const pace& seen) {
    return {.id = std::move(id),
            .ours = seen.worst_p99_us,
            .theirs = seen.p50_us,
            .unit = "µs, p99 of the slowest by p50",
            .side = wanted::at_most,
            .target = 10,
            .our_cpu = seen.cpu};
}

/// There is one writer: what counts is that no client waits for much longer than the others.
void on_sqlite(findings& found, int clients, const round_options& rounds) {
    const temporary_folder folder;
    const tables where{"sqlite:" + (folder.path() / "locks.db").string()};
    const auto floor = sqlite_floor(folder.path() / "floor.db", "full");
    const std::string id = fmt::format("T18/sqlite-{}", clients);
    std::vector<contestant> all;
    all.push_back(a_client_each(where, clients));
    all.push_back(floor_of(*floor, clients));
    const auto seen = measured(found, id, all, rounds);
    found.add(evenness(id, seen[0]));
    all.clear();
    found.add(
        evenness(id + by_processes, of_processes(found, id, where, clients, nullptr, rounds)[0]));
}

void measure(const program_options& common, const std::vector<std::string>& databases,
             const std::vector<int>& numbers, const throughput_options& options, findings& found) {
    const auto rounds = rounds_of(common, options);
    for (const std::string& each : databases) {
        for (const int clients : numbers) {
            if (each == "postgresql") on_postgresql(found, clients, rounds);
            if (each == "mariadb") on_mariadb(found, clients, rounds);
            if (each == "sqlite") on_sqlite(found, clients, rounds);
        }
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    std::vector<int> numbers{16, 64};
    if (argc == 5 && std::string_view{argv[1]} == "--member") {
        bench::run_as_member({.url = argv[2], .prefix = argv[3], .lock = argv[4]});
        return 0;
    }
    return bench::run_on_databases(
        argc, argv, "Measures free locks of many clients with one thread each.",
        [&](const bench::program_options& common, const std::vector<std::string>& databases,
            const bench::throughput_options& options,
            bench::findings& found) { bench::measure(common, databases, numbers, options, found); },
        [&](CLI::App& app) {
            app.add_option("--clients", numbers, "Clients")
                ->delimiter(',')
                ->check(CLI::Range(1, 500))
                ->capture_default_str();
        });
}

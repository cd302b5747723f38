// Free locks, taken and released by many clients of one thread each (T18): nothing is shared
// between them, as between as many processes. Beside the floors, and the peers with a connection
// each.
#include "peers/redis.hpp"
#include "peers/shedlock.hpp"
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <string>
#include <vector>

namespace bench {
namespace {

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
    found.add({.id = id,
               .ours = seen[0].p99_us,
               .theirs = seen[0].p50_us,
               .unit = "µs, p99 by p50",
               .side = wanted::at_most,
               .target = 10,
               .our_cpu = seen[0].cpu});
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

// Free locks, acquired and released by one thread: rowlock compared with the floor of each database
// (T1).
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <string>
#include <vector>

namespace bench {
namespace {

/// T1: one thread, rowlock and the floor in turns.
void against_floor(findings& found, const std::string& id, double target, const std::string& url,
                   floor_table& floor, const throughput_options& options,
                   const round_options& rounds) {
    const tables where{url};
    std::vector<contestant> all;
    all.push_back(ours(where, 1, options));
    all.push_back(floor_of(floor, 1));
    const auto seen = measured(found, id, all, rounds);
    found.add(compared(id, seen[0], seen[1], "turns/s", target));
}

void against_sqlite_floor(findings& found, const std::string& id, double target,
                          const std::string& synchronous, const throughput_options& options,
                          const round_options& rounds) {
    const temporary_folder folder;
    const auto floor = sqlite_floor(folder.path() / "floor.db", synchronous);
    against_floor(
        found, id, target,
        fmt::format("sqlite:{}?synchronous={}", (folder.path() / "locks.db").string(), synchronous),
        *floor, options, rounds);
}

void measure(const program_options& common, const std::vector<std::string>& databases,
             const throughput_options& options, findings& found) {
    const auto rounds = rounds_of(common, options);
    for (const std::string& each : databases) {
        if (each == "postgresql") {
            const auto floor = postgresql_floor(need(postgresql_url(), "PostgreSQL"));
            against_floor(found, "T1/postgresql", 0.95, postgresql_url(), *floor, options, rounds);
        } else if (each == "mariadb") {
            const auto floor = mariadb_floor(need(mariadb_url(), "MariaDB"));
            against_floor(found, "T1/mariadb", 0.90, mariadb_url(), *floor, options, rounds);
        } else {
            against_sqlite_floor(found, "T1/sqlite-full", 0.95, "full", options, rounds);
            against_sqlite_floor(found, "T1/sqlite-normal", 0.5, "normal", options, rounds);
        }
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    return bench::run_on_databases(
        argc, argv, "Measures acquires and releases of free locks, compared with the floor.",
        bench::measure);
}

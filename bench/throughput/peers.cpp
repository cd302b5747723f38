// Free locks on PostgreSQL, acquired and released by the threads of one client, compared with the
// peers (T2, T3, T4). Each thread has its own lock.
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bench {
namespace {

using paces = std::map<std::string, pace>;  // by title

/// All contestants on PostgreSQL and the peers with that many threads, and one rowlock client for
/// all.
paces among_peers(findings& found, int threads, const tables& where, floor_table& floor,
                  const throughput_options& options, const round_options& rounds) {
    std::vector<contestant> all;
    all.push_back(ours(where, threads, options));
    all.push_back(floor_of(floor, threads));
    const auto redis = [&](const std::string& title, const std::string& socket) {
        if (socket.empty()) return;
        all.push_back(
            line_up(title, threads, [&](int i) { return redis_lock(socket, name_of(i)); }));
    };
    redis("Redis, fsync always", redis_always_socket());
    redis("Redis, in memory", redis_socket());
    if (!zookeeper_host().empty()) {
        all.push_back(line_up("ZooKeeper", threads,
                              [](int i) { return zookeeper_lock(zookeeper_host(), name_of(i)); }));
    }
    const auto seen = measured(found, "peers", all, rounds);
    paces result;
    for (std::size_t i = 0; i < all.size(); ++i) {
        result[all[i].title] = seen[i];
    }
    return result;
}

void add_peer_rows(findings& found, const std::map<int, paces>& by_threads) {
    struct wish {
        const char* id;
        int threads;
        const char* peer;
        double target;
    };
    constexpr wish wishes[] = {{"T2/1-thread", 1, "Redis, fsync always", 1.0},
                               {"T2/16-threads", 16, "Redis, fsync always", 1.5},
                               {"T3", 16, "Redis, in memory", 0.5},
                               {"T4/1-thread", 1, "ZooKeeper", 4},
                               {"T4/16-threads", 16, "ZooKeeper", 8}};
    for (const wish& each : wishes) {
        const auto seen = by_threads.find(each.threads);
        if (seen == by_threads.end() || !seen->second.contains(each.peer)) continue;
        if (std::string_view{each.id}.starts_with("T2/")) {
            found.add(cpu_compared(fmt::format("T19/pairs-{}", each.threads),
                                   seen->second.at("rowlock").cpu, seen->second.at(each.peer).cpu,
                                   1.5));
        }
        found.add(compared(each.id, seen->second.at("rowlock"), seen->second.at(each.peer),
                           "turns/s", each.target));
    }
}

void measure(const program_options& common, const std::vector<int>& numbers,
             const throughput_options& options, findings& found) {
    const auto rounds = rounds_of(common, options);
    const tables where{need(postgresql_url(), "PostgreSQL")};
    const auto floor = postgresql_floor(postgresql_url());
    std::map<int, paces> by_threads;
    for (const int threads : numbers) {
        by_threads[threads] = among_peers(found, threads, where, *floor, options, rounds);
    }
    add_peer_rows(found, by_threads);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    std::vector<int> numbers{1, 16};
    bench::throughput_options options;
    return bench::run_program(
        argc, argv, "Measures acquires and releases of free locks, compared with the peers.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, numbers, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--threads", numbers, "Threads")
                ->delimiter(',')
                ->check(CLI::Range(1, 256))
                ->capture_default_str();
            bench::add_throughput_options(app, options);
        });
}

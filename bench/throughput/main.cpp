// Acquire and release of free locks: by the floor on each database (T1), and PostgreSQL by the
// peers, in one thread and in many of one client (T2, T3, T4).
#include "common/measure.hpp"
#include "common/ours.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "floors/floors.hpp"
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"
#include <rowlock/open.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

namespace bench {
namespace {

struct throughput_options {
    std::vector<std::string> only{"postgresql", "mariadb", "sqlite", "peers"};
    std::vector<int> threads{};
    int connections = rowlock::client_options{}.max_connections;
    int rounds = 0;
    int milliseconds = 0;
};

std::string name_of(int thread) {
    return fmt::format("bench-{}-{}", ::getpid(), thread);
}

std::shared_ptr<rowlock::client> client_of(const tables& where, const throughput_options& options) {
    auto own = where.options();
    own.max_connections = options.connections;
    return std::make_shared<rowlock::client>(rowlock::open(where.url()), own);
}

contestant ours(const std::shared_ptr<rowlock::client>& locks, int threads) {
    return line_up("rowlock", threads, [&](int i) { return our_lease(locks, name_of(i)); });
}

contestant floor_of(floor_table& table, int threads) {
    return line_up("floor", threads, [&](int i) { return table.lease(name_of(i)); });
}

void tell(findings& found, const std::string& where, const contestant& who, const pace& seen) {
    found.note(fmt::format(
        "{:<16} {:>2} threads  {:<22} {:>8.0f} a second, p50 {:>7.1f} µs, p99 "
        "{:>8.1f} µs",
        where, who.workers.size(), who.title, seen.per_second, seen.p50_us, seen.p99_us));
}

/// T1: one thread, ours and the floor in turns.
void against_floor(findings& found, const std::string& id, double target, const std::string& url,
                   floor_table& floor, const throughput_options& options,
                   const round_options& rounds) {
    const tables where{url};
    std::vector<contestant> both;
    both.push_back(ours(client_of(where, options), 1));
    both.push_back(floor_of(floor, 1));
    const auto seen = take_turns(both, rounds);
    for (std::size_t i = 0; i < both.size(); ++i) tell(found, id, both[i], seen[i]);
    found.add({.id = id,
               .ours = seen[0].per_second,
               .theirs = seen[1].per_second,
               .unit = "turns/s",
               .target = target});
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

using paces = std::map<std::string, pace>;  // by title

/// All on PostgreSQL and the peers with so many threads; a client of ours for all of them.
paces among_peers(findings& found, int threads, const tables& where, floor_table& floor,
                  const throughput_options& options, const round_options& rounds) {
    std::vector<contestant> all;
    all.push_back(ours(client_of(where, options), threads));
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
    const auto seen = take_turns(all, rounds);
    paces result;
    for (std::size_t i = 0; i < all.size(); ++i) {
        tell(found, "peers", all[i], seen[i]);
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
        found.add({.id = each.id,
                   .ours = seen->second.at("rowlock").per_second,
                   .theirs = seen->second.at(each.peer).per_second,
                   .unit = "turns/s",
                   .target = each.target});
    }
}

void add_lines(findings& found, const std::map<int, paces>& by_threads) {
    std::map<std::string, std::vector<std::pair<double, double>>> lines;
    for (const auto& [threads, all] : by_threads) {
        for (const auto& [title, seen] : all) lines[title].emplace_back(threads, seen.per_second);
    }
    for (auto& [title, points] : lines) found.add_line("throughput", title, std::move(points));
}

void against_peers(findings& found, const throughput_options& options,
                   const round_options& rounds) {
    const tables where{need(postgresql_url(), "PostgreSQL")};
    const auto floor = postgresql_floor(postgresql_url());
    std::map<int, paces> by_threads;
    for (const int threads : options.threads) {
        by_threads[threads] = among_peers(found, threads, where, *floor, options, rounds);
    }
    add_peer_rows(found, by_threads);
    add_lines(found, by_threads);
}

void measure(const program_options& common, throughput_options options, findings& found) {
    if (options.threads.empty()) {
        options.threads = common.quick ? std::vector{1, 16} : std::vector{1, 2, 4, 8, 16};
    }
    round_options rounds{.rounds = common.quick ? 5 : 11};
    rounds.each = std::chrono::milliseconds{common.quick ? 200 : 500};
    rounds.warm_up = std::chrono::milliseconds{common.quick ? 1000 : 3000};
    if (options.rounds != 0) rounds.rounds = options.rounds;
    if (options.milliseconds != 0) rounds.each = std::chrono::milliseconds{options.milliseconds};
    for (const std::string& each : options.only) {
        if (each == "postgresql") {
            const auto floor = postgresql_floor(need(postgresql_url(), "PostgreSQL"));
            against_floor(found, "T1/postgresql", 0.92, postgresql_url(), *floor, options, rounds);
        } else if (each == "mariadb") {
            const auto floor = mariadb_floor(need(mariadb_url(), "MariaDB"));
            against_floor(found, "T1/mariadb", 0.90, mariadb_url(), *floor, options, rounds);
        } else if (each == "sqlite") {
            against_sqlite_floor(found, "T1/sqlite-full", 0.85, "full", options, rounds);
            against_sqlite_floor(found, "T1/sqlite-normal", 0.5, "normal", options, rounds);
        } else {
            against_peers(found, options, rounds);
        }
    }
}

void add_options(CLI::App& app, throughput_options& options) {
    app.add_option("--only", options.only, "postgresql, mariadb, sqlite, peers; all if not given")
        ->delimiter(',')
        ->transform(CLI::IsMember({"postgresql", "mariadb", "sqlite", "peers"}));
    app.add_option("--threads", options.threads, "For `peers`; 1,2,4,8,16 if not given")
        ->delimiter(',')
        ->check(CLI::Range(1, 256));
    app.add_option("--connections", options.connections, "client_options::max_connections")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds, "How many")->check(CLI::Range(1, 1000));
    app.add_option("--milliseconds", options.milliseconds, "How long a round lasts")
        ->check(CLI::Range(1, 60'000));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::throughput_options options;
    return bench::run_program(
        argc, argv, "Measures how fast free locks are taken and given back.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) { bench::add_options(app, options); });
}

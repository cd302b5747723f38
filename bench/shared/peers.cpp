// Readers of one shared_mutex and takers of one semaphore on PostgreSQL, compared with the peers:
// the read/write lock and the expiring permits that people build on Redis, and ZooKeeper's recipe.
#include "common/postgresql.hpp"
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"
#include "shared/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;

constexpr int threads = 16;
constexpr int permits = 1'000'000;

void measure(const program_options& common, const throughput_options& options, findings& found) {
    const tables where{need(postgresql_url(), "PostgreSQL")};
    std::vector<contestant> all;
    all.push_back(readers(where, threads, options, 0ms));
    all.push_back(readers(where, threads, options, 20ms));
    all.push_back(takers(where, threads, options));
    const auto redis = [&](const std::string& title, const std::string& socket) {
        if (socket.empty()) return;
        all.push_back(line_up("readers, " + title, threads,
                              [&](int i) { return redis_read_lock(socket, "page", i); }));
        all.push_back(line_up("semaphore, " + title, threads,
                              [&](int) { return redis_semaphore(socket, "limit", permits); }));
    };
    redis("Redis, fsync always", redis_always_socket());
    redis("Redis, in memory", redis_socket());
    if (!zookeeper_host().empty()) {
        all.push_back(line_up("readers, ZooKeeper", threads,
                              [](int) { return zookeeper_read_lock(zookeeper_host(), "page"); }));
    }
    const auto seen = measured(found, "T11/peers", all, rounds_of(common, options));
    std::map<std::string, pace> paces;
    for (std::size_t i = 0; i < all.size(); ++i) {
        paces[all[i].title] = seen[i];
    }
    const auto compare = [&](const std::string& ours, const std::string& theirs) {
        if (!paces.contains(theirs)) return;
        found.note(fmt::format("T11/peers: {} by {}: {:.2f}", ours, theirs,
                               paces.at(ours).per_second / paces.at(theirs).per_second));
    };
    for (const char* peer : {"Redis, fsync always", "Redis, in memory", "ZooKeeper"}) {
        compare("readers", fmt::format("readers, {}", peer));
        compare("readers, sharing", fmt::format("readers, {}", peer));
        compare("semaphore", fmt::format("semaphore, {}", peer));
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::throughput_options options;
    return bench::run_program(
        argc, argv, "Measures readers and takers of permits, compared with the peers.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) { bench::add_throughput_options(app, options); });
}

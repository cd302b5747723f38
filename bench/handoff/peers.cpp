// A contended lock on PostgreSQL compared with the peers' queues (T8): the time from the release in
// one process to the grant in the next.
#include "common/program.hpp"
#include "handoff/contests.hpp"
#include "handoff/report.hpp"
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <map>
#include <stdexcept>
#include <utility>

namespace handoff {
namespace {

struct peers_options {
    std::vector<int> clients{};
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

/// Contests take turns; the values are medians of the rounds.
std::vector<race_result> measure(const std::vector<contest>& contests, int clients,
                                 const peers_options& options) {
    race_options race{.clients = clients};
    race.duration = std::chrono::milliseconds{static_cast<long>(options.seconds * 1000)};
    std::vector<std::vector<race_result>> rounds(contests.size());
    for (int round = 0; round < options.rounds; ++round) {
        for (std::size_t i = 0; i < contests.size(); ++i) {
            rounds[i].push_back(run_race(contests[i], race));
        }
    }
    std::vector<race_result> medians;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        medians.push_back(median_of(rounds[i]));
        print_row("", clients, contests[i].title, medians.back());
        if (medians.back().overlaps != 0) {
            throw std::runtime_error{contests[i].title + ": two processes held the lock at once"};
        }
    }
    return medians;
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
                   .target = redis ? 1.2 : 0.4});
    }
}

/// rowlock's tables, for the lifetime of this object. Separate processes use the database.
class prepared_tables {
public:
    explicit prepared_tables(const lease_options& options) : options_{options} {
        in_child([this] { prepare_leases(options_); });
    }
    /// @throws std::runtime_error if a lease or queue entry remains
    void clear() {
        cleared_ = true;
        in_child([this] { clear_leases(options_); });
    }
    ~prepared_tables() {
        if (cleared_) return;
        try {
            clear();
        } catch (const std::exception& failure) {
            fmt::print(stderr, "handoff_peers: {}\n", failure.what());
        }
    }
    prepared_tables(const prepared_tables&) = delete;
    prepared_tables& operator=(const prepared_tables&) = delete;

private:
    lease_options options_;
    bool cleared_ = false;
};

void run(const bench::program_options& common, peers_options options, bench::findings& found) {
    constexpr int judged = 16;
    if (options.clients.empty()) {
        options.clients = common.quick ? std::vector{judged} : std::vector{2, 4, judged, 64};
    }
    if (options.seconds == 0) options.seconds = common.quick ? 1.5 : 3;
    const std::string tag = fmt::format("rowlock_bench_{}", ::getpid());
    lease_options ours;
    ours.url = bench::need(bench::postgresql_url(), "PostgreSQL");
    ours.prefix = tag + "_";
    const auto contests = contests_of(ours, tag);
    std::map<std::string, std::vector<std::pair<double, double>>> lines;
    prepared_tables tables{ours};
    print_heading();
    for (const int clients : options.clients) {
        const auto seen = measure(contests, clients, options);
        for (std::size_t i = 0; i < contests.size(); ++i) {
            lines[contests[i].title].emplace_back(clients, seen[i].handoff_p50_us);
        }
        if (clients == judged) add_rows(found, contests, seen);
    }
    tables.clear();
    for (auto& [title, points] : lines) found.add_line("waiters", title, std::move(points));
}

void add_options(CLI::App& app, peers_options& options) {
    app.add_option("--clients", options.clients, "Processes; 2,4,16,64 if not given")
        ->delimiter(',')
        ->check(CLI::Range(2, 500));
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

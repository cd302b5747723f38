// How locks on PostgreSQL scale with the threads of one client and with clients, beside the peers:
// pairs of free locks, the processor time that a pair takes, and hand-offs of a contended lock. For
// the plots.
#include "common/ours.hpp"
#include "handoff/report.hpp"
#include "handoff/rounds.hpp"
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;

struct scaling_options {
    std::vector<int> numbers{1, 2, 4, 8, 16, 64};
};

/// One plot: the points of each line.
class lines {
public:
    explicit lines(std::string plot) : plot_{std::move(plot)} {}
    void add(const std::string& title, int number, double value) {
        if (std::isnan(value)) return;
        if (!points_.contains(title)) order_.push_back(title);
        points_[title].emplace_back(number, value);
    }
    void hand_to(findings& found) const {
        for (const auto& title : order_) found.add_line(plot_, title, points_.at(title));
    }

private:
    std::string plot_;
    std::vector<std::string> order_;
    std::map<std::string, std::vector<std::pair<double, double>>> points_;
};

constexpr const char* one_client = "rowlock, one client";
constexpr const char* a_client_for_each = "rowlock, a client each";
constexpr const char* redis_with_fsync = "Redis, fsync always";
constexpr const char* redis_in_memory = "Redis, in memory";
constexpr const char* with_zookeeper = "ZooKeeper";

// --- free locks ----------------------------------------------------------------------------------

/// Each with so many threads, which have a lock each. The peers have a connection for each thread.
std::vector<contestant> contestants_of(const tables& where, int threads) {
    std::vector<contestant> result;
    result.push_back(ours(where, threads, {}));
    result.back().title = one_client;
    result.push_back(a_client_each(where, threads, "-own"));
    result.back().title = a_client_for_each;
    const auto redis = [&](const char* title, const std::string& socket) {
        if (socket.empty()) return;
        result.push_back(
            line_up(title, threads, [&](int i) { return redis_lock(socket, name_of(i)); }));
    };
    redis(redis_with_fsync, redis_always_socket());
    redis(redis_in_memory, redis_socket());
    if (!zookeeper_host().empty()) {
        result.push_back(line_up(with_zookeeper, threads, [](int i) {
            return zookeeper_lock(zookeeper_host(), name_of(i));
        }));
    }
    return result;
}

void measure_free_locks(const std::vector<int>& numbers, const round_options& rounds,
                        findings& found) {
    const tables where{postgresql_url()};
    lines throughput{"throughput"};
    lines client{"client-cpu"};
    lines server{"server-cpu"};
    for (const int threads : numbers) {
        auto all = contestants_of(where, threads);
        const auto seen = measured(found, "free locks", all, rounds);
        for (std::size_t i = 0; i < all.size(); ++i) {
            throughput.add(all[i].title, threads, seen[i].per_second);
            client.add(all[i].title, threads, seen[i].cpu.client_us);
            server.add(all[i].title, threads, seen[i].cpu.server_us);
        }
    }
    throughput.hand_to(found);
    client.hand_to(found);
    server.hand_to(found);
}

// --- a contended lock ----------------------------------------------------------------------------

std::vector<handoff::contest> contests_of(const handoff::lease_options& ours,
                                          const std::string& tag) {
    std::vector<handoff::contest> result;
    const auto add = [&](const char* title, handoff::contest what) {
        what.title = title;
        result.push_back(std::move(what));
    };
    add(one_client, handoff::leases_of_one_client(ours));
    add(a_client_for_each, handoff::leases(ours));
    if (!redis_always_socket().empty()) {
        add(redis_with_fsync, redis_fair_queue(redis_always_socket(), tag));
    }
    if (!redis_socket().empty()) add(redis_in_memory, redis_fair_queue(redis_socket(), tag));
    if (!zookeeper_host().empty()) add(with_zookeeper, zookeeper_queue(zookeeper_host(), tag));
    return result;
}

/// Before the free locks: it forks, so this process must have neither threads nor connections.
void measure_hand_offs(const std::vector<int>& numbers, bool quick, findings& found) {
    const std::string tag = fmt::format("rowlock_bench_{}", ::getpid());
    handoff::lease_options ours;
    ours.url = postgresql_url();
    ours.prefix = tag + "_";
    const auto contests = contests_of(ours, tag);
    lines waiters{"waiters"};
    handoff::prepared_tables prepared{ours};
    handoff::print_heading();
    handoff::race_options race;
    race.duration = quick ? 500ms : 1500ms;
    for (const int clients : numbers) {
        if (clients < 2) continue;  // there is no other to hand the lock to
        race.clients = clients;
        const auto seen = handoff::take_turns("", contests, race, quick ? 1 : 3);
        for (std::size_t i = 0; i < contests.size(); ++i) {
            waiters.add(contests[i].title, clients, seen[i].handoff_p50_us);
        }
    }
    prepared.clear();
    waiters.hand_to(found);
}

void measure(const program_options& common, const scaling_options& options, findings& found) {
    need(postgresql_url(), "PostgreSQL");
    round_options rounds{.rounds = common.quick ? 3 : 7};
    rounds.each = common.quick ? 200ms : 500ms;
    rounds.warm_up = common.quick ? 500ms : 1500ms;
    measure_hand_offs(options.numbers, common.quick, found);
    measure_free_locks(options.numbers, rounds, found);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::scaling_options options;
    return bench::run_program(
        argc, argv,
        "Measures free locks, their processor time, and hand-offs by the number of threads and of "
        "clients.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--numbers", options.numbers, "Threads, and clients")
                ->delimiter(',')
                ->check(CLI::Range(1, 64))
                ->capture_default_str();
        });
}

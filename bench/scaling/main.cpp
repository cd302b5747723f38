// How locks on PostgreSQL scale with the threads of one client and with clients, beside the peers:
// pairs of free locks, the processor time that a pair takes, and hand-offs of a contended lock. For
// the plots.
#include "common/ours.hpp"
#include "handoff/report.hpp"
#include "handoff/rounds.hpp"
#include "peers/redis.hpp"
#include "peers/zookeeper.hpp"
#include "scaling/cpu_time.hpp"
#include "throughput/contestants.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <optional>
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
constexpr const char* a_client_each = "rowlock, a client each";
constexpr const char* redis_with_fsync = "Redis, fsync always";
constexpr const char* redis_in_memory = "Redis, in memory";
constexpr const char* with_zookeeper = "ZooKeeper";

// --- free locks ----------------------------------------------------------------------------------

struct subject {
    contestant who;
    std::optional<pid_t> server;  ///< empty: its processor time is not measured
};

/// Each with so many threads, which have a lock each. The peers have a connection for each thread.
std::vector<subject> subjects_of(const tables& where, int threads) {
    std::vector<subject> result;
    const auto database = server_process("postgresql");
    auto shared = ours(where, threads, {});
    shared.title = one_client;
    result.push_back({std::move(shared), database});
    result.push_back({line_up(a_client_each, threads,
                              [&](int i) {
                                  return our_lease(
                                      std::make_shared<rowlock::client>(where.source()),
                                      name_of(i) + "-own");
                              }),
                      database});
    const auto redis = [&](const char* title, const std::string& socket, const char* server) {
        if (socket.empty()) return;
        result.push_back(
            {line_up(title, threads, [&](int i) { return redis_lock(socket, name_of(i)); }),
             server_process(server)});
    };
    redis(redis_with_fsync, redis_always_socket(), "redis-always");
    redis(redis_in_memory, redis_socket(), "redis");
    if (!zookeeper_host().empty()) {
        result.push_back(
            {line_up(with_zookeeper, threads,
                     [](int i) { return zookeeper_lock(zookeeper_host(), name_of(i)); }),
             server_process("zookeeper")});
    }
    return result;
}

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

/// Of one round; microseconds of processor time for a pair.
struct cost {
    double pairs_per_second = 0;
    double client_us = not_measured;
    double server_us = not_measured;
};

cost run_with_cost(subject& what, std::chrono::milliseconds duration) {
    const auto server = [&] { return what.server ? cpu_time_of(*what.server) : 0ns; };
    const auto server_before = server();
    const auto client_before = own_cpu_time();
    const auto before = std::chrono::steady_clock::now();
    cost result{.pairs_per_second = run_round(what.who, duration).per_second};
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    const double pairs = result.pairs_per_second * took.count();
    const auto of_pair = [pairs](std::chrono::duration<double, std::micro> time) {
        return time.count() / pairs;
    };
    result.client_us = of_pair(own_cpu_time() - client_before);
    if (what.server) result.server_us = of_pair(server() - server_before);
    return result;
}

/// The medians of the rounds, in which the subjects alternate.
std::vector<cost> take_turns(std::vector<subject>& subjects, const round_options& options) {
    std::vector<std::vector<cost>> rounds(subjects.size());
    for (subject& each : subjects) (void)run_round(each.who, options.warm_up);
    for (int round = 0; round < options.rounds; ++round) {
        for (std::size_t i = 0; i < subjects.size(); ++i) {
            rounds[i].push_back(run_with_cost(subjects[i], options.each));
        }
    }
    const auto median_of = [](const std::vector<cost>& all, double cost::*value) {
        std::vector<double> values;
        for (const cost& each : all) values.push_back(each.*value);
        return std::isnan(values.front()) ? not_measured : median(std::move(values));
    };
    std::vector<cost> medians;
    for (const auto& each : rounds) {
        medians.push_back({median_of(each, &cost::pairs_per_second),
                           median_of(each, &cost::client_us), median_of(each, &cost::server_us)});
    }
    return medians;
}

void measure_free_locks(const std::vector<int>& numbers, const round_options& rounds,
                        findings& found) {
    const tables where{postgresql_url()};
    lines throughput{"throughput"};
    lines client{"client-cpu"};
    lines server{"server-cpu"};
    for (const int threads : numbers) {
        auto subjects = subjects_of(where, threads);
        const auto seen = take_turns(subjects, rounds);
        for (std::size_t i = 0; i < subjects.size(); ++i) {
            const std::string& title = subjects[i].who.title;
            found.note(fmt::format(
                "{:>2} threads  {:<22} {:>8.0f} pairs/s, processor time of a pair: {:>6.1f} µs of "
                "the client, {:>6} of the server",
                threads, title, seen[i].pairs_per_second, seen[i].client_us,
                seen[i].server_us > 0 ? fmt::format("{:.1f} µs", seen[i].server_us) : "unknown"));
            throughput.add(title, threads, seen[i].pairs_per_second);
            client.add(title, threads, seen[i].client_us);
            server.add(title, threads, seen[i].server_us);
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
    add(a_client_each, handoff::leases(ours));
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

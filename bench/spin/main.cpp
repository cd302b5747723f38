// Spinning (T15): waiters that queue beside waiters that spin (queueing::barging), on one lock, by
// the number of processes and the time for which each holds it; and both with callers that give up.
#include "common/program.hpp"
#include "handoff/contests.hpp"
#include "handoff/race.hpp"
#include "handoff/report.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using handoff::contest;
using handoff::race_result;

struct spin_options {
    int rounds = 0;        ///< 0: as the common options say
    int milliseconds = 0;  ///< likewise
    bool give_up = false;  ///< measure that alone
};

struct variant {
    const char* title;
    rowlock::queueing queueing;
    rowlock::spin_pauses pauses;
};

const std::vector<variant>& variants() {
    static const std::vector<variant> all{
        {"queue", rowlock::queueing::fair, {}},
        {"spin 20 ms to 1 s", rowlock::queueing::barging, {}},
        {"spin 1 to 32 ms", rowlock::queueing::barging, {.first = 1ms, .longest = 32ms}}};
    return all;
}

/// Both sides with calls that give up after `limit`, if that is not 0.
void measure_one(const std::string& database, const std::string& url, int clients,
                 std::chrono::microseconds hold, std::chrono::milliseconds limit, int rounds,
                 std::chrono::milliseconds each, findings& found) {
    handoff::lease_options base{
        .url = url, .prefix = fmt::format("rowlock_bench_{}_", ::getpid()), .limit = limit};
    handoff::in_child([&] { handoff::prepare_leases(base); });
    std::vector<contest> all;
    for (const auto& one : variants()) {
        auto options = base;
        options.queueing = one.queueing;
        options.spin = one.pauses;
        all.push_back(handoff::leases(options));
    }
    std::vector<std::vector<race_result>> seen(all.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            seen[i].push_back(
                handoff::run_race(all[i], {.clients = clients, .duration = each, .hold = hold}));
        }
    }
    handoff::in_child([&] { handoff::clear_leases(base); });
    std::vector<race_result> medians;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto one = handoff::median_of(seen[i]);
        if (one.overlaps != 0) {
            throw std::runtime_error{"two processes held the lock at once"};
        }
        found.note(fmt::format(
            "T15 {}, {} processes, {} ms held{}, {}: {:.0f} grants/s, {:.1f} statements a grant, "
            "fewest by most {:.2f}, longest wait {} ms",
            database, clients, std::chrono::duration<double, std::milli>{hold}.count(),
            limit > 0ms ? fmt::format(", limit {} ms", limit.count()) : "", variants()[i].title,
            one.grants_per_second, one.statements_per_grant, one.fairness(),
            std::chrono::duration_cast<std::chrono::milliseconds>(one.longest_wait).count()));
        medians.push_back(one);
    }
    if (limit == 0ms && (clients != 8 || hold != 1ms)) return;
    const race_result& queue = medians[0];
    const race_result& spin = std::max(medians[1], medians[2], [](const auto& a, const auto& b) {
        return a.grants_per_second < b.grants_per_second;
    });
    found.add({.id = (limit > 0ms ? "T15/give-up-" : "T15/") + database,
               .ours = queue.grants_per_second,
               .theirs = spin.grants_per_second,
               .unit = "grants/s",
               .target = limit > 0ms ? 0.5 : 0.9,
               .our_cpu = queue.cpu,
               .their_cpu = spin.cpu});
}

void measure(const program_options& common, const spin_options& options, findings& found) {
    const int rounds = options.rounds != 0 ? options.rounds : (common.quick ? 3 : 7);
    const std::chrono::milliseconds each{options.milliseconds != 0 ? options.milliseconds
                                                                   : (common.quick ? 500 : 1500)};
    const temporary_folder folder;
    const std::vector<std::pair<std::string, std::string>> databases{
        {"postgresql", need(postgresql_url(), "PostgreSQL")},
        {"mariadb", need(mariadb_url(), "MariaDB")},
        {"sqlite", "sqlite:" + (folder.path() / "locks.db").string()}};
    for (const auto& [name, url] : databases) {
        for (const int clients : options.give_up ? std::vector<int>{} : std::vector{2, 8}) {
            for (const auto hold : {0us, 1000us, 20'000us}) {
                measure_one(name, url, clients, hold, 0ms, rounds, each, found);
            }
        }
        measure_one(name, url, 9, 500us, 30ms, rounds, each, found);
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    bench::spin_options options;
    return bench::run_program(
        argc, argv, "Measures waiters that spin, beside waiters that queue.",
        [&](const bench::program_options& common, bench::findings& found) {
            bench::measure(common, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--rounds", options.rounds, "Rounds of each contest");
            app.add_option("--milliseconds", options.milliseconds, "Length of a round");
            app.add_flag("--give-up", options.give_up, "Only calls that give up");
        });
}

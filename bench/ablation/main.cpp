// The benefit of each fast path: the client compared with the client without that path, in turns.
#include "base/ablation.hpp"
#include "common/measure.hpp"
#include "common/ours.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "handoff/contests.hpp"
#include "handoff/report.hpp"
#include "support/tcp_relay.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <utility>

namespace ablation {
namespace {

using rowlock::base::fast_path;
using namespace std::chrono_literals;

/// The least benefit of a path on its own row. A path with less is removed.
constexpr double worth_keeping = 1.15;

struct options {
    double seconds = 0;  ///< of a round of hand-overs
    int rounds = 0;
    std::vector<std::string> only{};
};

bool is_wanted(const options& how, const std::string& id) {
    if (how.only.empty()) return true;
    for (const auto& each : how.only) {
        if (id.starts_with(each)) return true;
    }
    return false;
}

void switch_off(unsigned paths) {
    rowlock::base::switched_off.store(paths, std::memory_order_relaxed);
}

std::string url_of(const std::string& database, const bench::temporary_folder& folder) {
    if (database == "postgresql") return bench::need(bench::postgresql_url(), "PostgreSQL");
    if (database == "mariadb") return bench::need(bench::mariadb_url(), "MariaDB");
    return "sqlite:" + (folder.path() / "locks.db").string();
}

/// The port in a URL, `scheme://user:password@host:port/database`.
struct server_port {
    explicit server_port(std::string of) : url{std::move(of)} {
        begin = url.find(':', url.rfind('@')) + 1;
        end = url.find('/', begin);
        number = static_cast<std::uint16_t>(std::stoi(url.substr(begin, end - begin)));
    }
    [[nodiscard]] std::string replaced_by(std::uint16_t other) const {
        return url.substr(0, begin) + std::to_string(other) + url.substr(end);
    }
    std::string url;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint16_t number = 0;
};

// --- hand-overs between processes

/// The contest without these paths in each process.
handoff::contest without(unsigned paths, handoff::contest what) {
    return {what.title, [paths, join = what.join](const handoff::entrant& who) {
                switch_off(paths);
                return join(who);
            }};
}

/// Adds the medians of `with` and `without`, and a row: the ratio of a hand-over without to with.
void race(bench::findings& found, const std::string& id, int clients, const options& how,
          const std::array<handoff::contest, 2>& sides) {
    handoff::race_options race{.clients = clients};
    race.duration = std::chrono::milliseconds{static_cast<long>(how.seconds * 1000)};
    std::array<std::vector<handoff::race_result>, 2> rounds;
    for (int round = 0; round < how.rounds; ++round) {
        for (std::size_t i = 0; i < sides.size(); ++i) {
            rounds[i].push_back(handoff::run_race(sides[i], race));
        }
    }
    std::array<handoff::race_result, 2> medians;
    for (std::size_t i = 0; i < sides.size(); ++i) {
        medians[i] = handoff::median_of(rounds[i]);
        handoff::print_row(id, clients, i == 0 ? "as it is" : "without", medians[i]);
        if (medians[i].overlaps != 0) {
            throw std::runtime_error{id + ": two processes held the lock at once"};
        }
    }
    found.add({.id = fmt::format("{}/{}", id, clients),
               .ours = medians[1].handoff_p50_us,
               .theirs = medians[0].handoff_p50_us,
               .unit = "µs without it",
               .target = worth_keeping});
}

struct hand_over_row {
    std::string id;
    std::string database;
    unsigned without = 0;
    rowlock::wakeup_mode wake_ups = rowlock::wakeup_mode::automatic;
    rowlock::wakeup_mode other_wake_ups = rowlock::wakeup_mode::automatic;  ///< of the side without
    std::vector<int> clients;
    std::chrono::milliseconds round_trip{0};
};

void measure(bench::findings& found, const hand_over_row& row, const options& how) {
    if (!is_wanted(how, row.id)) return;
    const bench::temporary_folder folder;
    std::string url = url_of(row.database, folder);
    std::optional<support::tcp_relay> relay;
    if (row.round_trip > 0ms) {
        const server_port server{bench::network_url(row.database)};
        relay.emplace(server.number);
        relay->become({.round_trip = row.round_trip});
        url = server.replaced_by(relay->port());
    }
    const handoff::lease_options as_it_is{.url = url,
                                          .prefix = fmt::format("rowlock_bench_{}_", ::getpid()),
                                          .wake_ups = row.wake_ups};
    auto other = as_it_is;
    if (row.other_wake_ups != rowlock::wakeup_mode::automatic) other.wake_ups = row.other_wake_ups;
    handoff::in_child([&] { handoff::prepare_leases(as_it_is); });
    for (const int clients : row.clients) {
        race(found, row.id, clients, how,
             {without(0, handoff::leases(as_it_is)), without(row.without, handoff::leases(other))});
    }
    handoff::in_child([&] { handoff::clear_leases(as_it_is); });
}

void measure_hand_overs(bench::findings& found, const options& how) {
    const auto off = rowlock::base::bit_of;
    using enum rowlock::wakeup_mode;
    const std::vector<hand_over_row> rows{
        {.id = "reserved-token/postgresql",
         .database = "postgresql",
         .without = off(fast_path::reserved_token),
         .clients = {3, 4, 16}},
        {.id = "prefetched-next/postgresql",
         .database = "postgresql",
         .without = off(fast_path::prefetched_next),
         .clients = {2, 4, 16}},
        {.id = "prefetched-next/mariadb",
         .database = "mariadb",
         .without = off(fast_path::prefetched_next),
         .clients = {2, 4, 16}},
        {.id = "single-text/mariadb",
         .database = "mariadb",
         .without = off(fast_path::single_text),
         .clients = {2, 4, 16}},
        {.id = "late-poll/postgresql",
         .database = "postgresql",
         .without = off(fast_path::late_poll),
         .clients = {4, 16}},
        {.id = "late-poll/mariadb",
         .database = "mariadb",
         .without = off(fast_path::late_poll),
         .clients = {4, 16}},
        {.id = "late-poll/sqlite",
         .database = "sqlite",
         .without = off(fast_path::late_poll),
         .clients = {4, 16}},
        {.id = "datagrams/postgresql",
         .database = "postgresql",
         .other_wake_ups = database,
         .clients = {2, 4, 8, 16, 32}},
        {.id = "datagrams/mariadb",
         .database = "mariadb",
         .other_wake_ups = database,
         .clients = {2, 4, 16}},
        {.id = "datagrams/sqlite",
         .database = "sqlite",
         .other_wake_ups = database,
         .clients = {2, 4, 16}},
        // The relay's thread lives in this process from here on.
        {.id = "single-text/mariadb-1-ms-away",
         .database = "mariadb",
         .without = off(fast_path::single_text),
         .wake_ups = database,
         .other_wake_ups = database,
         .clients = {2, 16},
         .round_trip = 1ms},
        {.id = "single-text/mariadb-20-ms-away",
         .database = "mariadb",
         .without = off(fast_path::single_text),
         .wake_ups = database,
         .other_wake_ups = database,
         .clients = {2},
         .round_trip = 20ms},
        {.id = "prefetched-next/postgresql-20-ms-away",
         .database = "postgresql",
         .without = off(fast_path::prefetched_next),
         .wake_ups = database,
         .other_wake_ups = database,
         .clients = {2, 4},
         .round_trip = 20ms},
    };
    for (const auto& row : rows) measure(found, row, how);
}

// --- calls of one process

/// Switches these paths off before each turn. All workers of a round use the same setting.
class switched final : public bench::worker {
public:
    switched(unsigned paths, std::unique_ptr<bench::worker> inner)
        : paths_{paths}, inner_{std::move(inner)} {}
    void turn() override {
        switch_off(paths_);
        inner_->turn();
    }

private:
    unsigned paths_;
    std::unique_ptr<bench::worker> inner_;
};

enum class call : unsigned char { pair, failed_try };

class failed_try final : public bench::worker {
public:
    failed_try(std::shared_ptr<rowlock::client> locks, std::string name)
        : locks_{std::move(locks)}, name_{std::move(name)} {}
    void turn() override {
        if (locks_->try_acquire(name_)) throw std::runtime_error{"granted what is held"};
    }

private:
    std::shared_ptr<rowlock::client> locks_;
    rowlock::lock_name name_;
};

struct call_row {
    std::string id;
    std::string database;
    call what = call::pair;
    unsigned without = 0;
    std::vector<int> threads{1};
    bool client_each = false;      ///< both sides have a client for each thread
    bool connection_each = false;  ///< the side without has a connection for each thread
    bool slowest = false;          ///< compares the 99th percentiles of the slowest clients
};

rowlock::client_options options_of(const call_row& row, int threads, bool as_it_is) {
    rowlock::client_options own;
    if (!as_it_is && row.connection_each) own.max_connections = threads;
    return own;
}

bench::contestant line_up(const bench::tables& where, const call_row& row, int threads,
                          bool as_it_is) {
    const auto new_client = [&] {
        return std::make_shared<rowlock::client>(where.source(),
                                                 options_of(row, threads, as_it_is));
    };
    const auto shared = row.client_each ? nullptr : new_client();
    const unsigned paths = as_it_is ? 0 : row.without;
    return bench::line_up(as_it_is ? "as it is" : "without", threads, [&](int i) {
        const auto locks = shared ? shared : new_client();
        const auto name = fmt::format("bench-{}-{}", as_it_is ? "with" : "without", i);
        auto inner = [&]() -> std::unique_ptr<bench::worker> {
            if (row.what == call::pair) return bench::our_lease(locks, name);
            return std::make_unique<failed_try>(locks, "held");
        }();
        return std::make_unique<switched>(paths, std::move(inner));
    });
}

void measure(bench::findings& found, const call_row& row, const bench::round_options& rounds,
             const options& how) {
    if (!is_wanted(how, row.id)) return;
    const bench::temporary_folder folder;
    const bench::tables where{url_of(row.database, folder)};
    rowlock::client holder{where.source()};
    auto held = holder.acquire("held");
    for (const int threads : row.threads) {
        std::vector<bench::contestant> both;
        both.push_back(line_up(where, row, threads, true));
        both.push_back(line_up(where, row, threads, false));
        const auto seen = bench::take_turns(both, rounds);
        const std::string id = fmt::format("{}/{}", row.id, threads);
        if (row.slowest) {
            found.add({.id = id,
                       .ours = seen[1].worst_p99_us,
                       .theirs = seen[0].worst_p99_us,
                       .unit = "µs, p99 of the slowest client without it",
                       .target = worth_keeping});
            continue;
        }
        found.add(bench::compared(id, seen[0], seen[1],
                                  row.what == call::failed_try ? "tries/s" : "pairs/s",
                                  worth_keeping));
    }
    held.release();
}

void measure_calls(bench::findings& found, const bench::round_options& rounds, const options& how) {
    const auto off = rowlock::base::bit_of;
    std::vector<call_row> rows;
    for (const std::string database : {"postgresql", "mariadb", "sqlite"}) {
        rows.push_back({.id = "reacquire/" + database,
                        .database = database,
                        .without = off(fast_path::reacquire),
                        .threads = {1, 16}});
        rows.push_back({.id = "batches/" + database,
                        .database = database,
                        .without = off(fast_path::batches),
                        .threads = {2, 4, 16, 64}});
        rows.push_back({.id = "batches-by-connections/" + database,
                        .database = database,
                        .without = off(fast_path::batches),
                        .threads = {16, 64},
                        .connection_each = true});
        rows.push_back({.id = "probe-held/" + database,
                        .database = database,
                        .what = call::failed_try,
                        .without = off(fast_path::probe_held),
                        .threads = {1, 16}});
    }
    for (const std::string database : {"postgresql", "mariadb"}) {
        rows.push_back({.id = "lone-calls/" + database,
                        .database = database,
                        .without = off(fast_path::lone_calls),
                        .threads = {2, 4}});
        rows.push_back({.id = "deferred-check/" + database,
                        .database = database,
                        .without = off(fast_path::deferred_check),
                        .threads = {16, 64},
                        .client_each = true});
    }
    rows.push_back({.id = "write-turns/sqlite",
                    .database = "sqlite",
                    .without = off(fast_path::write_turns),
                    .threads = {16, 64},
                    .client_each = true,
                    .slowest = true});
    for (const auto& row : rows) measure(found, row, rounds, how);
}

}  // namespace
}  // namespace ablation

int main(int argc, char** argv) {
    ablation::options how;
    return bench::run_program(
        argc, argv,
        "Measures the benefit of each fast path: the client without it compared with the whole "
        "client.",
        [&](const bench::program_options& common, bench::findings& found) {
            auto chosen = how;
            if (chosen.rounds == 0) chosen.rounds = common.quick ? 5 : 11;
            if (chosen.seconds == 0) chosen.seconds = common.quick ? 0.7 : 2;
            bench::round_options rounds{.rounds = chosen.rounds};
            using namespace std::chrono_literals;
            rounds.each = common.quick ? 200ms : 500ms;
            rounds.warm_up = 1s;
            // Processes first, since they are copies of this one, which has no other thread yet.
            ablation::measure_hand_overs(found, chosen);
            ablation::measure_calls(found, rounds, chosen);
        },
        [&](CLI::App& app) {
            app.add_option("--only", how.only, "Only rows whose names start with this")
                ->delimiter(',');
            app.add_option("--rounds", how.rounds, "Number of rounds")->check(CLI::Range(1, 1000));
            app.add_option("--seconds", how.seconds, "Duration of a round of hand-overs")
                ->check(CLI::Range(0.05, 60.0));
        });
}

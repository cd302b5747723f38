#include "throughput/contestants.hpp"

#include "common/ours.hpp"
#include "common/postgresql.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace bench {

void add_throughput_options(CLI::App& app, throughput_options& options) {
    app.add_option("--connections", options.connections, "client_options::max_connections")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds, "Number of rounds")->check(CLI::Range(1, 1000));
    app.add_option("--milliseconds", options.milliseconds, "Duration of a round")
        ->check(CLI::Range(1, 60'000));
}

round_options rounds_of(const program_options& common, const throughput_options& options) {
    round_options rounds{.rounds = common.quick ? 5 : 11};
    rounds.each = std::chrono::milliseconds{common.quick ? 200 : 500};
    rounds.warm_up = std::chrono::milliseconds{common.quick ? 1000 : 3000};
    if (options.rounds != 0) rounds.rounds = options.rounds;
    if (options.milliseconds != 0) {
        rounds.each = std::chrono::milliseconds{options.milliseconds};
        rounds.warm_up = std::min(rounds.warm_up, 5 * rounds.each);
    }
    return rounds;
}

std::string url_of(const std::string& database, const temporary_folder& folder) {
    if (database == "postgresql") return need(postgresql_url(), "PostgreSQL");
    if (database == "mariadb") return need(mariadb_url(), "MariaDB");
    return "sqlite:" + (folder.path() / "locks.db").string();
}

std::string name_of(int worker) {
    return fmt::format("bench-{}-{}", ::getpid(), worker);
}

contestant ours(const tables& where, int threads, const throughput_options& options) {
    rowlock::client_options own;
    own.max_connections = options.connections;
    const auto locks = std::make_shared<rowlock::client>(where.source(), own);
    return line_up("rowlock", threads, [&](int i) { return our_lease(locks, name_of(i)); });
}

contestant floor_of(floor_table& table, int threads) {
    return line_up("floor", threads, [&](int i) { return table.lease(name_of(i)); });
}

contestant a_client_each(const tables& where, int clients, const std::string& mark) {
    return line_up("rowlock", clients, [&](int i) {
        return our_lease(std::make_shared<rowlock::client>(where.source()), name_of(i) + mark);
    });
}

std::vector<pace> measured(findings& found, const std::string& where, std::vector<contestant>& all,
                           const round_options& rounds) {
    auto seen = take_turns(all, rounds);
    for (std::size_t i = 0; i < all.size(); ++i) tell(found, where, all[i], seen[i]);
    return seen;
}

void tell(findings& found, const std::string& where, const contestant& who, const pace& seen) {
    found.note(
        fmt::format("{:<16} {:>2} threads  {:<22} {:>8.0f} a second, p50 {:>7.1f} µs, p99 "
                    "{:>8.1f} µs, processor {:>6.1f} + {:>6.1f} µs",
                    where, who.workers.size(), who.title, seen.per_second, seen.p50_us, seen.p99_us,
                    seen.cpu.client_us, seen.cpu.server_us));
}

int run_on_databases(int argc, char** argv, const std::string& about, const measure_on& measure,
                     const std::function<void(CLI::App&)>& more) {
    std::vector<std::string> databases{"postgresql", "mariadb", "sqlite"};
    throughput_options options;
    return run_program(
        argc, argv, about,
        [&](const program_options& common, findings& found) {
            measure(common, databases, options, found);
        },
        [&](CLI::App& app) {
            app.add_option("--database", databases, "postgresql, mariadb, sqlite; all if not given")
                ->delimiter(',')
                ->transform(CLI::IsMember({"postgresql", "mariadb", "sqlite"}));
            add_throughput_options(app, options);
            if (more) more(app);
        });
}

}  // namespace bench

// The time of hand-offs between processes, and their fairness.
#include "common/program.hpp"
#include "handoff/contests.hpp"
#include "handoff/report.hpp"
#include "handoff/rounds.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace handoff {
namespace {

constexpr const char* footer =
    "\nThe servers are those of scripts/with-servers: ROWLOCK_TEST_POSTGRESQL_SOCKET_URL or\n"
    "ROWLOCK_TEST_POSTGRESQL_URL, ROWLOCK_TEST_MARIADB_SOCKET_URL or ROWLOCK_TEST_MARIADB_URL.\n"
    "A database without a URL is left out. SQLite uses a file in the temporary folder (TMPDIR).\n"
    "Tables get a unique prefix and are removed at the end.\n\n"
    "A hand-off lasts from the call of release in one process to the return of acquire in "
    "another.\n"
    "Statements are counted at the connections of the clients: all that they send, heartbeats\n"
    "included. Fairness is the fewest grants of a client divided by the most. Values are medians "
    "of\n"
    "the rounds, in which rowlock and the floors alternate; the longest wait is that of all "
    "rounds.\n";

struct bench_options {
    std::vector<std::string> databases{"postgresql", "mariadb", "sqlite"};
    std::vector<int> clients{2, 4, 16, 64};
    double seconds = 3;
    double hold_ms = 1;
    int rounds = 3;
    bool no_floors = false;
    rowlock::queueing queueing = rowlock::queueing::fair;
    rowlock::wakeup_mode wake_ups = rowlock::wakeup_mode::automatic;
    std::string json;
};

/// The contests on one database: rowlock's first, then the floors. The first floor is the one for
/// the comparison.
struct line_up {
    std::string database;
    lease_options ours;
    std::vector<contest> contests;
};

std::string url_of(const std::string& database, const bench::temporary_folder& folder) {
    if (database == "sqlite") return "sqlite:" + (folder.path() / "locks.db").string();
    return database == "postgresql" ? bench::postgresql_url() : bench::mariadb_url();
}

std::optional<line_up> line_up_of(const std::string& database,
                                  const bench::temporary_folder& folder,
                                  const bench_options& options) {
    const std::string url = url_of(database, folder);
    if (url.empty()) {
        fmt::print(stderr, "handoff: {} is left out: it has no URL; see --help\n", database);
        return {};
    }
    const std::string tag = fmt::format("rowlock_bench_{}", ::getpid());
    line_up result{database,
                   {.url = url,
                    .prefix = tag + "_",
                    .queueing = options.queueing,
                    .wake_ups = options.wake_ups},
                   {}};
    result.contests.push_back(leases(result.ours));
    if (options.no_floors) return result;
    if (database == "postgresql") {
        result.contests.push_back(postgresql_advisory_lock(url, tag));
        result.contests.push_back(postgresql_notify_ring(url, tag));
    } else if (database == "mariadb") {
        result.contests.push_back(mysql_get_lock(url, tag));
    }
    return result;
}

void measure_database(const line_up& what, const bench_options& options,
                      nlohmann::ordered_json& report) {
    race_options race;
    race.duration = std::chrono::milliseconds{static_cast<long>(options.seconds * 1000)};
    race.hold = std::chrono::microseconds{static_cast<long>(options.hold_ms * 1000)};
    prepared_tables tables{what.ours};
    for (const int clients : options.clients) {
        race.clients = clients;
        const auto results = take_turns(what.database, what.contests, race, options.rounds);
        std::optional<race_result> floor;
        if (results.size() > 1) floor = results[1];
        report.push_back(as_json(what.database, clients, results[0], floor));
    }
    tables.clear();
}

void run(const bench_options& options) {
    const bench::temporary_folder folder;
    auto report = nlohmann::ordered_json::array();
    print_heading();
    for (const std::string& database : options.databases) {
        if (const auto what = line_up_of(database, folder, options)) {
            measure_database(*what, options, report);
        }
    }
    if (report.empty()) throw std::runtime_error{"nothing was measured"};
    if (!options.json.empty()) bench::write_file(options.json, report);
}

void add_options(CLI::App& app, bench_options& options) {
    using rowlock::queueing;
    using rowlock::wakeup_mode;
    app.add_option("--database", options.databases, "postgresql, mariadb, sqlite; all if not given")
        ->delimiter(',')
        ->transform(CLI::IsMember({"postgresql", "mariadb", "sqlite"}));
    app.add_option("--clients", options.clients, "Processes")
        ->delimiter(',')
        ->check(CLI::Range(2, 500))
        ->capture_default_str();
    app.add_option("--seconds", options.seconds, "Duration of a round")
        ->check(CLI::Range(0.05, 3600.0))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds, "Number of rounds")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_option("--hold", options.hold_ms, "Time that a lock is held, in milliseconds")
        ->check(CLI::Range(0.0, 1000.0))
        ->capture_default_str();
    app.add_option("--queueing", options.queueing, "fair or barging")
        ->transform(CLI::CheckedTransformer(std::map<std::string, queueing>{
            {"fair", queueing::fair}, {"barging", queueing::barging}}))
        ->default_str("fair");
    app.add_option("--wake-ups", options.wake_ups,
                   "automatic, by-database (as between machines) or polling")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, wakeup_mode>{{"automatic", wakeup_mode::automatic},
                                               {"by-database", wakeup_mode::database},
                                               {"polling", wakeup_mode::polling}}))
        ->default_str("automatic");
    app.add_flag("--no-floors", options.no_floors, "Only rowlock");
    app.add_option("--json", options.json, "Also write the results to FILE")->type_name("FILE");
}

}  // namespace
}  // namespace handoff

int main(int argc, char** argv) {
    CLI::App app{"Measures hand-offs of a contended lock between processes."};
    handoff::bench_options options;
    handoff::add_options(app, options);
    app.footer(handoff::footer);
    CLI11_PARSE(app, argc, argv);
    try {
        handoff::run(options);
        return 0;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "handoff: {}\n", failure.what());
        return 1;
    }
}

#include "support/waits.hpp"
#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>

namespace {

using json = nlohmann::ordered_json;

constexpr const char* variables[] = {"ROWLOCK_TEST_POSTGRESQL_SOCKET_URL",
                                     "ROWLOCK_TEST_POSTGRESQL_URL",
                                     "ROWLOCK_TEST_MARIADB_SOCKET_URL",
                                     "ROWLOCK_TEST_MARIADB_URL",
                                     "ROWLOCK_BENCH_REDIS_SOCKET",
                                     "ROWLOCK_BENCH_REDIS_ALWAYS_SOCKET",
                                     "ROWLOCK_BENCH_ZOOKEEPER",
                                     "ROWLOCK_SERVER_PROCESSES"};

tool::setting setting_in(const tool::scratch& folder) {
    tool::setting with{.variables = {{"TMPDIR", folder.path()}}};
    for (const char* const name : variables) {
        if (const char* const value = std::getenv(name)) with.variables[name] = value;
    }
    return with;
}

/// Runs a program of the build's bench/ and reads its results. Repeated if it fails: a stall of the
/// machine may leave nothing to measure.
json found_by(const std::string& program, const tool::arguments& options) {
    for (int left = 2;; --left) {
        const tool::scratch folder;
        const std::string file = folder / "found.json";
        tool::arguments command{ROWLOCK_BENCH_FOLDER + ("/" + program), "--json", file};
        command.insert(command.end(), options.begin(), options.end());
        tool::process running{command, setting_in(folder)};
        const int code = running.wait(std::chrono::seconds{120});
        if (code != 0 && left > 0) continue;
        CAPTURE(running.out());
        CAPTURE(running.err());
        REQUIRE(code == 0);
        return json::parse(tool::contents(file));
    }
}

/// The ids of the rows, each of which must be complete and consistent.
std::set<std::string> ids_of(const json& rows) {
    std::set<std::string> ids;
    for (const json& row : rows) {
        CAPTURE(row.dump());
        std::string keys;
        for (const auto& [key, value] : row.items()) keys += key + " ";
        CHECK(keys == "id ours theirs unit ratio target met cpu_ours cpu_theirs ");
        CHECK(row["target"].is_number());
        CHECK(row["met"].is_boolean());
        CHECK(ids.insert(row["id"]).second);
        if (row["ratio"].is_null()) continue;
        const double ratio = row["ours"].get<double>() / row["theirs"].get<double>();
        CHECK(std::abs(row["ratio"].get<double>() - ratio) <= 0.01 * ratio);
    }
    return ids;
}

using ids = std::set<std::string>;

const ids every_row{"T1/postgresql",
                    "T1/mariadb",
                    "T1/sqlite-full",
                    "T1/sqlite-normal",
                    "T2/1-thread",
                    "T2/16-threads",
                    "T3",
                    "T4/1-thread",
                    "T4/16-threads",
                    "T5/1-thread",
                    "T5/16-threads",
                    "T5/wal",
                    "T6/time",
                    "T6/statements",
                    "T7/acquire-p50",
                    "T7/acquire-p99-reaping",
                    "T8/redis",
                    "T7/reaped-per-second",
                    "T8/zookeeper",
                    "T8/p99",
                    "T8/by-database",
                    "T8/mariadb",
                    "T8/statements-postgresql",
                    "T8/statements-mariadb",
                    "T8/statements-sqlite",
                    "T9/re-entry",
                    "T9/held",
                    "T10/sqlite",
                    "T10/postgresql",
                    "T11/readers-postgresql-16",
                    "T11/readers-postgresql-64",
                    "T11/readers-mariadb-16",
                    "T11/readers-sqlite-16",
                    "T11/sharing-postgresql-16",
                    "T11/sharing-postgresql-64",
                    "T11/sharing-mariadb-16",
                    "T11/sharing-sqlite-16",
                    "T11/semaphore-postgresql-16",
                    "T11/semaphore-postgresql-64",
                    "T11/semaphore-mariadb-16",
                    "T11/semaphore-sqlite-16",
                    "T11/clients-postgresql-16",
                    "T11/clients-mariadb-16",
                    "T11/clients-sqlite-16",
                    "T11/exclusive-postgresql-16",
                    "T11/exclusive-mariadb-16",
                    "T11/exclusive-sqlite-16",
                    "T11/writer-postgresql",
                    "T11/writer-mariadb",
                    "T11/writer-sqlite",
                    "T12/postgresql-1",
                    "T12/clients-postgresql-16",
                    "T12/mariadb-1",
                    "T12/clients-mariadb-16",
                    "T12/sqlite-1",
                    "T12/clients-sqlite-16",
                    "T12/modes-postgresql-1",
                    "T12/modes-clients-postgresql-16",
                    "T12/modes-mariadb-1",
                    "T12/modes-clients-mariadb-16",
                    "T12/modes-sqlite-1",
                    "T12/modes-clients-sqlite-16",
                    "T13/postgresql",
                    "T13/mariadb",
                    "T13/sqlite",
                    "T14",
                    "T15/postgresql",
                    "T15/mariadb",
                    "T15/sqlite",
                    "T15/give-up-postgresql",
                    "T15/give-up-mariadb",
                    "T15/give-up-sqlite",
                    "T16",
                    "T17/inventory-postgresql",
                    "T17/inventory-mariadb",
                    "T17/inventory-sqlite",
                    "T18/postgresql-16",
                    "T18/postgresql-64",
                    "T18/mariadb-16",
                    "T18/mariadb-64",
                    "T18/sqlite-16",
                    "T18/sqlite-64",
                    "T18/postgresql-16-processes",
                    "T18/postgresql-64-processes",
                    "T18/mariadb-16-processes",
                    "T18/mariadb-64-processes",
                    "T18/sqlite-16-processes",
                    "T18/sqlite-64-processes",
                    "T19/pairs-1",
                    "T19/pairs-16",
                    "T19/clients-16",
                    "T19/hand-off",
                    "T20/heartbeat",
                    "T20/waiters",
                    "T20/names"};

std::size_t occurrences(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

bool has_postgresql() {
    return support::url_of(support::server::postgresql).has_value();
}

bool has_mariadb() {
    return support::url_of(support::server::mariadb).has_value();
}

}  // namespace

TEST_CASE("free locks are measured by the floor of each database") {
    const tool::arguments briefly{"--rounds", "1", "--milliseconds", "50"};
    const auto of = [&](const std::string& database) {
        tool::arguments options{"--database", database};
        options.insert(options.end(), briefly.begin(), briefly.end());
        return ids_of(found_by("throughput", options)["rows"]);
    };
    CHECK(of("sqlite") == ids{"T1/sqlite-full", "T1/sqlite-normal"});
    if (has_postgresql()) CHECK(of("postgresql") == ids{"T1/postgresql"});
    if (has_mariadb()) CHECK(of("mariadb") == ids{"T1/mariadb"});
}

TEST_CASE("failed tries and the log that they write are measured") {
    if (!has_postgresql()) return;
    const auto found =
        found_by("failed_try", {"--rounds", "1", "--milliseconds", "50", "--tries", "1000"});
    CHECK(ids_of(found["rows"]) == ids{"T5/1-thread", "T5/16-threads", "T5/wal"});
}

TEST_CASE("shared locks are measured by leases that do not meet") {
    const auto found = found_by(
        "shared", {"--quick", "--database", "sqlite", "--rounds", "1", "--milliseconds", "50"});
    CHECK(ids_of(found["rows"]) == ids{"T11/readers-sqlite-16", "T11/sharing-sqlite-16",
                                       "T11/semaphore-sqlite-16", "T11/clients-sqlite-16",
                                       "T11/exclusive-sqlite-16", "T11/writer-sqlite"});
}

TEST_CASE("heartbeats are one statement for any number of leases") {
    if (!has_postgresql()) return;
    json found;
    const double most = 1.5;
    const double statements = support::at_best(most, [&] {
        found = found_by("heartbeat", {"--leases", "1,50", "--seconds", "0.5"});
        return found["rows"][1]["ours"].get<double>();
    });
    CHECK(ids_of(found["rows"]) == ids{"T6/time", "T6/statements"});
    // One, and with every third a read of the held leases.
    CHECK(found["rows"][1]["ours"] >= 1);
    CHECK(statements < most);
    CHECK(found["lines"][0]["points"].size() == 2);
}

TEST_CASE("acquiring among many rows and reaping them is measured") {
    if (!has_postgresql()) return;
    const auto found = found_by("rows", {"--rows", "10000", "--rounds", "1", "--slices", "2",
                                         "--leases", "20", "--seconds", "0.5"});
    CHECK(ids_of(found["rows"]) ==
          ids{"T7/acquire-p50", "T7/acquire-p99-reaping", "T7/reaped-per-second"});
    CHECK(found["rows"][2]["ours"].get<double>() > 0);
}

TEST_CASE("operations without a database are measured") {
    CHECK(ids_of(found_by("in_process", {"--quick"})["rows"]) == ids{"T9/re-entry", "T9/held"});
}

TEST_CASE("whole commands are measured") {
    if (!has_postgresql()) return;
    CHECK(ids_of(found_by("commands", {"--rounds", "1"})["rows"]) ==
          ids{"T10/sqlite", "T10/postgresql"});
}

TEST_CASE("a sale of the inventory example is measured under a lease and under a locked row") {
    const auto found = found_by(
        "inventory", {"--database", "sqlite", "--workers", "2", "--items", "10", "--rounds", "1"});
    CHECK(ids_of(found["rows"]) == ids{"T17/inventory-sqlite"});
}

TEST_CASE("the files of many acquires and releases are measured") {
    if (!has_postgresql()) return;
    const auto found = found_by("size", {"--pairs", "80", "--names", "16", "--turns", "0"});
    CHECK(found["notes"].size() == 8);  // four in between, for one name and for many
}

TEST_CASE("the cost by the size of the tables is measured") {
    if (!has_postgresql()) return;
    const auto found = found_by(
        "scale", {"--sessions", "1000", "--names", "10000", "--waiters", "1000", "--count", "20"});
    CHECK(ids_of(found["rows"]) == ids{"T20/heartbeat", "T20/waiters", "T20/names"});
    CHECK(found["lines"].size() == 3);
}

#ifdef ROWLOCK_BENCH_PEERS
TEST_CASE("clients of one thread each are measured beside the available peers") {
    const auto of = [&](const std::string& database) {
        return ids_of(found_by("clients", {"--database", database, "--clients", "2", "--rounds",
                                           "1", "--milliseconds", "50"})["rows"]);
    };
    CHECK(of("sqlite") == ids{"T18/sqlite-2", "T18/sqlite-2-processes"});
    if (has_mariadb()) {
        CHECK(of("mariadb") == ids{"T18/mariadb-2", "T18/mariadb-2-processes"});
    }
    if (!has_postgresql()) return;
    const bool redis = std::getenv("ROWLOCK_BENCH_REDIS_ALWAYS_SOCKET") != nullptr;
    CHECK(of("postgresql") ==
          (redis ? ids{"T18/postgresql-2", "T18/postgresql-2-processes"} : ids{}));
}

TEST_CASE("free locks and hand-offs are measured beside the available peers") {
    if (!has_postgresql()) return;
    const bool redis = std::getenv("ROWLOCK_BENCH_REDIS_SOCKET") != nullptr;
    const bool zookeeper = std::getenv("ROWLOCK_BENCH_ZOOKEEPER") != nullptr;
    if (std::getenv("ROWLOCK_REQUIRE_PEERS") != nullptr) {
        // The test with the label peers. scripts/test -L peers starts the servers.
        if (!redis) support::miss_program("redis-server", "redis-server");
        if (!zookeeper) support::miss_program("zookeeper", "zookeeper");
    } else {
        if (!redis) MESSAGE("no Redis: the rows T2 and T3, and three of T8, are not measured");
        if (!zookeeper) MESSAGE("no ZooKeeper: the rows T4 and T8/zookeeper are not measured");
    }
    const auto locks = found_by("throughput_peers",
                                {"--threads", "1,16", "--rounds", "1", "--milliseconds", "50"});
    ids wanted;
    if (redis) {
        wanted.insert({"T2/1-thread", "T2/16-threads", "T3", "T19/pairs-1", "T19/pairs-16"});
    }
    if (zookeeper) wanted.insert({"T4/1-thread", "T4/16-threads"});
    CHECK(ids_of(locks["rows"]) == wanted);

    const auto queues =
        found_by("handoff_peers", {"--clients", "16", "--rounds", "1", "--seconds", "0.5"});
    wanted = {"T8/p99", "T8/statements-postgresql", "T8/statements-sqlite"};
    if (has_mariadb()) wanted.insert("T8/statements-mariadb");
    if (redis) wanted.insert({"T8/redis", "T8/by-database", "T19/hand-off"});
    if (redis && has_mariadb()) wanted.insert("T8/mariadb");
    if (zookeeper) wanted.insert("T8/zookeeper");
    CHECK(ids_of(queues["rows"]) == wanted);
}

TEST_CASE("threads of one client and clients are measured beside the available peers") {
    if (!has_postgresql()) return;
    const auto found = found_by("scaling", {"--quick", "--numbers", "1,2"});
    std::map<std::string, std::map<std::string, std::size_t>> points;  // by plot and line
    for (const json& line : found["lines"]) {
        for (const json& point : line["points"]) CHECK(point[1].get<double>() > 0);
        points[line["plot"]][line["title"]] = line["points"].size();
    }
    for (const std::string title : {"rowlock, one client", "rowlock, a client each"}) {
        CHECK(points["throughput"][title] == 2);
        CHECK(points["client-cpu"][title] == 2);
        CHECK(points["waiters"][title] == 1);  // one alone hands it to no other
        if (std::getenv("ROWLOCK_SERVER_PROCESSES") != nullptr) {
            CHECK(points["server-cpu"][title] == 2);
        }
    }
    const std::size_t redis = std::getenv("ROWLOCK_BENCH_REDIS_SOCKET") != nullptr ? 2 : 0;
    const std::size_t zookeeper = std::getenv("ROWLOCK_BENCH_ZOOKEEPER") != nullptr ? 1 : 0;
    CHECK(points["throughput"].size() == 2 + redis + zookeeper);
    CHECK(points["waiters"].size() == 2 + redis + zookeeper);
}
#endif

TEST_CASE("the summary has every row, also those without measurements, and draws the plots") {
    const tool::scratch folder;
    const std::string one = folder / "one.json";
    std::ofstream{one} << R"({"rows": [{"id": "T3", "ours": 1.0, "theirs": 2.0, "unit": "turns/s",
        "ratio": 0.5, "target": 0.5, "met": true, "cpu_ours": 12.5, "cpu_theirs": null}], "notes": [],
        "lines": [{"plot": "rows", "title": "a < b", "points": [[1, 10.0], [1000, 20.0], [0, 1]]}]})";
    const std::string all = folder / "all.json";
    tool::process running{{std::string{ROWLOCK_BENCH_FOLDER} + "/summary", one, "--json", all,
                           "--plots", folder / "plots"},
                          setting_in(folder)};
    const int code = running.wait();
    CAPTURE(running.err());
    REQUIRE(code == 0);
    const auto rows = json::parse(tool::contents(all));
    CHECK(ids_of(rows) == every_row);
    for (const json& row : rows) CHECK(row["met"] == (row["id"] == "T3"));
    const std::string plot = tool::contents(folder / "plots/rows.svg");
    CHECK(plot.find("a &lt; b") != std::string::npos);
    CHECK(plot.find("nan") == std::string::npos);
    CHECK(occurrences(plot, "<circle ") == 2);       // 0 has no logarithm
    CHECK(plot.find("<rect") == std::string::npos);  // no background: the page's shows through
}

TEST_CASE("a program without its server names the server that it needs") {
    const tool::scratch folder;
    tool::setting without;
    for (const char* const name : variables) without.variables[name] = "";
    tool::process running{{ROWLOCK_BENCH_FOLDER "/failed_try"}, without};
    CHECK(running.wait() == 1);
    CHECK(running.err().find("there is no PostgreSQL") != std::string::npos);
}

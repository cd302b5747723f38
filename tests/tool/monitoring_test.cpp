// The files of monitoring/ and docs/metrics.md, against the table of metrics and promtool, the tool
// of Prometheus that checks them.

#include "metrics/table.hpp"
#include "tool/tool.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;

std::string file_of(const std::string& name) {
    return ROWLOCK_SOURCE_DIR "/" + name;
}

tool::answer promtool(tool::arguments command, const std::string& input = {}) {
    const tool::scratch folder;
    std::ofstream{folder / "input"} << input;
    command.insert(command.begin(), "promtool");
    tool::process one{command, {.standard_input = folder / "input"}};
    const int code = one.wait(std::chrono::seconds{120});
    return {code, one.out(), one.err()};
}

void check_metrics(const std::string& text) {
    const auto got = promtool({"check", "metrics"}, text);
    CAPTURE(got.out);
    CAPTURE(got.err);
    CHECK(got.code == 0);
    CHECK(got.err == "");
}

/// The names of rowlock's metrics in a file, histograms without the ends of their series.
std::set<std::string> names_in(const std::string& text) {
    static const std::regex name{"rowlock_(client|database)_[a-z_]+"};
    std::set<std::string> all;
    for (std::sregex_iterator at{text.begin(), text.end(), name}, end; at != end; ++at) {
        all.insert(
            std::regex_replace(at->str(), std::regex{"_seconds_(bucket|sum|count)$"}, "_seconds"));
    }
    return all;
}

std::set<std::string> known_names() {
    std::set<std::string> all;
    for (const auto& each : rowlock::metrics::all_metrics()) all.insert(std::string{each.name});
    return all;
}

void check_names(const std::string& file) {
    CAPTURE(file);
    const auto used = names_in(tool::contents(file_of(file)));
    CHECK(used.size() > 5);
    const auto known = known_names();
    for (const auto& each : used) {
        CAPTURE(each);
        CHECK(known.contains(each));
    }
}

/// Every expression of a dashboard, with Grafana's variables filled in.
std::vector<std::string> expressions(const json& dashboard) {
    std::vector<std::string> all;
    for (const auto& panel : dashboard.at("panels")) {
        if (panel.at("type") == "row") continue;
        CHECK_FALSE(panel.at("targets").empty());
        for (const auto& target : panel.at("targets")) {
            auto text = target.at("expr").get<std::string>();
            text = std::regex_replace(text, std::regex{"\\$__rate_interval"}, "5m");
            all.push_back(std::regex_replace(text, std::regex{"\\$instance"}, ".*"));
        }
    }
    return all;
}

/// A rule for each expression: JSON is YAML, too.
std::string as_rules(const std::vector<std::string>& all) {
    json rules = json::array();
    for (const auto& each : all) {
        rules.push_back({{"record", "r" + std::to_string(rules.size())}, {"expr", each}});
    }
    return json{{"groups", {{{"name", "dashboard"}, {"rules", rules}}}}}.dump();
}

tool::answer check_expressions(const std::vector<std::string>& all) {
    const tool::scratch folder;
    std::ofstream{folder / "rules.yml"} << as_rules(all);
    return promtool({"check", "rules", folder / "rules.yml"});
}

}  // namespace

TEST_CASE("promtool finds nothing wrong with the metrics of a client") {
    rowlock::testing::database database;
    rowlock::client locks{database.source(), database.options({.metric_class = [](auto name) {
                              return std::string{name.substr(0, 1)} + "\"\\\n";
                          }})};
    check_metrics(rowlock::metrics::prometheus(locks));
    const auto lease = locks.acquire("a");
    static_cast<void>(locks.acquire("b"));
    const auto text = rowlock::metrics::prometheus(locks);
    check_metrics(text);
    // All of them, in this state.
    for (const auto& each : rowlock::metrics::all_metrics()) {
        if (!each.name.starts_with("rowlock_client_")) continue;
        CAPTURE(std::string{each.name});
        CHECK(text.find("# TYPE " + std::string{each.name} + " ") != std::string::npos);
    }
}

TEST_CASE("promtool finds nothing wrong with the metrics of a database") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        REQUIRE(in->run({"reap"}).code == 0);  // of which a metric tells
        const auto got = in->run({"metrics"});
        CHECK(got.code == 0);
        check_metrics(got.out);
        for (const auto& each : rowlock::metrics::all_metrics()) {
            if (!each.name.starts_with("rowlock_database_")) continue;
            // PostgreSQL's alone; the second only if there is a transaction.
            if (each.name == "rowlock_database_oldest_transaction_seconds") continue;
            if (each.name == "rowlock_database_notification_queue_ratio" &&
                std::string{in->name()} != "PostgreSQL")
                continue;
            CAPTURE(std::string{each.name});
            CHECK(got.out.find("# TYPE " + std::string{each.name} + " ") != std::string::npos);
        }
    }
}

TEST_CASE("control: promtool finds a metric that breaks the rules") {
    CHECK(promtool({"check", "metrics"}, "# TYPE a_total counter\na_total{b=\"c} 1\n").code != 0);
    CHECK(promtool({"check", "metrics"}, "# HELP a A.\n# TYPE a counter\na 1\n").code != 0);
}

TEST_CASE("the alert rules are valid, and each fires when it should") {
    const auto checked = promtool({"check", "rules", file_of("monitoring/alerts.yml")});
    CAPTURE(checked.err);
    CHECK(checked.code == 0);
    const auto tested = promtool({"test", "rules", file_of("monitoring/alerts.test.yml")});
    CAPTURE(tested.out);
    CHECK(tested.code == 0);
}

TEST_CASE("each alert has a test in which it fires, and says the next command") {
    const auto rules = tool::contents(file_of("monitoring/alerts.yml"));
    const auto tests = tool::contents(file_of("monitoring/alerts.test.yml"));
    const std::regex alert{"- alert: ([A-Za-z]+)"};
    int alerts = 0;
    for (std::sregex_iterator at{rules.begin(), rules.end(), alert}, end; at != end; ++at) {
        const auto name = (*at)[1].str();
        CAPTURE(name);
        ++alerts;
        const auto rule = rules.substr(static_cast<std::size_t>(at->position()));
        const auto whole = rule.substr(0, rule.find("- alert:", 1));
        for (const char* part : {"severity: ", "summary: ", "description: ", "Next"}) {
            CHECK(whole.find(part) != std::string::npos);
        }
        CHECK(tests.find("alertname: " + name + "\n        exp_alerts:\n          - exp_labels") !=
              std::string::npos);
    }
    CHECK(alerts >= 13);
}

TEST_CASE("docs/alerting.md has each alert with its severity, and no other") {
    const auto found = [](const std::string& file, const char* row) {
        const auto text = tool::contents(file_of(file));
        const std::regex pattern{row};
        std::multimap<std::string, std::string> all;
        for (std::sregex_iterator at{text.begin(), text.end(), pattern}, end; at != end; ++at) {
            all.emplace((*at)[1].str(), (*at)[2].str());
        }
        return all;
    };
    const auto rules =
        found("monitoring/alerts.yml",
              "- alert: ([A-Za-z]+)\n(?:(?! +- alert:).*\n)*? +labels: \\{severity: ([a-z]+)");
    CHECK(rules.size() >= 13);
    CHECK(found("docs/alerting.md", "\\| `(Rowlock[A-Za-z]+)` \\| ([a-z]+) \\|") == rules);
}

TEST_CASE("alert rules and the dashboard name only metrics that exist") {
    check_names("monitoring/alerts.yml");
    check_names("monitoring/alerts.test.yml");
    check_names("monitoring/dashboard.json");
    check_names("docs/metrics.md");
    CHECK(names_in("rowlock_client_hold_seconds_bucket rowlock_database_no_such")
              .contains("rowlock_database_no_such"));  // a control
    CHECK_FALSE(known_names().contains("rowlock_database_no_such"));
}

TEST_CASE("the dashboard loads, its panels do not overlap, and its expressions parse") {
    const auto text = tool::contents(file_of("monitoring/dashboard.json"));
    REQUIRE(json::accept(text));
    const auto dashboard = json::parse(text);
    CHECK(dashboard.at("title") == "rowlock");
    CHECK(dashboard.at("schemaVersion").is_number_integer());
    std::set<int> ids;
    std::set<std::pair<int, int>> cells;
    for (const auto& panel : dashboard.at("panels")) {
        CAPTURE(panel.at("title").get<std::string>());
        CHECK(ids.insert(panel.at("id").get<int>()).second);
        const auto& at = panel.at("gridPos");
        CHECK(at.at("x").get<int>() + at.at("w").get<int>() <= 24);
        for (int x = 0; x < at.at("w").get<int>(); ++x) {
            for (int y = 0; y < at.at("h").get<int>(); ++y) {
                CHECK(cells.insert({at.at("x").get<int>() + x, at.at("y").get<int>() + y}).second);
            }
        }
    }
    const auto all = expressions(dashboard);
    CHECK(all.size() > 20);
    const auto got = check_expressions(all);
    CAPTURE(got.err);
    CHECK(got.code == 0);
    CHECK(check_expressions({"sum(rate(a[5m])"}).code != 0);  // a control
}

TEST_CASE("docs/metrics.md lists each metric as the table has it") {
    std::vector<std::string> expected;
    for (const auto& each : rowlock::metrics::all_metrics()) {
        std::ostringstream line;
        line << "| `" << each.name << "` | " << name_of(each.is) << " | " << each.labels << " | "
             << each.unit << " | " << each.help << " |";
        expected.push_back(line.str());
    }
    std::istringstream page{tool::contents(file_of("docs/metrics.md"))};
    std::vector<std::string> lines;
    for (std::string line; std::getline(page, line);) {
        if (line.starts_with("| `rowlock_")) lines.push_back(line);
    }
    CHECK(lines == expected);
}

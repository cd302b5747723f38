// Combines the programs' results: one table, one JSON file, plots.
#include "common/findings.hpp"
#include "summary/goals.hpp"
#include "summary/plot.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using json = nlohmann::ordered_json;

struct gathered {
    std::map<std::string, json> rows;
    std::map<std::string, plot> plots;
};

plot blank(const std::string& name) {
    if (name == "throughput") {
        return {"Acquires and releases of free locks", "threads", "pairs a second", {}};
    }
    if (name == "client-cpu") {
        return {"Processor time of the client for an acquire and release", "threads", "µs", {}};
    }
    if (name == "server-cpu") {
        return {"Processor time of the server for an acquire and release", "threads", "µs", {}};
    }
    if (name == "rows") return {"Acquire among idle rows, PostgreSQL", "rows", "p50, µs", {}};
    if (name == "leases") return {"Heartbeat, PostgreSQL", "leases of the client", "p50, µs", {}};
    if (name == "scale")
        return {"Cost by size, PostgreSQL", "sessions, names or waiters", "p50, µs", {}};
    if (name == "waiters") {
        return {"Hand-off of a lock held for 1 ms", "threads or processes", "p50, µs", {}};
    }
    return {name, "", "", {}};
}

void gather(const std::string& path, gathered& into) {
    std::ifstream file{path};
    const auto all = json::parse(file, nullptr, false);
    if (all.is_discarded()) throw std::runtime_error{"cannot read " + path};
    for (const json& row : all.at("rows")) into.rows[row.at("id")] = row;
    for (const json& line : all.at("lines")) {
        const std::string name = line.at("plot");
        plot& on = into.plots.try_emplace(name, blank(name)).first->second;
        plot_line drawn_one{line.at("title"), line.at("points")};
        // rowlock first, so that it has the same colour everywhere.
        const auto ours = [](const plot_line& each) { return each.title.starts_with("rowlock"); };
        const auto place =
            ours(drawn_one) ? std::ranges::find_if_not(on.lines, ours) : on.lines.end();
        on.lines.insert(place, std::move(drawn_one));
    }
}

json not_measured(const goal& wish) {
    json row;
    row["id"] = wish.id;
    row["ours"] = nullptr;
    row["theirs"] = nullptr;
    row["unit"] = "";
    row["ratio"] = nullptr;
    row["target"] = wish.target;
    row["met"] = false;
    row["cpu_ours"] = nullptr;
    row["cpu_theirs"] = nullptr;
    return row;
}

std::string shown(const json& number) {
    if (!number.is_number()) return "–";
    const double value = number;
    return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

/// `only_measured`: only some programs were run, so that the other rows are left out.
json rows_of(const gathered& all, bool only_measured) {
    auto rows = json::array();
    for (const goal& each : goals) {
        const auto found = all.rows.find(each.id);
        if (found != all.rows.end()) {
            rows.push_back(found->second);
        } else if (!only_measured) {
            rows.push_back(not_measured(each));
        }
    }
    return rows;
}

void print(const json& rows) {
    if (rows.empty()) return;
    fmt::print("\n{:<24} {:<50} {:>9} {:>9} {:>8} {:>9}  {:<7} {:>17}  {}\n", "target", "what",
               "ours", "theirs", "ratio", "wanted", "", "processor µs", "unit");
    for (const json& row : rows) {
        const std::string id = row.at("id");
        for (const goal& each : goals) {
            if (id != each.id) continue;
            const char* const verdict =
                row.at("ours").is_null() ? "not run" : (row.at("met") ? "met" : "missed");
            fmt::print(
                "{:<24} {:<50} {:>9} {:>9} {:>8} {:>9}  {:<7} {:>17}  {}\n", id, each.measure,
                shown(row.at("ours")), shown(row.at("theirs")), shown(row.at("ratio")),
                fmt::format("{} {}", sign_of(each), each.target), verdict,
                fmt::format("{} / {}", shown(row.at("cpu_ours")), shown(row.at("cpu_theirs"))),
                row.at("unit").get<std::string>());
        }
    }
}

void draw(const gathered& all, const std::string& folder) {
    std::filesystem::create_directories(folder);
    for (const auto& [name, what] : all.plots) {
        const auto path = std::filesystem::path{folder} / (name + ".svg");
        std::ofstream file{path};
        file << drawn(what);
        file.close();
        if (!file) throw std::runtime_error{"cannot write " + path.string()};
    }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    CLI::App app{"Puts together what the benchmarks found."};
    std::vector<std::string> files;
    std::string json_file;
    std::string plots;
    bool only_measured = false;
    app.add_option("FILE", files, "Results that the programs wrote with --json")->required();
    app.add_option("--json", json_file, "Write the rows to FILE")->type_name("FILE");
    app.add_option("--plots", plots, "Draw the plots in FOLDER")->type_name("FOLDER");
    app.add_flag("--only-measured", only_measured, "Leave out rows without measurements");
    CLI11_PARSE(app, argc, argv);
    try {
        bench::gathered all;
        for (const std::string& each : files) bench::gather(each, all);
        const auto rows = bench::rows_of(all, only_measured);
        bench::print(rows);
        if (!json_file.empty()) bench::write_file(json_file, rows);
        if (!plots.empty()) bench::draw(all, plots);
        return 0;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "summary: {}\n", failure.what());
        return 1;
    }
}

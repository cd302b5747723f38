// Compares what two builds measured in turns: one row a target, after by before.
#include "common/findings.hpp"
#include "common/measure.hpp"
#include "summary/goals.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using json = nlohmann::ordered_json;
/// The values of each target, by round.
using measured = std::map<std::string, std::map<int, double>>;

/// @param folder with a folder each round, in which `build` has a file each program. A target that
/// could not be measured in a round is missing there.
measured read(const std::filesystem::path& folder, const std::string& build) {
    measured found;
    for (int round = 1;; ++round) {
        const auto files = folder / std::to_string(round) / build;
        if (!std::filesystem::exists(folder / std::to_string(round))) return found;
        if (!std::filesystem::exists(files)) continue;
        for (const auto& each : std::filesystem::directory_iterator{files}) {
            std::ifstream file{each.path()};
            const auto all = json::parse(file, nullptr, false);
            if (all.is_discarded()) throw std::runtime_error{"cannot read " + each.path().string()};
            for (const json& row : all.at("rows")) {
                if (row.at("ours").is_number()) found[row.at("id")][round] = row.at("ours");
            }
        }
    }
}

struct comparison {
    double before = 0;  ///< medians
    double after = 0;
    /// `after` by `before` in each round: neighbours in time, so a change of the machine's speed
    /// between rounds cancels out.
    double ratio = 0;
    double lowest = 0, highest = 0;
};

/// Of the rounds in which both were measured; nullopt: none.
std::optional<comparison> compared(const std::map<int, double>& before,
                                   const std::map<int, double>& after) {
    std::vector<double> old;
    std::vector<double> now;
    std::vector<double> ratios;
    for (const auto& [round, value] : after) {
        const auto its = before.find(round);
        if (its == before.end()) continue;
        old.push_back(its->second);
        now.push_back(value);
        ratios.push_back(value / its->second);
    }
    if (ratios.empty()) return std::nullopt;
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    return comparison{.before = median(old),
                      .after = median(now),
                      .ratio = median(ratios),
                      .lowest = *low,
                      .highest = *high};
}

std::string shown(double value) {
    return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

struct verdict {
    int compared = 0;
    int worse = 0;
};

/// @param tolerance 0.03: a row may be worse by 3 %
verdict print(const measured& before, const measured& after, double tolerance) {
    fmt::print("\n{:<24} {:<42} {:>9} {:>9} {:>8} {:>15}\n", "target", "what", "before", "after",
               "ratio", "rounds");
    verdict found;
    for (const goal& each : goals) {
        const auto old = before.find(each.id);
        const auto now = after.find(each.id);
        if (old == before.end() && now == after.end()) continue;
        const auto row = old == before.end() || now == after.end()
                             ? std::nullopt
                             : compared(old->second, now->second);
        if (!row) {
            fmt::print("{:<24} {:<42} not measured by both\n", each.id, each.measure);
            continue;
        }
        const bool is_worse =
            each.side == wanted::at_least ? row->ratio < 1 - tolerance : row->ratio > 1 + tolerance;
        ++found.compared;
        found.worse += static_cast<int>(is_worse);
        fmt::print("{:<24} {:<42} {:>9} {:>9} {:>8.3f} {:>15}  {}\n", each.id, each.measure,
                   shown(row->before), shown(row->after), row->ratio,
                   fmt::format("{:.2f} … {:.2f}", row->lowest, row->highest),
                   is_worse ? "worse" : "");
    }
    return found;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    CLI::App app{
        "Compares what two builds measured in turns. The exit status is 1 if a target is worse, 2 "
        "if "
        "none was measured by both."};
    std::string folder;
    double tolerance = 3;
    app.add_option("FOLDER", folder, "Results: ROUND/before/*.json and ROUND/after/*.json")
        ->required();
    app.add_option("--tolerance", tolerance, "Percent that a target may be worse [3]")
        ->check(CLI::NonNegativeNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        const auto found = bench::print(bench::read(folder, "before"), bench::read(folder, "after"),
                                        tolerance / 100);
        fmt::print("\n{} of {} worse by more than {} %\n", found.worse, found.compared, tolerance);
        if (found.compared == 0) return 2;
        return found.worse == 0 ? 0 : 1;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "compare: {}\n", failure.what());
        return 2;
    }
}

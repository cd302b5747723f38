// Compares what two builds measured in turns: one row a target, after by before.
#include "common/findings.hpp"
#include "common/measure.hpp"
#include "summary/goals.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
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
/// The values of a target, a round each.
using measured = std::map<std::string, std::vector<double>>;

/// `files`: those of the rounds, in order. A target that a round could not measure is left out of
/// it with its partner, so it is an error here.
measured read(const std::vector<std::string>& files) {
    measured found;
    for (const std::string& path : files) {
        std::ifstream file{path};
        const auto all = json::parse(file, nullptr, false);
        if (all.is_discarded()) throw std::runtime_error{"cannot read " + path};
        for (const json& row : all.at("rows")) {
            const json& ours = row.at("ours");
            if (!ours.is_number()) throw std::runtime_error{path + " has no value for a target"};
            found[row.at("id")].push_back(ours);
        }
    }
    return found;
}

struct comparison {
    double before = 0;  ///< medians
    double after = 0;
    /// `after` by `before` in each round: neighbours in time, so a change of the machine's speed
    /// between rounds cancels out.
    double ratio = 0;
    double lowest = 0, highest = 0;
};

comparison compared(const std::vector<double>& before, const std::vector<double>& after) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < before.size(); ++round) {
        ratios.push_back(after[round] / before[round]);
    }
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    return {.before = median(before),
            .after = median(after),
            .ratio = median(ratios),
            .lowest = *low,
            .highest = *high};
}

std::string shown(double value) {
    return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

/// @returns the number of rows that are worse by more than `tolerance` (0.03: 3 %)
int print(const measured& before, const measured& after, double tolerance) {
    fmt::print("\n{:<24} {:<42} {:>9} {:>9} {:>8} {:>15}  {}\n", "target", "what", "before",
               "after", "ratio", "rounds", "");
    int worse = 0;
    for (const goal& each : goals) {
        const auto old = before.find(each.id);
        const auto now = after.find(each.id);
        if (old == before.end() && now == after.end()) continue;
        if (old == before.end() || now == after.end() || old->second.size() != now->second.size()) {
            fmt::print("{:<24} {:<42} not measured by both\n", each.id, each.measure);
            ++worse;
            continue;
        }
        const comparison row = compared(old->second, now->second);
        const bool is_worse =
            each.side == wanted::at_least ? row.ratio < 1 - tolerance : row.ratio > 1 + tolerance;
        worse += static_cast<int>(is_worse);
        fmt::print("{:<24} {:<42} {:>9} {:>9} {:>8.3f} {:>15}  {}\n", each.id, each.measure,
                   shown(row.before), shown(row.after), row.ratio,
                   fmt::format("{:.2f} … {:.2f}", row.lowest, row.highest),
                   is_worse ? "worse" : "");
    }
    return worse;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
    CLI::App app{"Compares the results of two builds. The exit status is 1 if a target is worse."};
    std::vector<std::string> before;
    std::vector<std::string> after;
    double tolerance = 3;
    app.add_option("--before", before, "Results of the earlier build, a round each")->required();
    app.add_option("--after", after, "Results of this build, a round each")->required();
    app.add_option("--tolerance", tolerance, "Percent that a target may be worse [3]")
        ->check(CLI::NonNegativeNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        const int worse = bench::print(bench::read(before), bench::read(after), tolerance / 100);
        fmt::print("\n{} worse by more than {} %\n", worse, tolerance);
        return worse == 0 ? 0 : 1;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "compare: {}\n", failure.what());
        return 1;
    }
}

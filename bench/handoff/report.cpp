#include "handoff/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>

namespace handoff {
namespace {

/// The round with the median of a value.
template <typename Value>
race_result middle_by(std::vector<race_result> rounds, Value value) {
    const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>((rounds.size() - 1) / 2);
    std::ranges::nth_element(rounds, middle, {}, value);
    return *middle;
}

template <typename T>
T median(const std::vector<race_result>& rounds, T race_result::*value) {
    return middle_by(rounds, value).*value;
}

/// The median of the rounds with measurements.
double median_time(const std::vector<race_result>& rounds, double race_result::*value) {
    std::vector<race_result> measured;
    std::ranges::copy_if(rounds, std::back_inserter(measured),
                         [value](const race_result& each) { return !std::isnan(each.*value); });
    return measured.empty() ? std::nan("") : median(measured, value);
}

/// Rounds to the significant digits. Null without a measurement.
nlohmann::ordered_json rounded(double value, double steps_per_unit) {
    if (std::isnan(value)) return nullptr;
    return std::round(value * steps_per_unit) / steps_per_unit;
}

std::string shown(double microseconds) {
    return std::isnan(microseconds) ? "none" : fmt::format("{:.0f}", microseconds);
}

}  // namespace

race_result median_of(const std::vector<race_result>& rounds) {
    race_result result;
    result.grants_per_second = median(rounds, &race_result::grants_per_second);
    result.handoff_p50_us = median_time(rounds, &race_result::handoff_p50_us);
    result.handoff_p99_us = median_time(rounds, &race_result::handoff_p99_us);
    result.statements_per_grant = median(rounds, &race_result::statements_per_grant);
    // Values that belong together are those of one round.
    result.cpu = middle_by(rounds, [](const race_result& each) {
                     return each.cpu.total_us().value_or(0);
                 }).cpu;
    const auto fair = middle_by(rounds, &race_result::fairness);
    result.fewest = fair.fewest;
    result.most = fair.most;
    for (const race_result& each : rounds) {
        result.longest_wait = std::max(result.longest_wait, each.longest_wait);
        result.overlaps += each.overlaps;
    }
    return result;
}

void print_heading() {
    fmt::print("{:<11} {:>7}  {:<24} {:>8} {:>10} {:>10} {:>10} {:>15} {:>11} {:>8} {:>12}\n",
               "database", "clients", "what", "grants/s", "p50 µs", "p99 µs", "statements",
               "processor µs", "grants each", "fairness", "longest wait");
}

void print_row(const std::string& database, int clients, const std::string& title,
               const race_result& result) {
    fmt::print(
        "{:<11} {:>7}  {:<24} {:>8.0f} {:>10} {:>10} {:>10.2f} {:>15} {:>11} {:>8.2f} {:>9.1f} "
        "ms\n",
        database, clients, title, result.grants_per_second, shown(result.handoff_p50_us),
        shown(result.handoff_p99_us), result.statements_per_grant,
        fmt::format("{:.0f} + {:.0f}", result.cpu.client_us, result.cpu.server_us),
        fmt::format("{}-{}", result.fewest, result.most), result.fairness(),
        static_cast<double>(result.longest_wait.count()) / 1000);
    std::fflush(stdout);
}

nlohmann::ordered_json as_json(const std::string& database, int clients, const race_result& ours,
                               const std::optional<race_result>& floor) {
    nlohmann::ordered_json row;
    row["database"] = database;
    row["clients"] = clients;
    row["grants_per_second"] = rounded(ours.grants_per_second, 10);
    row["handoff_p50_us"] = rounded(ours.handoff_p50_us, 10);
    row["handoff_p99_us"] = rounded(ours.handoff_p99_us, 10);
    row["floor_p50_us"] = nullptr;
    if (floor) row["floor_p50_us"] = rounded(floor->handoff_p50_us, 10);
    row["statements_per_grant"] = rounded(ours.statements_per_grant, 1000);
    row["fairness"] = rounded(ours.fairness(), 10000);
    return row;
}

}  // namespace handoff

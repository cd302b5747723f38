#include "common/findings.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

/// Four significant digits: more would be noise.
nlohmann::ordered_json rounded(double value) {
    if (!std::isfinite(value)) return nullptr;
    if (value == 0) return 0.0;
    const double step = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
    // Division by a whole number keeps 0.1 from becoming 0.1000…01.
    return step < 1 ? std::round(value / step) / std::round(1 / step)
                    : std::round(value / step) * step;
}

nlohmann::ordered_json rounded(const std::optional<double>& value) {
    return value ? rounded(*value) : nlohmann::ordered_json{};
}

}  // namespace

finding compared(std::string id, const pace& ours, const pace& theirs, std::string unit,
                 double target) {
    return {.id = std::move(id),
            .ours = ours.per_second,
            .theirs = theirs.per_second,
            .unit = std::move(unit),
            .target = target,
            .our_cpu = ours.cpu,
            .their_cpu = theirs.cpu};
}

finding cpu_compared(std::string id, const cpu_cost& ours, const cpu_cost& theirs, double target) {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    return {.id = std::move(id),
            .ours = ours.total_us().value_or(unknown),
            .theirs = theirs.total_us().value_or(unknown),
            .unit = "µs of processor time",
            .side = wanted::at_most,
            .target = target,
            .our_cpu = ours,
            .their_cpu = theirs};
}

void findings::add(const finding& row) {
    std::optional<double> ratio;
    if (row.theirs) ratio = row.ours / *row.theirs;
    const double judged = ratio.value_or(row.ours);
    const bool met = row.side == wanted::at_least ? judged >= row.target : judged <= row.target;
    nlohmann::ordered_json json;
    json["id"] = row.id;
    json["ours"] = rounded(row.ours);
    json["theirs"] = rounded(row.theirs);
    json["unit"] = row.unit;
    json["ratio"] = rounded(ratio);
    json["target"] = row.target;
    json["met"] = met;
    json["cpu_ours"] = rounded(row.our_cpu.total_us());
    json["cpu_theirs"] = rounded(row.their_cpu.total_us());
    rows_.push_back(json);
    fmt::print("{:<24} {:.4g}{} {}, target {} {}: {}\n", row.id, row.ours,
               row.theirs ? fmt::format(" by {:.4g}", *row.theirs) : std::string{}, row.unit,
               row.side == wanted::at_least ? "at least" : "at most", row.target,
               met ? "met" : "missed");
    std::fflush(stdout);
}

void findings::add_line(const std::string& plot, const std::string& title,
                        const std::vector<std::pair<double, double>>& points) {
    nlohmann::ordered_json line;
    line["plot"] = plot;
    line["title"] = title;
    line["points"] = points;
    lines_.push_back(line);
}

void findings::note(const std::string& sentence) {
    notes_.push_back(sentence);
    fmt::print("  {}\n", sentence);
    std::fflush(stdout);
}

void findings::write(const std::string& path) const {
    if (path.empty()) return;
    nlohmann::ordered_json all;
    all["rows"] = rows_;
    all["lines"] = lines_;
    all["notes"] = notes_;
    write_file(path, all);
}

void write_file(const std::string& path, const nlohmann::ordered_json& value) {
    std::ofstream file{path};
    file << value.dump(2) << '\n';
    file.close();
    if (!file) throw std::runtime_error{"cannot write " + path};
}

}  // namespace bench

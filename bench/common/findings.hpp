#pragma once

#include "common/measure.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// The good side of the target.
enum class wanted { at_least, at_most };

/// One row of the table of targets. The ratio is rowlock's value divided by the other's. Without
/// another value there is neither `theirs` nor a ratio.
struct finding {
    std::string id;
    double ours = 0;
    std::optional<double> theirs{};
    std::string unit;
    wanted side = wanted::at_least;
    double target = 0;
    /// Processor time of one operation, where it was measured.
    cpu_cost our_cpu{};
    cpu_cost their_cpu{};
};

/// The row of two contestants that were measured in turns.
[[nodiscard]] finding compared(std::string id, const pace& ours, const pace& theirs,
                               std::string unit, double target);

/// The row of the processor time that one operation of each takes: at most `target` times theirs.
[[nodiscard]] finding cpu_compared(std::string id, const cpu_cost& ours, const cpu_cost& theirs,
                                   double target);

/// The results of a program, which scripts/bench combines: rows of the table, points of plots, and
/// notes. Printed at once, written at the end.
class findings {
public:
    void add(const finding& row);
    /// A line of the plot: `plot` is its file's name, x and y its points.
    void add_line(const std::string& plot, const std::string& title,
                  const std::vector<std::pair<double, double>>& points);
    /// Adds a result without a target.
    void note(const std::string& sentence);

    /// Does nothing without a path.
    /// @throws std::runtime_error if the file cannot be written
    void write(const std::string& path) const;

private:
    nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
    nlohmann::ordered_json lines_ = nlohmann::ordered_json::array();
    nlohmann::ordered_json notes_ = nlohmann::ordered_json::array();
};

/// @throws std::runtime_error if the file cannot be written
void write_file(const std::string& path, const nlohmann::ordered_json& value);

}  // namespace bench

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bench {

struct plot_line {
    std::string title;
    std::vector<std::pair<double, double>> points;
};

struct plot {
    std::string title;
    std::string x_title;
    std::string y_title;
    std::vector<plot_line> lines;
};

/// The plot as SVG. Both axes are logarithmic, since the values differ by factors. Points with a
/// coordinate that is not positive are left out.
[[nodiscard]] std::string drawn(const plot& what);

}  // namespace bench

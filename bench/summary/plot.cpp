#include "summary/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

namespace bench {
namespace {

constexpr double width = 720, height = 420;
constexpr double left = 80, right = 200, top = 40, bottom = 56;

// Colours that readers with colour blindness can distinguish.
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73",
                                   "#cc79a7", "#e69f00", "#56b4e9"};

/// Maps values to pixels, by their logarithms.
class axis {
public:
    axis(double from, double to) : from_{from}, to_{to} {}
    void include(double value) {
        low_ = std::min(low_, value);
        high_ = std::max(high_, value);
    }
    /// Extends the axis to whole powers of ten, so that there are always ticks.
    void round_off() {
        spread();
        low_ = std::pow(10, std::floor(std::log10(low_)));
        high_ = std::pow(10, std::ceil(std::log10(high_)));
        if (low_ == high_) high_ *= 10;
    }
    /// Widens the range of one value, or none, which has no extent.
    void spread() {
        if (low_ < high_) return;
        low_ = std::isfinite(low_) ? low_ / 2 : 1;
        high_ = low_ * 4;
    }
    [[nodiscard]] double at(double value) const {
        const double part = std::log(value / low_) / std::log(high_ / low_);
        return from_ + part * (to_ - from_);
    }
    [[nodiscard]] std::vector<double> ticks() const {
        std::vector<double> result;
        double tick = low_;
        while (tick <= high_ * 1.001) {
            result.push_back(tick);
            tick *= 10;
        }
        return result;
    }

private:
    double from_, to_;
    double low_ = std::numeric_limits<double>::infinity();
    double high_ = 0;
};

bool is_drawable(const std::pair<double, double>& point) {
    return point.first > 0 && point.second > 0;
}

std::string escaped(const std::string& text) {
    std::string result;
    for (const char each : text) {
        switch (each) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            default:
                result += each;
        }
    }
    return result;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* more = "") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                       anchor, more, escaped(text));
}

/// The measured positions, which are few enough to label each.
std::set<double> places_of(const plot& what) {
    std::set<double> result;
    for (const plot_line& line : what.lines) {
        for (const auto& point : line.points) {
            if (is_drawable(point)) result.insert(point.first);
        }
    }
    return result;
}

std::string drawn_frame(const plot& what, const axis& x, const axis& y) {
    std::string svg = text_at(left, top - 16, "start", what.title, " font-size=\"15\"");
    for (const double tick : places_of(what)) {
        svg += fmt::format("<path d=\"M{0:.1f} {1} V{2}\" stroke=\"#ddd\"/>\n", x.at(tick), top,
                           height - bottom);
        svg += text_at(x.at(tick), height - bottom + 18, "middle", fmt::format("{}", tick));
    }
    for (const double tick : y.ticks()) {
        svg += fmt::format("<path d=\"M{1} {0:.1f} H{2}\" stroke=\"#ddd\"/>\n", y.at(tick), left,
                           width - right);
        svg += text_at(left - 8, y.at(tick) + 4, "end", fmt::format("{}", tick));
    }
    svg += text_at((left + width - right) / 2, height - 14, "middle", what.x_title);
    svg += text_at(
        0, 0, "middle", what.y_title,
        fmt::format(" transform=\"translate(18 {:.0f}) rotate(-90)\"", (top + height - bottom) / 2)
            .c_str());
    return svg;
}

std::string drawn_line(const plot_line& line, const axis& x, const axis& y, const char* colour,
                       double legend) {
    std::string path;
    std::string dots;
    for (const auto& point : line.points) {
        if (!is_drawable(point)) continue;
        path += fmt::format("{}{:.1f} {:.1f} ", path.empty() ? "M" : "L", x.at(point.first),
                            y.at(point.second));
        dots += fmt::format("<cycle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                            x.at(point.first), y.at(point.second), colour);
    }
    const double beside = width - right + 16;
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path,
                       colour) +
           dots +
           fmt::format("<cycle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{}\"/>\n", beside, legend - 4,
                       colour) +
           text_at(beside + 12, legend, "start", line.title);
}

}  // namespace

std::string drawn(const plot& what) {
    axis x{left, width - right};
    axis y{height - bottom, top};
    for (const plot_line& line : what.lines) {
        for (const auto& point : line.points) {
            if (!is_drawable(point)) continue;
            x.include(point.first);
            y.include(point.second);
        }
    }
    x.spread();
    y.round_off();
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
        width, height);
    svg += drawn_frame(what, x, y);
    double legend = top + 12;
    for (std::size_t i = 0; i < what.lines.size(); ++i) {
        svg += drawn_line(what.lines[i], x, y, colours[i % std::size(colours)], legend);
        legend += 20;
    }
    return svg + "</svg>\n";
}

}  // namespace bench

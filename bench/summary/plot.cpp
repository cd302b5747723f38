#include "summary/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <set>

namespace bench {
namespace {

constexpr double width = 720, height = 420;
constexpr double left = 80, right = 200, top = 40, bottom = 56;

// Readers with colour blindness can distinguish them, and all can read them on white and on black:
// there is no background, since a page may be light or dark.
constexpr const char* colours[] = {"#1f83c4", "#d55e00", "#0a8f6a",
                                   "#c4659b", "#a87800", "#7a7fd0"};
constexpr const char* ink = "#7b828c";
constexpr const char* grid = "stroke=\"#808080\" stroke-opacity=\"0.3\"";
constexpr double row = 16;  ///< of a label

/// Maps values to pixels, by their logarithms.
class axis {
public:
    axis(double from, double to) : from_{from}, to_{to} {}
    void include(double value) {
        low_ = std::min(low_, value);
        high_ = std::max(high_, value);
    }
    /// Extends the axis to the ticks around it.
    void round_off() {
        spread();
        const auto all = ticks_of(low_ / 10, high_ * 10);
        low_ = *std::prev(std::ranges::upper_bound(all, low_ * 1.001));
        high_ = *std::ranges::lower_bound(all, high_ * 0.999);
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
    /// Powers of ten, and twice and five times as much if these are few.
    [[nodiscard]] std::vector<double> ticks() const {
        const auto all = ticks_of(low_, high_);
        if (all.size() <= 10) return all;
        std::vector<double> powers;
        std::ranges::copy_if(all, std::back_inserter(powers), [](double tick) {
            const double exponent = std::log10(tick);
            return std::abs(exponent - std::round(exponent)) < 0.01;
        });
        return powers;
    }

private:
    static std::vector<double> ticks_of(double low, double high) {
        std::vector<double> result;
        for (int power = static_cast<int>(std::floor(std::log10(low)));
             std::pow(10, power) <= high * 1.001; ++power) {
            for (const int times : {1, 2, 5}) {
                // Not a product with 10^-1, which would be 0.30000000000000004.
                const double tick =
                    power < 0 ? times / std::pow(10, -power) : times * std::pow(10, power);
                if (tick >= low * 0.999 && tick <= high * 1.001) result.push_back(tick);
            }
        }
        return result;
    }

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
                    const std::string& more = {}) {
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
        svg += fmt::format("<path d=\"M{0:.1f} {1} V{2}\" {3}/>\n", x.at(tick), top,
                           height - bottom, grid);
        svg += text_at(x.at(tick), height - bottom + 18, "middle", fmt::format("{}", tick));
    }
    for (const double tick : y.ticks()) {
        svg += fmt::format("<path d=\"M{1} {0:.1f} H{2}\" {3}/>\n", y.at(tick), left, width - right,
                           grid);
        svg += text_at(left - 8, y.at(tick) + 4, "end", fmt::format("{}", tick));
    }
    svg += text_at((left + width - right) / 2, height - 14, "middle", what.x_title);
    svg += text_at(0, 0, "middle", what.y_title,
                   fmt::format(" transform=\"translate(18 {:.0f}) rotate(-90)\"",
                               (top + height - bottom) / 2));
    return svg;
}

std::string drawn_line(const plot_line& line, const axis& x, const axis& y, const char* colour) {
    std::string path;
    std::string dots;
    for (const auto& point : line.points) {
        if (!is_drawable(point)) continue;
        path += fmt::format("{}{:.1f} {:.1f} ", path.empty() ? "M" : "L", x.at(point.first),
                            y.at(point.second));
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                            x.at(point.first), y.at(point.second), colour);
    }
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path,
                       colour) +
           dots;
}

struct label {
    double y;
    std::size_t line;
};

/// Beside the last point of each line, moved apart where two would overlap.
std::vector<label> labels_of(const plot& what, const axis& y) {
    std::vector<label> result;
    for (std::size_t i = 0; i < what.lines.size(); ++i) {
        const auto& points = what.lines[i].points;
        const auto last = std::find_if(points.rbegin(), points.rend(), is_drawable);
        if (last != points.rend()) result.push_back({y.at(last->second), i});
    }
    std::ranges::sort(result, {}, &label::y);
    double free = top;
    for (label& each : result) {
        each.y = std::max(each.y, free);
        free = each.y + row;
    }
    free = height - bottom;
    for (auto each = result.rbegin(); each != result.rend(); ++each) {
        each->y = std::min(each->y, free);
        free = each->y - row;
    }
    return result;
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
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"{2}\">\n",
        width, height, ink);
    svg += drawn_frame(what, x, y);
    const auto colour_of = [](std::size_t line) { return colours[line % std::size(colours)]; };
    for (std::size_t i = 0; i < what.lines.size(); ++i) {
        svg += drawn_line(what.lines[i], x, y, colour_of(i));
    }
    for (const label& each : labels_of(what, y)) {
        svg += text_at(width - right + 10, each.y + 4, "start", what.lines[each.line].title,
                       fmt::format(" font-weight=\"bold\" fill=\"{}\"", colour_of(each.line)));
    }
    return svg + "</svg>\n";
}

}  // namespace bench

#include "cli/table.hpp"

#include "base/utf8.hpp"
#include "cli/text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace rowlock::cli {
namespace {

constexpr std::size_t gap = 2;

/// From the first to be left out on a narrow terminal.
constexpr std::array<std::string_view, 10> least_wanted{
    "SESSION", "TOKEN", "PROGRAM", "PID", "SHARE", "REMAINING", "NOTE", "HOST", "LONGEST", "STATE"};
/// No text is cut to less.
constexpr std::size_t least_width = 12;

bool is_empty(const std::string& cell) {
    return cell.empty() || cell == "-";
}

/// A number, a time such as 4m12s, or a date with the time of day.
bool is_quantity(const std::string& cell) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto part = [&](char c) {
        return digit(c) || std::string_view{".-/: dhmsu"}.find(c) != std::string_view::npos;
    };
    return std::ranges::any_of(cell, digit) && std::ranges::all_of(cell, part);
}

struct column {
    std::string heading;
    std::vector<std::string> cells{};
    bool to_the_right = false;
    std::size_t width = 0;

    void measure() {
        width = width_of(heading);
        for (const auto& each : cells) width = std::max(width, width_of(each));
    }
};

std::vector<column> columns_of(const std::vector<std::string>& headings,
                               const std::vector<std::vector<std::string>>& rows) {
    std::vector<column> all;
    for (const auto& heading : headings) all.push_back({heading});
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].cells.push_back(i < row.size() ? escaped(row[i]) : std::string{});
        }
    }
    for (auto& each : all) {
        each.to_the_right = !std::ranges::all_of(each.cells, is_empty) &&
                            std::ranges::all_of(each.cells, [](const auto& cell) {
                                return is_empty(cell) || is_quantity(cell);
                            });
        each.measure();
    }
    return all;
}

std::size_t total(const std::vector<column>& all) {
    std::size_t sum = all.empty() ? 0 : gap * (all.size() - 1);
    for (const auto& each : all) sum += each.width;
    return sum;
}

/// Cuts the widest text until it is as narrow as the next, and so on.
void cut_texts(std::vector<column>& all, std::size_t width) {
    while (total(all) > width) {
        column* widest = nullptr;
        std::size_t second = least_width;
        for (auto& each : all) {
            if (each.to_the_right || each.width <= least_width) continue;
            if (widest == nullptr || each.width > widest->width) {
                if (widest != nullptr) second = std::max(second, widest->width);
                widest = &each;
            } else {
                second = std::max(second, each.width);
            }
        }
        if (widest == nullptr) return;
        const std::size_t spare = total(all) - width;
        const std::size_t least = second < widest->width ? second : widest->width - 1;
        const std::size_t wanted =
            widest->width > spare ? std::max(least, widest->width - spare) : least;
        for (auto& cell : widest->cells) cell = cut(cell, wanted);
        widest->measure();
        if (widest->width > wanted) return;  // the heading is wider
    }
}

void fit(std::vector<column>& all, std::size_t width) {
    std::erase_if(all,
                  [](const column& each) { return std::ranges::all_of(each.cells, is_empty); });
    for (auto next = least_wanted.begin();; ++next) {
        auto tried = all;
        cut_texts(tried, width);
        if (total(tried) <= width || next == least_wanted.end()) {
            all = std::move(tried);
            return;
        }
        std::erase_if(all, [&](const column& each) { return each.heading == *next; });
    }
}

void append_line(std::string& out, const std::vector<column>& all,
                 const std::string& (*text_of)(const column&, std::size_t), std::size_t row) {
    for (const auto& each : all) {
        const std::string& text = text_of(each, row);
        const std::string blanks(each.width - width_of(text), ' ');
        out += each.to_the_right ? blanks + text : text + blanks;
        out.append(gap, ' ');
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
}

}  // namespace

std::size_t output_width() noexcept {
    winsize size{};
    if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}

std::size_t width_of(std::string_view text) noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string cut(const std::string& text, std::size_t width) {
    if (width == 0 || width_of(text) <= width) return text;
    std::size_t columns = 0;
    std::size_t end = 0;
    while (end < text.size()) {
        const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
        if (begins && ++columns == width) break;
        ++end;
    }
    return text.substr(0, end) + "…";
}

std::string table(const std::vector<std::string>& headings,
                  const std::vector<std::vector<std::string>>& rows, std::size_t width) {
    auto all = columns_of(headings, rows);
    if (width > 0 && !rows.empty()) fit(all, width);
    std::string out;
    append_line(
        out, all,
        [](const column& each, std::size_t) -> const std::string& { return each.heading; }, 0);
    for (std::size_t row = 0; row < rows.size(); ++row) {
        append_line(
            out, all,
            [](const column& each, std::size_t of) -> const std::string& { return each.cells[of]; },
            row);
    }
    return out;
}

}  // namespace rowlock::cli

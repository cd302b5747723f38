#include "cli/table.hpp"

#include "base/utf8.hpp"
#include "cli/text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cwchar>
#include <string_view>
#include <vector>

namespace rowlock::cli {
namespace {

constexpr std::size_t gap = 2;

/// From the first to be left out on a narrow terminal.
constexpr std::array<std::string_view, 18> least_wanted{
    "SESSION", "TOKEN",     "PROGRAM", "PID",    "SHARE",   "REMAINING",
    "WANTED",  "AVAILABLE", "NOTE",    "HOST",   "LONGEST", "STATE",
    "KIND",    "HELD",      "PLACE",   "WAITED", "WAITERS", "WAITING"};
/// Columns with names of locks, which are cut last.
constexpr std::array<std::string_view, 4> names{"NAME", "SEMAPHORE", "SHARED_MUTEX", "LOCK"};
/// No text is cut to less, as long as a column is left that can be left out.
constexpr std::size_t least_width = 12;
/// Nor any, on whatever terminal.
constexpr std::size_t least_of_all = 5;

/// In bytes; text that is not UTF-8 is taken byte by byte.
std::size_t length_of_first(std::string_view text) noexcept {
    std::size_t length = 1;
    while (length < text.size() && length < 4 && (text[length] & '\xC0') == '\x80') ++length;
    return length;
}

/// Columns of a character beyond ASCII, as the C library knows them.
std::size_t width_of_wide(std::string_view character) noexcept {
    static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (utf8 == nullptr) return 1;
    const locale_t before = uselocale(utf8);
    std::mbstate_t state{};
    wchar_t wide{};
    const bool known =
        std::mbrtowc(&wide, character.data(), character.size(), &state) == character.size();
    const int width = known ? wcwidth(wide) : 1;
    uselocale(before);
    return width < 0 ? 1 : static_cast<std::size_t>(width);
}

std::size_t width_of_first(std::string_view text) noexcept {
    const std::size_t length = length_of_first(text);
    return length == 1 ? 1 : width_of_wide(text.substr(0, length));
}

/// As much of it as fits, with the combining characters of the last one.
std::string_view beginning(std::string_view text, std::size_t width) {
    std::size_t end = 0;
    for (std::size_t columns = 0; end < text.size();) {
        columns += width_of_first(text.substr(end));
        if (columns > width) break;
        end += length_of_first(text.substr(end));
    }
    return text.substr(0, end);
}

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

bool has_names(const column& of) {
    return std::ranges::find(names, of.heading) != names.end();
}

/// Cuts the widest text until it is as narrow as the next, and so on; not names.
void cut_texts(std::vector<column>& all, std::size_t width, std::size_t least_text) {
    while (total(all) > width) {
        column* widest = nullptr;
        std::size_t second = least_text;
        for (auto& each : all) {
            if (each.to_the_right || has_names(each) || each.width <= least_text) continue;
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

/// Down to `least`.
void cut_names(std::vector<column>& all, std::size_t width, std::size_t least) {
    for (auto& each : all) {
        const std::size_t now = total(all);
        if (!has_names(each) || now <= width) continue;
        const std::size_t spare = now - width;
        const std::size_t wanted = each.width > spare + least ? each.width - spare : least;
        for (auto& cell : each.cells) cell = cut_middle(cell, wanted);
        each.measure();
    }
}

void fit(std::vector<column>& all, std::size_t width) {
    std::erase_if(all,
                  [](const column& each) { return std::ranges::all_of(each.cells, is_empty); });
    for (auto next = least_wanted.begin();; ++next) {
        auto tried = all;
        cut_texts(tried, width, least_width);
        if (total(tried) <= width || next == least_wanted.end()) {
            all = std::move(tried);
            cut_names(all, width, least_width);
            cut_texts(all, width, least_of_all);
            return cut_names(all, width, least_of_all);
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
    std::size_t sum = 0;
    for (; !text.empty(); text.remove_prefix(length_of_first(text))) sum += width_of_first(text);
    return sum;
}

std::string cut(const std::string& text, std::size_t width) {
    if (width == 0 || width_of(text) <= width) return text;
    return std::string{beginning(text, width - 1)} + "…";
}

std::string cut_middle(const std::string& text, std::size_t width) {
    if (width == 0 || width_of(text) <= width) return text;
    const auto first = beginning(text, width / 2);
    std::string_view last = text;
    // Not from a combining character on, whose base would be missing.
    while (width_of(last) > width - 1 - width_of(first) ||
           (!last.empty() && width_of_first(last) == 0)) {
        last.remove_prefix(length_of_first(last));
    }
    return std::string{first} + "…" + std::string{last};
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

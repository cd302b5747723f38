#include "metrics/text.hpp"

#include <cstdlib>

namespace rowlock::metrics {
namespace {

/// @param quotes whether a quotation mark is escaped too, as in the value of a label
std::string escaped(std::string_view raw, bool quotes) {
    std::string text;
    for (const char c : raw) {
        if (c == '\n') {
            text += "\\n";
            continue;
        }
        if (c == '\\' || (quotes && c == '"')) text += '\\';
        text += c;
    }
    return text;
}

/// In decimal without an exponent, the shortest that is exact; in no locale.
std::string seconds(nanoseconds time) {
    constexpr std::int64_t in_second = 1'000'000'000;
    const auto [whole, rest] = std::div(time.count(), in_second);
    std::string fraction = std::to_string(in_second + std::abs(rest)).substr(1);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    std::string text = time.count() < 0 ? "-" : "";
    text += std::to_string(std::abs(whole));
    return fraction.empty() ? text : text + "." + fraction;
}

}  // namespace

void text::begin(const metric& what) {
    now_ = what;
    headed_ = false;
}

void text::sample(std::initializer_list<label> labels, std::uint64_t value) {
    line("", labels, "", std::to_string(value));
}

void text::sample(std::initializer_list<label> labels, nanoseconds value) {
    line("", labels, "", seconds(value));
}

void text::sample(std::initializer_list<label> labels, const distribution& value) {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < value.bounds.size(); ++i) {
        below += value.counts.at(i);
        line("_bucket", labels, seconds(value.bounds[i]), std::to_string(below));
    }
    line("_bucket", labels, "+Inf", std::to_string(value.count));
    line("_sum", labels, "", seconds(value.sum));
    line("_count", labels, "", std::to_string(value.count));
}

void text::line(std::string_view suffix, std::span<const label> labels, std::string_view less_equal,
                std::string_view value) {
    const std::string name{now_.name};
    if (!headed_) {
        text_ += "# HELP " + name + " " + escaped(now_.help, false) + "\n";
        text_ += "# TYPE " + name + " " + std::string{name_of(now_.is)} + "\n";
        headed_ = true;
    }
    text_ += name;
    text_ += suffix;
    const char* separator = "{";
    const auto add = [&](const label& each) {
        if (each.value.empty()) return;
        text_ += separator;
        text_ += each.name;
        text_ += "=\"" + escaped(each.value, true) + "\"";
        separator = ",";
    };
    for (const auto& each : labels) add(each);
    add({"le", less_equal});
    if (*separator == ',') text_ += "}";
    text_ += " ";
    text_ += value;
    text_ += "\n";
}

}  // namespace rowlock::metrics

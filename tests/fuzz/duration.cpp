// A duration has the value of its digits and unit, rounded up to a millisecond, or is refused with
// the exit code for misuse. The error is printable.

#include "cli/duration.hpp"

#include "cli/exit_code.hpp"
#include "fuzz/target.hpp"

#include <algorithm>
#include <optional>

namespace {

using rowlock::cli::failure;
using rowlock::cli::parse_duration;
using rowlock::cli::zero;
using std::chrono::milliseconds;

constexpr std::int64_t longest = std::int64_t{24} * 3660 * 3600 * 1000;

std::optional<std::int64_t> unit_of(std::string_view name) {
    if (name.empty() || name == "s") return 1000;
    if (name == "ms") return 1;
    if (name == "m" || name == "min") return 60'000;
    if (name == "h") return 3'600'000;
    if (name == "d") return 86'400'000;
    return std::nullopt;
}

bool digits(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// The value computed with integers, or nullopt if the text must be refused. Few digits, so that it
/// fits.
std::optional<std::int64_t> meaning_of(std::string_view text) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string_view number = text.substr(0, end);
    const auto unit = unit_of(text.substr(end));
    const std::size_t dot = std::min(number.find('.'), number.size());
    const std::string_view whole = number.substr(0, dot);
    if (!unit || whole.empty() || !digits(whole) || number.ends_with('.')) return std::nullopt;
    const std::string_view part = number.substr(std::min(dot + 1, number.size()));
    if (!digits(part)) return std::nullopt;
    std::int64_t value = 0;
    std::int64_t scale = 1;
    for (const char c : whole) value = value * 10 + (c - '0');
    for (const char c : part) {
        value = value * 10 + (c - '0');
        scale *= 10;
    }
    const std::int64_t time = value * *unit;
    const bool more = time % scale != 0;
    if (time / scale > longest || (time / scale == longest && more)) return std::nullopt;
    return time / scale + (more ? 1 : 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text = fuzz::input{data, size}.all();
    std::optional<milliseconds> parsed;
    try {
        parsed = parse_duration("--ttl", text, zero::allowed);
        fuzz::require(parsed->count() >= 0 && parsed->count() <= longest, "within bounds", text);
        (void)rowlock::cli::to_text(*parsed);
    } catch (const failure& refused) {
        fuzz::require(refused.code() == rowlock::cli::usage, "misuse has its exit code", text);
    }
    const auto few = std::count_if(text.begin(), text.end(), [](char c) {
        return digits({&c, 1});
    });
    if (few <= 10) {
        const auto meant = meaning_of(text);
        fuzz::require(meant.has_value() == parsed.has_value(), "taken or refused", text);
        fuzz::require(!meant || *meant == parsed->count(), "a duration is what it says", text);
    }

    fuzz::input numbers{data, size};
    const milliseconds any{numbers.number() % longest};
    const std::string shown = rowlock::cli::to_text(any);
    fuzz::require(shown.size() < 24 && (any.count() < 0) == shown.starts_with('-'), "shown", shown);
    if (any.count() > 0) {
        const auto again = parse_duration("--ttl", std::to_string(any.count()) + "ms");
        fuzz::require(again == any, "milliseconds are read as they are written", shown);
    }
    return 0;
}

#include "cli/duration.hpp"

#include "cli/exit_code.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// Longer than the library accepts anywhere, shorter than any overflow.
constexpr milliseconds longest = std::chrono::hours{24 * 3660};
// Decimal places that a double tells apart.
constexpr double finest = 1e15;

[[noreturn]] void refuse(std::string_view option, const char* why) {
    throw failure{usage, fmt::format("{} {}", option, why)};
}

milliseconds unit(std::string_view option, std::string_view name) {
    if (name.empty() || name == "s") return 1s;
    if (name == "ms") return 1ms;
    if (name == "m" || name == "min") return 1min;
    if (name == "h") return 1h;
    if (name == "d") return 24h;
    refuse(option, "takes a duration such as 500ms, 30s, 5m, 2h or 1d");
}

}  // namespace

milliseconds parse_duration(std::string_view option, std::string_view text, zero is) {
    if (text.starts_with('-')) refuse(option, "may not be negative");
    // Parses digits by hand, to exclude the spellings of numbers of the locale and the C library.
    double number = 0;
    double scale = 0;
    std::size_t at = 0;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '.' && scale == 0 && at > 0) {
            scale = 1;
        } else if (c >= '0' && c <= '9') {
            if (scale >= finest) continue;  // neither number nor scale may become infinite
            number = number * 10 + (c - '0');
            scale *= 10;
        } else {
            break;
        }
    }
    if (at == 0 || text[at - 1] == '.') unit(option, "?");
    const milliseconds one = unit(option, text.substr(at));
    // Multiplied first, on whole numbers: 1.11 s is exactly 1110 ms.
    const double value = number * static_cast<double>(one.count()) / (scale == 0 ? 1 : scale);
    if (value > static_cast<double>(longest.count())) refuse(option, "is too long");
    const milliseconds time{static_cast<std::int64_t>(std::ceil(value))};
    if (time == 0ms && is == zero::refused) refuse(option, "must be more than 0");
    return time;
}

std::string to_text(milliseconds time) {
    if (time < 0ms) return "-" + to_text(-time);
    if (time < 1s) return fmt::format("{}ms", time.count());
    if (time < 1min) return fmt::format("{}.{}s", time / 1s, time % 1s / 100ms);  // not rounded up
    const auto seconds = time / 1s;
    if (time < 1h) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
    if (time < 24h) return fmt::format("{}h{:02}m", seconds / 3600, seconds / 60 % 60);
    return fmt::format("{}d{}h", seconds / 86400, seconds / 3600 % 24);
}

std::string utc(std::chrono::sys_time<std::chrono::microseconds> at) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z",
                       fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                       (at - seconds).count());
}

}  // namespace rowlock::cli

#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace rowlock::cli {

enum class zero : bool { refused, allowed };

/// "500ms", "30s", "5m", "2h", "1d", "1.5h"; a bare number is seconds.
/// @param option names it in the message, as in "--ttl"
/// @throws failure exit code 64
[[nodiscard]] std::chrono::milliseconds parse_duration(std::string_view option,
                                                       std::string_view text,
                                                       zero is = zero::refused);

/// For people: "850ms", "12.3s", "4m05s", "3h20m", "2d4h"; "-" in front of a negative one.
[[nodiscard]] std::string to_text(std::chrono::milliseconds time);

/// "2026-11-26T04:29:13.000001Z".
[[nodiscard]] std::string utc(std::chrono::sys_time<std::chrono::microseconds> at);

}  // namespace rowlock::cli

#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace rowlock::cli {

/// The whole number that the text is, and nothing beside it; else nullopt.
[[nodiscard]] inline std::optional<std::int64_t> to_number(std::string_view text) noexcept {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
    return number;
}

}  // namespace rowlock::cli

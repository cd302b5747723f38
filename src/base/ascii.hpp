#pragma once

#include <algorithm>
#include <string>
#include <string_view>

/// Letters and digits of ASCII, whatever the locale is. Other bytes are neither, and stay as they
/// are.
namespace rowlock::ascii {

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}

[[nodiscard]] constexpr bool is_letter(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

[[nodiscard]] constexpr char to_lower(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

[[nodiscard]] inline std::string lower(std::string_view text) {
    std::string made{text};
    std::ranges::transform(made, made.begin(), to_lower);
    return made;
}

[[nodiscard]] inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, {}, to_lower, to_lower);
}

}  // namespace rowlock::ascii

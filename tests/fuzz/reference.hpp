#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Second opinions, written from the specifications and differently from the code that they check.
namespace fuzz {

/// The length in bytes of the first sequence, by the table of well-formed byte sequences of RFC
/// 3629, section 4. 0 if it is malformed.
inline std::size_t utf8_length(std::string_view text) {
    const auto at = [text](std::size_t where) {
        return where < text.size() ? static_cast<unsigned char>(text[where]) : 0U;
    };
    const auto tail = [&](std::size_t where) { return at(where) >= 0x80 && at(where) <= 0xBF; };
    const auto within = [&](unsigned low, unsigned high) { return at(1) >= low && at(1) <= high; };
    if (text.empty()) return 0;
    const unsigned lead = at(0);
    if (lead <= 0x7F) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
    if (lead == 0xE0) return within(0xA0, 0xBF) && tail(2) ? 3 : 0;
    if (lead == 0xED) return within(0x80, 0x9F) && tail(2) ? 3 : 0;
    if (lead >= 0xE1 && lead <= 0xEF) return tail(1) && tail(2) ? 3 : 0;
    if (lead == 0xF0) return within(0x90, 0xBF) && tail(2) && tail(3) ? 4 : 0;
    if (lead >= 0xF1 && lead <= 0xF3) return tail(1) && tail(2) && tail(3) ? 4 : 0;
    if (lead == 0xF4) return within(0x80, 0x8F) && tail(2) && tail(3) ? 4 : 0;
    return 0;
}

inline bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

/// C0, DEL, C1 (C2 80 … C2 9F), and U+10FFFF (F4 8F BF BF). The text is UTF-8.
inline bool has_control(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c < 0x20 || c == 0x7F) return true;
        if (c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0) return true;
    }
    return text.find("\xF4\x8F\xBF\xBF") != std::string_view::npos;
}

}  // namespace fuzz

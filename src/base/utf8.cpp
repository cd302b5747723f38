#include "base/utf8.hpp"

#include <cstddef>
#include <cstdint>

namespace rowlock::utf8 {
namespace {

struct shape {
    std::size_t length;
    std::uint32_t lead_bits;
    std::uint32_t smallest;  ///< a smaller code point in that many bytes is overlong
};

shape shape_of(unsigned char lead) noexcept {
    if (lead < 0x80) return {1, lead, 0};
    if ((lead & 0xE0) == 0xC0) return {2, lead & 0x1Fu, 0x80};
    if ((lead & 0xF0) == 0xE0) return {3, lead & 0x0Fu, 0x800};
    if ((lead & 0xF8) == 0xF0) return {4, lead & 0x07u, 0x10000};
    return {0, 0, 0};
}

}  // namespace

verdict check(std::string_view text) noexcept {
    bool control = false;
    for (std::size_t at = 0; at < text.size();) {
        const auto [length, lead_bits, smallest] = shape_of(static_cast<unsigned char>(text[at]));
        if (length == 0 || length > text.size() - at) return verdict::malformed;
        std::uint32_t point = lead_bits;
        for (std::size_t i = 1; i < length; ++i) {
            const auto next = static_cast<unsigned char>(text[at + i]);
            if ((next & 0xC0) != 0x80) return verdict::malformed;
            point = point << 6 | (next & 0x3Fu);
        }
        const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
        if (point < smallest || point > 0x10FFFF || surrogate) return verdict::malformed;
        control = control || point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x10FFFF;
        at += length;
    }
    return control ? verdict::control : verdict::clean;
}

bool is_text(std::string_view text, std::size_t most_bytes) noexcept {
    return text.size() <= most_bytes && check(text) != verdict::malformed &&
           text.find('\0') == std::string_view::npos;
}

std::string up_to(std::string_view text, std::size_t most_bytes) {
    if (text.size() <= most_bytes) return std::string{text};
    while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xC0) == 0x80) {
        --most_bytes;
    }
    return std::string{text.substr(0, most_bytes)};
}

}  // namespace rowlock::utf8

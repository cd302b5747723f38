#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rowlock::utf8 {

enum class verdict {
    clean,
    control,    ///< valid, with C0 or C1 control characters, DEL, or the noncharacter U+10FFFF
    malformed,  ///< overlong, surrogate, truncated or out of range
};

/// Source: RFC 3629, section 4. U+10FFFF counts as a control character because client::list uses it
/// as the upper end of a prefix.
[[nodiscard]] verdict check(std::string_view text) noexcept;

/// Whether a database stores it as text: UTF-8 without NUL, of at most `most_bytes` bytes.
[[nodiscard]] bool is_text(std::string_view text, std::size_t most_bytes) noexcept;

/// The first `most_bytes` bytes of valid UTF-8 at most, whole characters alone.
[[nodiscard]] std::string up_to(std::string_view text, std::size_t most_bytes);

}  // namespace rowlock::utf8

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rowlock {

/// @addtogroup leases
/// @{

/// The name of a lock: 1 to 255 bytes of valid UTF-8 without control characters, compared byte by
/// byte (upper and lower case differ, trailing spaces count). Converts from any string, so that
/// `locks.acquire("nightly-report")` reads well.
class lock_name {
public:
    static constexpr std::size_t max_bytes = 255;  ///< the longest name, in bytes of UTF-8

    /// @throws error errc::invalid_name naming the rule that the text breaks; the message does not
    /// repeat the text.
    lock_name(std::string_view text);  // NOLINT(google-explicit-constructor)
    /// As above.
    lock_name(const std::string& text) : lock_name{std::string_view{text}} {}
    /// As above; a null pointer is an empty name, which is refused.
    lock_name(const char* text)
        : lock_name{text == nullptr ? std::string_view{} : std::string_view{text}} {}
    lock_name(std::nullptr_t) = delete;

    /// The text, unchanged.
    [[nodiscard]] const std::string& str() const noexcept { return text_; }

    friend bool operator==(const lock_name&, const lock_name&) = default;  ///< byte by byte

private:
    std::string text_;
};

/// @}

}  // namespace rowlock

#pragma once

#include <array>
#include <string_view>

namespace rowlock {

/// FIPS 180-4. Maps the names of advisory locks, here and in other languages.
[[nodiscard]] std::array<unsigned char, 32> sha256(std::string_view text) noexcept;

}  // namespace rowlock

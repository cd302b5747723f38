#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace rowlock {

/// @addtogroup leases
/// @{

/// The number of one grant of one name. Every grant of a name carries a greater token than every
/// earlier grant of that name, also after expiry, forced release, restart and reaping; tokens of
/// different names are unrelated. Pass it to the resource that the lock protects and refuse smaller
/// ones: that stops a holder which was paused past its lease.
///
/// Source of the idea: Martin Kleppmann, "How to do distributed locking" (2016).
class fencing_token {
public:
    /// The token of no grant: 0, smaller than all others.
    constexpr fencing_token() noexcept = default;
    /// A token that was kept as a number.
    constexpr explicit fencing_token(std::int64_t value) noexcept : value_{value} {}

    /// Always ≥ 1 for a granted lease; fits a SQL BIGINT.
    [[nodiscard]] constexpr std::int64_t value() const noexcept { return value_; }

    /// Later grants of a name are greater.
    friend constexpr auto operator<=>(fencing_token, fencing_token) noexcept = default;

private:
    std::int64_t value_ = 0;
};

/// The number in decimal digits.
[[nodiscard]] inline std::string to_string(fencing_token token) {
    return std::to_string(token.value());
}
/// Writes to_string(): digits alone, whatever the stream's locale.
std::ostream& operator<<(std::ostream& out, fencing_token token);

/// @}

}  // namespace rowlock

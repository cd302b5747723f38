#pragma once

namespace rowlock {

/// @addtogroup shared
/// @{

/// How a shared_mutex is held.
///
///     beside             shared  upgradeable  exclusive
///     shared             yes     yes          no
///     upgradeable        yes     no           no
///     exclusive          no      no           no
enum class lock_mode : unsigned char {
    shared,       ///< to read
    upgradeable,  ///< to read, and perhaps to write later: upgrade() waits for the readers alone
    exclusive,    ///< to write
};

/// The name of the enumerator.
[[nodiscard]] const char* to_string(lock_mode mode) noexcept;

/// @}

}  // namespace rowlock

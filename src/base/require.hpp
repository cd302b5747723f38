#pragma once

#include <rowlock/error.hpp>

namespace rowlock {

/// Checks a precondition that the caller must meet.
/// @throws error errc::invalid_options with this message unless it holds
inline void require(bool holds, const char* message) {
    if (!holds) throw error{errc::invalid_options, message};
}

}  // namespace rowlock

#pragma once

#include <rowlock/options.hpp>

namespace rowlock::base {

/// The same policy, with no time longer than a clock can be advanced by.
/// @throws error errc::invalid_options if a value is out of range
[[nodiscard]] retry_policy validated(retry_policy policy);

}  // namespace rowlock::base

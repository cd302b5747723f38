#pragma once

#include <rowlock/options.hpp>

namespace rowlock::base {

/// @throws error errc::invalid_options if a value is out of range
void validate(const retry_policy& policy);

}  // namespace rowlock::base

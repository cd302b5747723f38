#pragma once

#include <rowlock/advisory_lock.hpp>

#include <string_view>

namespace rowlock {

/// @throws error errc::invalid_options if it breaks the rules of lock_name
void validate_advisory_domain(std::string_view domain);

}  // namespace rowlock

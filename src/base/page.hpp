#pragma once

#include <rowlock/client.hpp>

#include <string_view>

namespace rowlock::detail {

/// Checks the arguments of a listing.
/// @throws error errc::invalid_options for a prefix that is not text, or a limit out of range
void validate(std::string_view prefix, const page& page);

}  // namespace rowlock::detail

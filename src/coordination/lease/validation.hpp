#pragma once

#include "base/page.hpp"
#include <rowlock/client.hpp>
#include <rowlock/options.hpp>

#include <string_view>

namespace rowlock::detail {

/// What an owner begins with that was not chosen: nobody can come back as it.
inline constexpr std::string_view random_owner = "random:";

/// The options with their zeros filled in.
/// @throws error errc::invalid_options
client_options validated(client_options options);
void validate(const acquire_options& options);

}  // namespace rowlock::detail

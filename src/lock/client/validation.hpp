#pragma once

#include "base/page.hpp"
#include <rowlock/client.hpp>
#include <rowlock/options.hpp>

#include <chrono>
#include <optional>
#include <string_view>

namespace rowlock::detail {

/// Prefix of an owner name that was not chosen: no process can come back as that owner.
inline constexpr std::string_view random_owner = "random:";

/// Returns the options with their zeros filled in.
/// @throws error errc::invalid_options
client_options validated(client_options options);
void validate(const acquire_options& options);
void validate(const request_options& options);
void validate_max_hold(std::optional<std::chrono::milliseconds> limit);

}  // namespace rowlock::detail

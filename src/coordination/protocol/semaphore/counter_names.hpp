#pragma once

#include "coordination/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/error.hpp>

#include <string_view>

namespace rowlock::protocol {

/// Modes are of any lock but a semaphore.
/// @throws error errc::invalid_options if the name is a semaphore's
void require_modes(std::string_view name, bool is_semaphore);

}  // namespace rowlock::protocol

#pragma once

#include "coordination/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/error.hpp>

#include <string_view>

namespace rowlock::protocol {

/// A semaphore and a shared_mutex cannot share a name: they are counted in one table.
/// @throws error errc::invalid_options if the name is of the other kind
void require_kind(std::string_view name, counter_kind found, counter_kind wanted);

/// The error for a name that leases use.
[[nodiscard]] error name_of_leases(std::string_view name, counter_kind wanted);

}  // namespace rowlock::protocol

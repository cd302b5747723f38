#pragma once

#include <sys/types.h>

#include <chrono>

namespace rowlock::cli {

/// CLOCK_BOOTTIME: keeps running while the machine sleeps, as leases do.
[[nodiscard]] std::chrono::nanoseconds boot_time() noexcept;

/// Whether a process of this group and of our session can still run. Zombies cannot, but a child of
/// ours counts until it is collected.
[[nodiscard]] bool has_living_members(pid_t group) noexcept;

/// Collects every child that has ended. False if no child is left.
bool collect_children() noexcept;

}  // namespace rowlock::cli

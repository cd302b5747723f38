#pragma once

#include <rowlock/client.hpp>

#include <sys/types.h>

#include <cstdint>
#include <string>

/// A command under `rowlock run` that starts another `rowlock`.
namespace rowlock::cli {

/// Whether this process runs, as far as its environment tells, under `rowlock run`.
[[nodiscard]] bool runs_under_a_hold() noexcept;

/// The value of ROWLOCK_HOLDS for the command of `rowlock run`: the holds that it runs under, as
/// PROCESS:TOKEN, the outermost first.
[[nodiscard]] std::string holds_of_a_command(pid_t holder, std::int64_t token);

/// Whether this hold is one that we run under: waiting for it would be waiting for ourselves.
[[nodiscard]] bool is_above_us(const std::string& host, std::int64_t process, std::int64_t token);

/// @throws failure if this holder of the lock `name` is a `rowlock run` that we run under
void refuse_to_wait_for_ourselves(const std::string& name, const holder_info& holder,
                                  fencing_token token);
/// @throws failure if `row` is held by the `rowlock run` that we run under
void refuse_to_wait_for_ourselves(const lease_info& row);

}  // namespace rowlock::cli

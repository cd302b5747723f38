#pragma once

#include "cli/exit_code.hpp"
#include <rowlock/client.hpp>
#include <rowlock/semaphore.hpp>

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

/// A command under `rowlock run` that starts another `rowlock`.
namespace rowlock::cli {

/// Whether this process runs, as far as its environment tells, under `rowlock run`.
[[nodiscard]] bool runs_under_a_hold() noexcept;

/// The value of ROWLOCK_HOLDS for the command of `rowlock run`: the holds that it runs under, as
/// PROCESS:TOKEN, the outermost first.
[[nodiscard]] std::string holds_of_a_command(pid_t holder, std::int64_t token);

/// Whether this hold is one that we run under: waiting for it would be waiting for ourselves.
[[nodiscard]] bool is_above_us(const std::string& host, std::int64_t process, std::int64_t token);

/// Every holder that a lock is likely to have, of which one may be a hold that we run under.
inline constexpr int most_holders = 10'000;

/// @throws failure if this holder of the lock `name` is a `rowlock run` that we run under
void refuse_to_wait_for_ourselves(const std::string& name, const holder_info& holder,
                                  fencing_token token);
/// How many of these permits are those of holds that we run under. They do not come back while we
/// wait.
[[nodiscard]] std::int64_t permits_above(const std::vector<permit_holder>& holders);
/// For a semaphore of which we run under a hold, and that has not enough left.
[[nodiscard]] failure would_wait_for_itself(const std::string& name);

/// @throws failure if `row` is held by the `rowlock run` that we run under
void refuse_to_wait_for_ourselves(const lease_info& row);

}  // namespace rowlock::cli

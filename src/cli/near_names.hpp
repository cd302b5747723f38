#pragma once

#include "cli/database.hpp"
#include "cli/exit_code.hpp"
#include <rowlock/client.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Answers to what was mistyped.
namespace rowlock::cli {

/// "; did you mean X?" for the nearest of `words`, if it is near.
[[nodiscard]] std::string suggestion(std::string_view typed, const std::vector<std::string>& words);

/// Whether the database knows anything of this name: a lease, a semaphore, a shared_mutex, waiters,
/// a run, or a limit.
/// @throws error
[[nodiscard]] bool is_known(client& locks, const std::string& name);

/// "; did you mean X, Y or Z?" of the locks that there are. It reads up to 10 000 names of each
/// kind.
/// @throws error
[[nodiscard]] std::string names_near(client& locks, const std::string& name);

/// "no such lock", with the names near it.
/// @throws error
[[nodiscard]] failure no_such_lock(const database& in, client& locks, const std::string& name);

/// @throws failure no_such_lock()
void require_known(const database& in, const std::string& name);

/// The answer that a grant of this name is not held: `otherwise`, or that there is no such lock.
[[nodiscard]] failure not_held(const database& in, const std::string& name,
                               const std::string& otherwise);

}  // namespace rowlock::cli

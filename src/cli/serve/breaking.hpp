#pragma once

#include "cli/database.hpp"
#include "cli/json.hpp"

#include <string>

namespace rowlock::cli::serving {

/// Asks a holder to stop, or takes its lock, as `rowlock break` does, and does not wait for what
/// comes of it.
/// @param request JSON: {"name", "kind", "token", "how": "stop" | "within" | "now", "within_ms",
/// "reason"}
/// @param from the address of the page, for the log
/// @returns {"outcome": "asked" | "taken" | "gone", "within_ms"}
/// @throws failure, error
[[nodiscard]] json break_hold(const database& in, const std::string& request,
                              const std::string& from);

}  // namespace rowlock::cli::serving

#pragma once

#include "cli/database.hpp"

#include <string>

namespace rowlock::cli {

/// The metrics of a database, with the doctor's verdicts, in Prometheus' text format. Connects;
/// reads tables from end to end.
/// @throws error
[[nodiscard]] std::string measure(const database& in);

}  // namespace rowlock::cli

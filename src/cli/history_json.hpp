#pragma once

#include "cli/json.hpp"
#include <rowlock/history.hpp>

namespace rowlock::cli {

/// Fields that are 0 or empty are left out.
[[nodiscard]] json to_json(const history_record& one);

}  // namespace rowlock::cli

#pragma once

#include "cli/json.hpp"
#include "overview/past.hpp"
#include <rowlock/history.hpp>

namespace rowlock::cli {

/// Fields that are 0 or empty are left out.
[[nodiscard]] json to_json(const history_record& one);
/// @param now the database's clock
[[nodiscard]] json to_json(const overview::past_hold& hold, overview::history_time now);
/// "holds", which the tool and the page show, and the "records" that tell of them.
[[nodiscard]] json to_json(const overview::past& all);

}  // namespace rowlock::cli

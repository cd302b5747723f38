#pragma once

#include "cli/json.hpp"
#include "view/past.hpp"
#include <rowlock/history.hpp>

namespace rowlock::cli {

/// Fields that are 0 or empty are left out.
[[nodiscard]] json to_json(const history_record& one);
/// @param now the database's clock
[[nodiscard]] json to_json(const view::past_hold& hold, view::history_time now);
/// "holds", which the tool and the page show, and the "records" that tell of them.
[[nodiscard]] json to_json(const view::past& all);

}  // namespace rowlock::cli

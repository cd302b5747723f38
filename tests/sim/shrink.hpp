#pragma once

#include "plan.hpp"

#include <functional>

namespace rowlock::sim {

/// Leaves out as much of a plan as possible, first in large pieces, then one by one ("delta
/// debugging").
/// @param items how many the plan has
/// @param fails whether it still fails without these
/// @param more whether there is time for another attempt
/// @return what can be left out
[[nodiscard]] item_set shrink(item items, const std::function<bool(const item_set&)>& fails,
                              const std::function<bool()>& more);

}  // namespace rowlock::sim

#pragma once

#include "random.hpp"

namespace rowlock::sim {

/// What a wall clock that nobody has set shows at a true time: nanoseconds since 1970.
[[nodiscard]] i64 wall_clock(i64 true_time);

}  // namespace rowlock::sim

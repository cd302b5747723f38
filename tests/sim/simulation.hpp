#pragma once

#include "oracle.hpp"
#include "plan.hpp"

#include <cstdio>
#include <map>
#include <string>

namespace rowlock::sim {

/// What is counted over many simulations.
struct statistics {
    u64 seeds = 0, operations = 0, grants = 0, statements = 0, steps = 0;
    u64 pauses = 0, kills = 0, cut_offs = 0, losses = 0, fences = 0;
    i64 virtual_time = 0;
    i64 longest_wait = 0;  ///< until the last call had ended, from the moment of healing
    std::map<std::string, u64> errors{};  ///< by call and kind
};

struct outcome {
    violation kind = violation::none;
    std::string text{};
    u64 trace = 0;
};

/// @param schedule another one is another order of threads, other delays and other statements that
/// meet a hazard, under the same plan
/// @param prints where every step is written; null: nowhere
[[nodiscard]] outcome simulate(const plan& chosen, u64 seed, u64 schedule, std::FILE* prints,
                               statistics& sum);

}  // namespace rowlock::sim

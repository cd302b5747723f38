#pragma once

#include "handoff/race.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace handoff {

/// The medians of several rounds, each value by itself; the longest wait and the overlaps are those
/// of all rounds.
[[nodiscard]] race_result median_of(const std::vector<race_result>& rounds);

void print_heading();
void print_row(const std::string& database, int clients, const std::string& title,
               const race_result& result);

/// @param floor of the same rounds, where the database has one
[[nodiscard]] nlohmann::ordered_json as_json(const std::string& database, int clients,
                                             const race_result& ours,
                                             const std::optional<race_result>& floor);

}  // namespace handoff

#pragma once

#include "handoff/contests.hpp"
#include "handoff/race.hpp"

#include <string>
#include <vector>

namespace handoff {

/// Runs the contests in turns, A B A B, so many rounds. Prints the medians of each and returns
/// them.
/// @throws std::runtime_error if two clients held the lock at once
[[nodiscard]] std::vector<race_result> take_turns(const std::string& database,
                                                  const std::vector<contest>& contests,
                                                  const race_options& race, int rounds);

/// rowlock's tables, for the lifetime of this object. Separate processes use the database.
class prepared_tables {
public:
    explicit prepared_tables(const lease_options& options);
    /// Removes the tables, unless clear() has. A failure is reported on standard error.
    ~prepared_tables();
    /// @throws std::runtime_error if a lease or queue entry remains
    void clear();
    prepared_tables(const prepared_tables&) = delete;
    prepared_tables& operator=(const prepared_tables&) = delete;

private:
    lease_options options_;
    bool cleared_ = false;
};

}  // namespace handoff

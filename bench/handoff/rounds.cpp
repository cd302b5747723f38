#include "handoff/rounds.hpp"

#include "handoff/report.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <stdexcept>

namespace handoff {

std::vector<race_result> take_turns(const std::string& database,
                                    const std::vector<contest>& contests, const race_options& race,
                                    int rounds) {
    std::vector<std::vector<race_result>> results(contests.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < contests.size(); ++i) {
            results[i].push_back(run_race(contests[i], race));
        }
    }
    std::vector<race_result> medians;
    for (std::size_t i = 0; i < results.size(); ++i) {
        medians.push_back(median_of(results[i]));
        print_row(database, race.clients, contests[i].title, medians.back());
        if (medians.back().overlaps != 0) {
            throw std::runtime_error{fmt::format("{}: {} times two clients held the lock at once",
                                                 contests[i].title, medians.back().overlaps)};
        }
    }
    return medians;
}

prepared_tables::prepared_tables(const lease_options& options) : options_{options} {
    in_child([this] { prepare_leases(options_); });
}

prepared_tables::~prepared_tables() {
    if (cleared_) return;
    try {
        clear();
    } catch (const std::exception& failure) {
        fmt::print(stderr, "hand-offs: {}\n", failure.what());
    }
}

void prepared_tables::clear() {
    cleared_ = true;
    in_child([this] { clear_leases(options_); });
}

}  // namespace handoff

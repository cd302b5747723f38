#pragma once

#include "common/cpu_time.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Measures repeated operations.
namespace bench {

/// The repeated operation of one thread. Used by one thread at a time.
class worker {
public:
    virtual ~worker() = default;
    virtual void turn() = 0;
};

/// A subject to measure, with workers that stay connected from round to round.
struct contestant {
    std::string title;
    std::vector<std::unique_ptr<worker>> workers;
};

/// Makes a contestant with `threads` workers. `make` is called with 0 … threads - 1.
[[nodiscard]] contestant line_up(std::string title, int threads,
                                 const std::function<std::unique_ptr<worker>(int)>& make);

/// Medians over the rounds.
struct pace {
    double per_second = 0;  ///< turns of all workers
    double p50_us = 0;      ///< the median of one turn
    double p99_us = 0;
    double worst_p99_us = 0;  ///< of the worker with the longest
    cpu_cost cpu{};           ///< of one turn
};

struct round_options {
    int rounds = 9;
    std::chrono::milliseconds each{300};
    /// The warm-up of each contestant before the first round. Servers with a just-in-time compiler
    /// (Java) take seconds to reach full speed.
    std::chrono::milliseconds warm_up{1000};
};

/// Runs the contestants alternately: A B A B. The warm-up does not count.
/// @throws what a worker threw
[[nodiscard]] std::vector<pace> take_turns(std::vector<contestant>& contestants,
                                           const round_options& options);

/// One round of one contestant.
[[nodiscard]] pace run_round(contestant& who, std::chrono::milliseconds duration);

/// @param values must not be empty
[[nodiscard]] double median(std::vector<double> values);
/// The medians of both parts.
/// @param costs must not be empty
[[nodiscard]] cpu_cost median(const std::vector<cpu_cost>& costs);
/// Of each figure by itself.
/// @param rounds must not be empty
[[nodiscard]] pace median(const std::vector<pace>& rounds);
/// @param fraction 0 … 1
[[nodiscard]] double quantile(std::vector<double>& values, double fraction);

/// The time of `action` in microseconds.
[[nodiscard]] double duration_us(const std::function<void()>& action);

}  // namespace bench

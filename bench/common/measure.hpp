#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Things that are done over and over, and how long they take.
namespace bench {

/// What one thread does again and again. Made in that thread's name, used by one thread at a time.
class worker {
public:
    virtual ~worker() = default;
    virtual void turn() = 0;
};

/// Something to be measured, with workers that stay connected from round to round.
struct contestant {
    std::string title;
    std::vector<std::unique_ptr<worker>> workers;
};

/// Makes a contestant of so many workers. `make` is called with 0 … threads - 1.
[[nodiscard]] contestant line_up(std::string title, int threads,
                                 const std::function<std::unique_ptr<worker>(int)>& make);

/// Medians over the rounds.
struct pace {
    double per_second = 0;  ///< turns of all workers
    double p50_us = 0;      ///< of one turn
    double p99_us = 0;
};

struct round_options {
    int rounds = 9;
    std::chrono::milliseconds each{300};
    /// Of each contestant, before the first round. Servers that compile themselves while they run
    /// (Java) need seconds until they are at their best.
    std::chrono::milliseconds warm_up{1000};
};

/// Each contestant in turn, round after round: A B A B. The warm-up does not count.
/// @throws what a worker threw
[[nodiscard]] std::vector<pace> take_turns(std::vector<contestant>& contestants,
                                           const round_options& options);

/// One round of one contestant.
[[nodiscard]] pace run_round(contestant& who, std::chrono::milliseconds duration);

/// @param values must not be empty
[[nodiscard]] double median(std::vector<double> values);
/// @param fraction 0 … 1
[[nodiscard]] double quantile(std::vector<double>& values, double fraction);

/// How long `action` takes, in microseconds.
[[nodiscard]] double duration_us(const std::function<void()>& action);

}  // namespace bench

#pragma once

#include "common/cpu_time.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Many clients that contend for one lock, each in a process of its own unless the contest says
/// otherwise: each acquires, holds and releases it, repeatedly.
namespace handoff {

/// One part in a contest. Made in its process and by its thread, which alone uses it.
class contender {
public:
    virtual ~contender() = default;
    /// Returns as the holder. Throws on failures, and on waits longer than `patience`.
    virtual void acquire() = 0;
    virtual void release() = 0;
};

constexpr std::chrono::seconds patience{60};

struct entrant {
    int index;                               ///< 0 … clients - 1
    int clients;                             ///< how many take part
    std::atomic<std::uint64_t>& statements;  ///< to be incremented with each statement
};

/// The subject of a race.
struct contest {
    std::string title;
    std::function<std::unique_ptr<contender>(const entrant&)> join;
    bool one_process = false;  ///< its contenders are threads of one process
};

struct race_options {
    int clients = 2;
    std::chrono::milliseconds duration{3000};  ///< of what is counted
    std::chrono::milliseconds warm_up{1000};   ///< before that: all begin at once
    std::chrono::microseconds hold{1000};
};

struct race_result {
    double grants_per_second = 0;
    double handoff_p50_us = 0;  ///< no number if there was no hand-off
    double handoff_p99_us = 0;
    double statements_per_grant = 0;
    std::uint64_t fewest = 0;  ///< grants of one client
    std::uint64_t most = 0;
    std::chrono::microseconds longest_wait{0};
    std::uint64_t overlaps = 0;  ///< how often two processes held it at once
    bench::cpu_cost cpu{};       ///< of one grant

    [[nodiscard]] double fairness() const {
        return most == 0 ? 0 : static_cast<double>(fewest) / static_cast<double>(most);
    }
};

/// Starts the processes, waits until all are ready, lets them run for the warm-up and the duration,
/// and counts what happens in the duration.
/// A hand-off lasts from the call of one process's release to the return of the acquire of another.
/// @throws std::runtime_error if a process failed, with its message
[[nodiscard]] race_result run_race(const contest& what, const race_options& options);

/// Runs `action` in a separate process, so that this one never has a connection or a thread that a
/// fork would copy.
/// @throws std::runtime_error with the message of what `action` threw
void in_child(const std::function<void()>& action);

}  // namespace handoff

#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// When a task is due, and how it is repeated.
struct task {
    nanoseconds at;
    nanoseconds pause{0};      ///< before the latest repetition
    int again = 0;             ///< repetitions that are left
    bool lasting = false;      ///< a transaction that is still open is waited for
    bool counted = false;      ///< of a queue: its first waiter is expected to want a part alone
    bool deferred = false;     ///< by an attempt of its client: once
    std::uint64_t number = 0;  ///< of the plan; task_list numbers them

    /// After a failed attempt, with a longer pause each time.
    [[nodiscard]] task postponed(nanoseconds now) const noexcept;
};

/// Names of locks, each with a task that is due at its time. Reads no clock. Not thread-safe:
/// waiter_tasks guards it.
class task_list {
public:
    /// Merges two tasks of a name: the earlier time, the larger number of repetitions.
    void plan(std::string name, task when);
    /// Plans a task that was done for its next repetition, if one is left.
    void repeat(std::string name, const task& done, nanoseconds now);
    /// Removes the tasks that are due, and returns them.
    [[nodiscard]] std::vector<std::pair<std::string, task>> take_due(nanoseconds now);
    /// Defers the task of a name to this time, once. Returns the number of its plan; nullopt if
    /// there is none, or it was deferred before, or is lasting.
    [[nodiscard]] std::optional<std::uint64_t> defer(const std::string& name, nanoseconds until);
    /// Removes a task, unless it has been planned anew. Returns false if it did nothing.
    bool withdraw(const std::string& name, std::uint64_t number);
    /// Makes it due at this time, unless it has been planned anew. Returns false if it did nothing.
    bool hasten(const std::string& name, std::uint64_t number, nanoseconds at);
    /// When the next task is due; never if there is none.
    [[nodiscard]] nanoseconds next_due() const noexcept;

    void clear() noexcept { tasks_.clear(); }
    [[nodiscard]] auto begin() const noexcept { return tasks_.begin(); }
    [[nodiscard]] auto end() const noexcept { return tasks_.end(); }

private:
    [[nodiscard]] task* find(const std::string& name, std::uint64_t number);

    std::unordered_map<std::string, task> tasks_;
    std::uint64_t numbers_ = 0;
};

}  // namespace rowlock::detail

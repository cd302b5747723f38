#pragma once

#include <chrono>
#include <limits>
#include <optional>

/// Processor time, by the kernel's account.
namespace bench {

/// Of one operation, in microseconds. Not a number where it was not measured.
struct cpu_cost {
    double client_us = std::numeric_limits<double>::quiet_NaN();
    double server_us = std::numeric_limits<double>::quiet_NaN();

    /// The sum. Without a server that was measured, as with SQLite, that of the client.
    /// Empty if there is none.
    [[nodiscard]] std::optional<double> total_us() const;
};

/// Of this process, without its children.
[[nodiscard]] std::chrono::nanoseconds own_cpu_time();

/// Of the children of this process that it has waited for, with those that they waited for.
[[nodiscard]] std::chrono::nanoseconds ended_children_cpu_time();

/// Of all servers that scripts/with-servers has started, with their descendants. Only the one that
/// is used does more than a timer's work meanwhile. Processes that ended count in hundredths of a
/// second, threads that ended no longer. Empty if it started none.
/// @throws std::runtime_error if the kernel keeps no such account (CONFIG_SCHED_INFO)
[[nodiscard]] std::optional<std::chrono::nanoseconds> server_cpu_time();

/// The cost of one of so many operations.
[[nodiscard]] cpu_cost cost_of_one(double operations, std::chrono::nanoseconds client,
                                   std::optional<std::chrono::nanoseconds> servers);

/// Measures from its construction on.
class cpu_meter {
public:
    using client_clock = std::chrono::nanoseconds (*)();
    /// @param client ended_children_cpu_time if the clients are commands that this process runs
    explicit cpu_meter(client_clock client = own_cpu_time);
    [[nodiscard]] cpu_cost for_each_of(double operations) const;
    /// Of the servers so far; empty if none was started.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> of_servers() const;

private:
    client_clock client_time_;
    std::optional<std::chrono::nanoseconds> server_;
    std::chrono::nanoseconds client_;
};

}  // namespace bench

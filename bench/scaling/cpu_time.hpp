#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

/// Processor time, by the kernel's account.
namespace bench {

/// The process of a server that scripts/with-servers has started, by its name there. Empty if it
/// started none of that name.
[[nodiscard]] std::optional<pid_t> server_process(const std::string& name);

/// Of a process and all its descendants, which have run up to now. Threads and processes that ended
/// no longer count.
/// @throws std::runtime_error if the process is gone, or the kernel keeps no such account
/// (CONFIG_SCHED_INFO)
[[nodiscard]] std::chrono::nanoseconds cpu_time_of(pid_t process);

/// Of this process, without its children.
[[nodiscard]] std::chrono::nanoseconds own_cpu_time();

}  // namespace bench

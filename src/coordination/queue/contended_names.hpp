#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rowlock::detail {

/// The names that had a waiter at this client's last release: for a second the client expects
/// another. Hints. Bounded as long as notes come; thread-safe.
class contended_names {
public:
    void note(const std::string& name);
    [[nodiscard]] bool has(const std::string& name) const;

private:
    using steady = std::chrono::steady_clock;

    mutable std::mutex mutex_;
    std::unordered_map<std::string, steady::time_point> until_;
};

}  // namespace rowlock::detail

#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rowlock::detail {

/// The names that had a waiter at this client's last release: for a second the client expects
/// another. Hints. Bounded as long as notes come; thread-safe.
class contended_names {
public:
    using steady = std::chrono::steady_clock;
    using time = steady::time_point;

    void note(const std::string& name, time now = steady::now());
    /// There is no reason to expect another.
    void forget(const std::string& name);
    [[nodiscard]] bool has(const std::string& name, time now) const;
    /// The same now. Reads the clock only if a name is noted.
    [[nodiscard]] bool has(const std::string& name) const;
    [[nodiscard]] std::size_t size() const;

private:
    [[nodiscard]] bool has_locked(const std::string& name, time now) const;

    mutable std::mutex mutex_;
    std::unordered_map<std::string, time> until_;
};

}  // namespace rowlock::detail

#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace rowlock::detail {

/// Caches the last known state of names this client does not hold, to pick the cheapest first
/// statement. Entries are hints; that statement re-checks them. Bounded; thread-safe.
class token_cache {
public:
    /// This client freed the lease at this token, and no client waited.
    void remember_free(const std::string& name, std::int64_t token);
    /// Another client held the lease.
    void remember_held(const std::string& name);
    void forget(const std::string& name);
    void forget_all();

    /// Returns the token at which this client last freed the lease, and forgets it: the next
    /// statement's answer says more.
    [[nodiscard]] std::optional<std::int64_t> take_free(const std::string& name);
    [[nodiscard]] bool was_held(const std::string& name) const;

private:
    static constexpr std::size_t most = 4096;
    static constexpr std::int64_t held = -1;

    void note(const std::string& name, std::int64_t what);

    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::int64_t> seen_;  ///< token, or `held`
};

}  // namespace rowlock::detail

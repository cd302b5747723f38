#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace rowlock::detail {

/// What a client saw of names that it does not hold, so that it can begin with the statement that
/// will do. Hints: each is proved by the statement that it leads to. Bounded; thread-safe.
class token_cache {
public:
    /// We freed it with this token, and nobody waited.
    void remember_free(const std::string& name, std::int64_t token);
    /// Somebody else had it.
    void remember_held(const std::string& name);
    void forget(const std::string& name);
    void forget_all();

    /// The token with which we freed it last. Is forgotten with it: the answer to the next
    /// statement says more.
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

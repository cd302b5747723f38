#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rowlock::sql {

/// Statements whose texts are generated at run time. A text always maps to the same statement, so
/// that a connection prepares it once. Thread-safe.
class statement_cache {
public:
    /// Keeps at most `most` statements and starts anew when full, so that a program that generates
    /// texts without end does not fill its memory. Drivers bound what they prepared by themselves.
    explicit statement_cache(std::size_t most) noexcept : most_{most} {}

    [[nodiscard]] statement of(const std::string& text);
    /// From now on the text maps to another statement, which is prepared anew.
    void forget(const std::string& text);

private:
    const std::size_t most_;
    std::mutex mutex_;
    std::unordered_map<std::string, statement> statements_;
};

}  // namespace rowlock::sql

#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rowlock::sql {

/// Statements whose texts are written at run time. A text is always the same statement, so that a
/// connection prepares it once. Thread-safe.
class statement_cache {
public:
    /// Keeps `most` at most, so that a program that makes up texts without end does not fill its
    /// memory with them: then it begins anew. Drivers bound what they prepared by themselves.
    explicit statement_cache(std::size_t most) noexcept : most_{most} {}

    [[nodiscard]] statement of(const std::string& text);
    /// It is another statement from now on, and so is prepared anew.
    void forget(const std::string& text);

private:
    const std::size_t most_;
    std::mutex mutex_;
    std::unordered_map<std::string, statement> statements_;
};

}  // namespace rowlock::sql

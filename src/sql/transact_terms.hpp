#pragma once

#include <rowlock/sql/connection.hpp>

#include <span>
#include <string_view>

namespace rowlock::sql {

/// What connection::transact() is to do otherwise than its steps say, for the calls that this
/// thread makes while the object lives: it reaches the driver through every connection that stands
/// between. A driver that cannot do it runs nothing, and transact() returns nullopt.
class transact_terms {
public:
    /// @param changes for each step, SQL for the number of rows that it must change; empty: it only
    /// reads
    /// @param rows gets what the last such step returns; untouched unless all was committed
    transact_terms(std::span<const std::string_view> changes, result& rows) noexcept
        : changes_{changes}, rows_{rows} {
        current_ = this;
    }
    transact_terms(const transact_terms&) = delete;
    transact_terms& operator=(const transact_terms&) = delete;
    ~transact_terms() { current_ = nullptr; }

    /// Those of this thread, or null.
    [[nodiscard]] static const transact_terms* current() noexcept { return current_; }
    [[nodiscard]] std::span<const std::string_view> changes() const noexcept { return changes_; }
    [[nodiscard]] result& rows() const noexcept { return rows_; }

private:
    inline static thread_local const transact_terms* current_ = nullptr;

    std::span<const std::string_view> changes_;
    result& rows_;
};

}  // namespace rowlock::sql

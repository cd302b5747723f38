#pragma once

#include "metrics/histogram.hpp"
#include "metrics/table.hpp"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace rowlock::metrics {

/// A label of a sample. One with an empty value is the same as none, and is left out.
struct label {
    std::string_view name;
    std::string_view value;  ///< any UTF-8: it is escaped
};

/// Writes Prometheus' text format 0.0.4.
class text {
public:
    /// What follows belongs to this metric, until the next call. Nothing is written without
    /// samples.
    void begin(const metric& what);
    void sample(std::initializer_list<label> labels, std::uint64_t value);
    void sample(std::initializer_list<label> labels, nanoseconds value);
    /// As buckets, sum and count.
    void sample(std::initializer_list<label> labels, const distribution& value);

    [[nodiscard]] const std::string& str() const noexcept { return text_; }

private:
    void line(std::string_view suffix, std::span<const label> labels, std::string_view less_equal,
              std::string_view value);

    std::string text_;
    metric now_{};
    bool headed_ = false;
};

}  // namespace rowlock::metrics

#pragma once

#include "cli/exit_code.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace rowlock::cli::serving {

/// Something that one thread reads for all that ask within a time; so is a failure. Thread-safe.
template <typename Value>
class shared_reading {
public:
    shared_reading(std::chrono::milliseconds lasts, std::function<Value()> read)
        : lasts_{lasts}, read_{std::move(read)} {}

    /// @throws what reading threw; failure `unreachable` if another thread has read for long
    [[nodiscard]] std::shared_ptr<const Value> get() {
        using clock = std::chrono::steady_clock;
        constexpr std::chrono::seconds patience{5};
        const std::unique_lock lock{mutex_, patience};
        if (!lock) throw failure{unreachable, "the database answers slowly: try again"};
        if (clock::now() >= stale_at_) {
            failed_ = nullptr;
            try {
                value_ = std::make_shared<const Value>(read_());
            } catch (...) {
                failed_ = std::current_exception();
            }
            stale_at_ = clock::now() + lasts_;
        }
        if (failed_) std::rethrow_exception(failed_);
        return value_;
    }

private:
    const std::chrono::milliseconds lasts_;
    const std::function<Value()> read_;
    std::timed_mutex mutex_{};
    std::shared_ptr<const Value> value_{};
    std::exception_ptr failed_{};
    std::chrono::steady_clock::time_point stale_at_{};
};

}  // namespace rowlock::cli::serving

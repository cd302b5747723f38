#pragma once

#include "cli/exit_code.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace rowlock::cli::serving {

/// Something that one thread reads for all that ask within a time; so is a failure. One reading at
/// a time, also of things with several names. Thread-safe.
template <typename Value>
class shared_reading {
public:
    shared_reading(std::chrono::milliseconds lasts, std::function<Value(const std::string&)> read)
        : lasts_{lasts}, read_{std::move(read)} {}

    /// @throws what reading threw; failure `unreachable` if another thread has read for long
    [[nodiscard]] std::shared_ptr<const Value> get(const std::string& name = {}) {
        constexpr std::chrono::seconds patience{5};
        const std::unique_lock lock{mutex_, patience};
        if (!lock) throw failure{unreachable, "the database answers slowly: try again"};
        std::erase_if(last_, [](const auto& each) { return clock::now() >= each.second.stale_at; });
        auto found = last_.find(name);
        if (found == last_.end()) {
            reading made;
            try {
                made.value = std::make_shared<const Value>(read_(name));
            } catch (...) {
                made.failed = std::current_exception();
            }
            made.stale_at = clock::now() + lasts_;
            found = last_.emplace(name, std::move(made)).first;
        }
        if (found->second.failed) std::rethrow_exception(found->second.failed);
        return found->second.value;
    }

private:
    using clock = std::chrono::steady_clock;

    struct reading {
        std::shared_ptr<const Value> value{};
        std::exception_ptr failed{};
        clock::time_point stale_at{};
    };

    const std::chrono::milliseconds lasts_;
    const std::function<Value(const std::string&)> read_;
    std::timed_mutex mutex_{};
    std::map<std::string, reading> last_{};
};

}  // namespace rowlock::cli::serving

#pragma once

#include "metrics/histogram.hpp"
#include <rowlock/events.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::metrics {

/// What a call acquires. A lease is exclusive.
enum class acquire_mode : unsigned char {
    exclusive,
    shared,
    upgradeable,
    upgrade,
    permits,
    several,
};
inline constexpr std::array<std::string_view, 6> mode_names{"exclusive", "shared",  "upgradeable",
                                                            "upgrade",   "permits", "several"};

/// How such a call ended. busy: its time was over, or its one attempt found the lock held.
enum class acquire_outcome : unsigned char { granted, busy, stopped, failed };
inline constexpr std::array<std::string_view, 4> outcome_names{"granted", "busy", "stopped",
                                                               "failed"};

namespace bounds {
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

/// From one round trip on the same machine to a wait that a person notices.
inline constexpr std::array<nanoseconds, 16> acquire{
    microseconds{250}, milliseconds{1},   microseconds{2500}, milliseconds{5},
    milliseconds{10},  milliseconds{25},  milliseconds{50},   milliseconds{100},
    milliseconds{250}, milliseconds{500}, seconds{1},         milliseconds{2500},
    seconds{5},        seconds{15},       seconds{60},        seconds{300}};
/// From a critical section to a nightly job.
inline constexpr std::array<nanoseconds, 13> hold{
    milliseconds{1}, milliseconds{5}, milliseconds{25}, milliseconds{100}, milliseconds{500},
    seconds{1},      seconds{5},      seconds{15},      minutes{1},        minutes{5},
    minutes{15},     hours{1},        hours{6}};
}  // namespace bounds

/// What a client measures of the locks of one class. Thread-safe, without locks.
class class_measurements {
public:
    static constexpr std::size_t reasons =
        static_cast<std::size_t>(loss_reason::release_requested) + 1;

    explicit class_measurements(std::string of) : name_{std::move(of)} {}

    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    void acquired(acquire_mode mode, acquire_outcome how, nanoseconds took) noexcept {
        acquires_[static_cast<std::size_t>(mode)][static_cast<std::size_t>(how)].observe(took);
    }
    void held(nanoseconds time) noexcept { holds_.observe(time); }
    void lost(loss_reason why) noexcept {
        losses_.at(static_cast<std::size_t>(why)).fetch_add(1, std::memory_order_relaxed);
    }

    [[nodiscard]] distribution acquires(acquire_mode mode, acquire_outcome how) const noexcept {
        return acquires_[static_cast<std::size_t>(mode)][static_cast<std::size_t>(how)].read();
    }
    [[nodiscard]] distribution holds() const noexcept { return holds_.read(); }
    [[nodiscard]] std::uint64_t losses(loss_reason why) const noexcept {
        return losses_.at(static_cast<std::size_t>(why)).load(std::memory_order_relaxed);
    }

private:
    const std::string name_;
    std::array<std::array<histogram<bounds::acquire>, outcome_names.size()>, mode_names.size()>
        acquires_{};
    histogram<bounds::hold> holds_{};
    std::array<std::atomic<std::uint64_t>, reasons> losses_{};
};

/// What a client measures, by class of name. Thread-safe; only a name of a new class takes a mutex.
class measurements {
public:
    using classifier = std::function<std::string(std::string_view)>;
    static constexpr std::size_t most_classes = 64;

    /// @param class_of may be empty: then all names are of one class, without a name
    explicit measurements(classifier class_of);

    /// Never fails: what cannot be classified is of the class "other".
    [[nodiscard]] class_measurements& of(const std::string& name) noexcept;

    /// Those that a name was of so far, "other" last.
    [[nodiscard]] std::vector<const class_measurements*> classes() const;
    [[nodiscard]] std::uint64_t losses() const noexcept;

private:
    class_measurements* find_or_add(std::string_view name);
    template <typename Use>
    void for_each_named(Use use) const;

    const classifier class_of_;
    std::array<std::atomic<class_measurements*>, most_classes> named_{};
    class_measurements other_;
    std::mutex adding_;
    std::vector<std::unique_ptr<class_measurements>> owned_;
};

}  // namespace rowlock::metrics

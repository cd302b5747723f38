#pragma once

#include <rowlock/error.hpp>

#include <chrono>
#include <optional>

namespace rowlock::detail {

/// Counts consecutive attempts that neither won nor found a holder. Contention ends in a winner, so
/// many of them are a fault.
class contention_limit {
public:
    void forget() noexcept { made_ = 0; }
    [[nodiscard]] int made() const noexcept { return made_; }

    /// Counts one more and returns the pause before the next: 0 for the first two.
    /// @throws error errc::database_error after the 25th
    [[nodiscard]] std::chrono::milliseconds count() {
        constexpr int too_many = 25;
        if (++made_ > too_many) {
            throw error{errc::database_error,
                        "the lock can be neither taken nor found held: round trips take longer "
                        "than ttl - margin (raise the ttl)"};
        }
        return std::chrono::milliseconds{made_ <= 2 ? 0 : 2 * made_};
    }

private:
    int made_ = 0;
};

/// How long a single attempt looks again that meets another client's sweep of what dead clients
/// hold. The sweep commits soon; a transaction that a dead holder has fenced may stay open.
class sweep_patience {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// Counts one more. Returns whether to look again: at least four times, and for 50 ms.
    [[nodiscard]] bool meet(time_point now) {
        ++met_;
        if (!since_) since_ = now;
        return met_ <= 4 || lasts(now);
    }
    /// Whether the attempt met a sweep for the first time less than 50 ms ago.
    [[nodiscard]] bool lasts(time_point now) const {
        return since_ && now - *since_ < std::chrono::milliseconds{50};
    }

private:
    int met_ = 0;
    std::optional<time_point> since_{};
};

/// Counts grants whose own deadline was over before the client learned of them.
class late_grant_limit {
public:
    /// @throws error errc::timed_out on the third
    void count() {
        ++came_;
        if (!often()) return;
        throw error{errc::timed_out,
                    "the lease's own deadline was over before the grant arrived, again and again: "
                    "let it last well longer than a round trip to the database"};
    }
    [[nodiscard]] bool often() const noexcept { return came_ >= 3; }

private:
    int came_ = 0;
};

/// Whether a wait may go on after this failure (when_cut_off::requeue).
inline bool may_be_outlasted(const error& failure) noexcept {
    return failure.retryable() || failure.kind() == errc::outcome_unknown ||
           failure.kind() == errc::read_only || failure.kind() == errc::lock_lost;
}

}  // namespace rowlock::detail

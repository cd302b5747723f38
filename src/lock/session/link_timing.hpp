#pragma once

#include "base/clock.hpp"
#include <rowlock/options.hpp>

#include <atomic>
#include <chrono>
#include <optional>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// When heartbeats are sent, over a link whose round trip was measured. No clock: the times are the
/// caller's. Thread-safe.
class link_timing {
public:
    struct settings {
        nanoseconds ttl;
        nanoseconds margin;
        nanoseconds heartbeat;  ///< the wanted period
    };
    explicit link_timing(const settings& of) : of_{of} {}

    /// Keeps the shortest recent one: a retransmitted answer says nothing about the next one.
    void note_round_trip(nanoseconds took) noexcept;
    /// 0: none was measured yet.
    [[nodiscard]] nanoseconds round_trip() const noexcept { return nanoseconds{round_trip_}; }

    /// Between two heartbeats. Half of the wanted period if a round trip takes more than a tenth of
    /// it: after a lost packet, which is resent after one or two round trips, there is still time
    /// for another heartbeat.
    [[nodiscard]] nanoseconds period() const noexcept;
    /// When the second heartbeat is due: after the answer to the first should have come. While the
    /// first has no connection, at most 50 ms after a heartbeat is due.
    /// @param last when the last confirmed heartbeat was sent
    [[nodiscard]] nanoseconds late_at(nanoseconds last, bool connected) const noexcept;
    /// When to open the heartbeat's connection for a session whose last heartbeat was sent at
    /// `last`. The first heartbeat of a new session is far away, so the connection opens soon after
    /// the session, not with it: a client that briefly takes one lock never needs it. On a slow
    /// link opening takes long and begins at once (nanoseconds::min()).
    [[nodiscard]] nanoseconds connect_at(nanoseconds last) const noexcept;
    /// After this many failures in a row. Short at first, then a quarter of the period: the trust
    /// window is running out, or other clients wait for leases we have lost.
    [[nodiscard]] nanoseconds pause_after(int failures) const noexcept;
    /// The ttl with which a lease survives a broken connection, if the present one is too short: a
    /// new connection must be opened, and used, within the trust window.
    /// @param opening how long opening a connection took
    [[nodiscard]] std::optional<nanoseconds> wanted_ttl(nanoseconds opening) const noexcept;

private:
    const settings of_;
    std::atomic<nanoseconds::rep> round_trip_{0};
};

}  // namespace rowlock::detail

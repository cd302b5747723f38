#pragma once

#include <rowlock/lease.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

namespace rowlock {

class client;

/// Ownership of several leases that were granted together (client::acquire_all). Releases all of
/// them when destroyed.
///
/// Each lease has its own fencing token, and may be lost by itself: by a forced release, or the
/// request for one. held() and lost() speak of all of them. Threads as for a lease.
class [[nodiscard]] multi_lease {
public:
    multi_lease() noexcept;  ///< holds nothing
    multi_lease(multi_lease&&) noexcept;
    multi_lease& operator=(multi_lease&&) noexcept;
    /// Releases the leases; failures are reported as events and retried in the background.
    ~multi_lease();

    /// The leases, in byte order of their names. Valid as long as this object is neither moved from
    /// nor destroyed.
    [[nodiscard]] std::span<const lease> leases() const noexcept;
    /// The lease of one name.
    /// @throws error errc::not_owner if this is none of its names
    [[nodiscard]] const lease& operator[](std::string_view name) const;
    [[nodiscard]] std::size_t size() const noexcept { return leases().size(); }

    /// Whether all of the leases are held; false if there is none. No round trip.
    [[nodiscard]] bool held() const noexcept;
    explicit operator bool() const noexcept { return held(); }
    /// How long held() stays true if no further heartbeat succeeds. No round trip.
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// Stopped when the first of the leases is lost.
    [[nodiscard]] std::stop_token lost() const;
    /// Stopped when another client asks for the first of them within a time:
    /// lease::release_requested().
    [[nodiscard]] std::stop_token release_requested() const;

    /// Frees all of the locks, those that no client waits for in one commit. Two round trips, and
    /// one or two for each lock with a waiter.
    /// @throws error as lease::release(); all of them are released all the same
    void release();

    /// Takes the leases apart: from now on each is released by itself. This object holds nothing
    /// then.
    [[nodiscard]] std::vector<lease> split() &&;

private:
    friend class client;
    struct state;
    explicit multi_lease(std::vector<lease> all);

    std::unique_ptr<state> state_;
};

}  // namespace rowlock

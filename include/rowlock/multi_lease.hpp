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

/// @addtogroup leases
/// @{

class client;
namespace detail {
struct modes_at_once;
}

/// Ownership of several locks that were granted together: leases (client::acquire_all), or modes of
/// shared_mutexes (acquire_all). Releases all of them when destroyed.
///
/// Each has its own fencing token, and may be lost by itself: by a forced release, or the request
/// for one. held() and lost() speak of all of them. Threads as for a lease.
template <typename Lease>
class [[nodiscard]] multi_hold {
public:
    multi_hold() noexcept;  ///< holds nothing
    /// `other` holds nothing then.
    multi_hold(multi_hold&&) noexcept;
    /// Releases what it held before, as the destructor does.
    multi_hold& operator=(multi_hold&&) noexcept;
    /// Releases the locks; failures are reported as events and retried in the background.
    ~multi_hold();

    /// The leases, in byte order of their names. Valid as long as this object is neither moved from
    /// nor destroyed.
    [[nodiscard]] std::span<const Lease> leases() const noexcept;
    /// The lease of one name.
    /// @throws error errc::not_owner if this is none of its names
    [[nodiscard]] const Lease& operator[](std::string_view name) const;
    /// How many there are.
    [[nodiscard]] std::size_t size() const noexcept { return leases().size(); }

    /// Whether all of the leases are held; false if there is none. No round trip.
    [[nodiscard]] bool held() const noexcept;
    explicit operator bool() const noexcept { return held(); }  ///< held()
    /// How long held() stays true if no further heartbeat succeeds. No round trip.
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// Stopped when the first of the leases is lost.
    [[nodiscard]] std::stop_token lost() const;
    /// Stopped when another client asks for the first of them within a time:
    /// lease::release_requested().
    [[nodiscard]] std::stop_token release_requested() const;

    /// Frees all of the locks. Leases that no client waits for in one commit: two round trips, and
    /// one or two for each with a waiter. Modes one after the other: mode_lease::release().
    /// @throws error as lease::release(); all of them are released all the same
    void release();

    /// Takes the leases apart: from now on each is released, upgraded or downgraded by itself. This
    /// object holds nothing then.
    [[nodiscard]] std::vector<Lease> split() &&;

private:
    friend class client;
    friend struct detail::modes_at_once;
    struct state;
    explicit multi_hold(std::vector<Lease> all);

    std::unique_ptr<state> state_;
};

/// Several leases: client::acquire_all().
using multi_lease = multi_hold<lease>;

/// @}

}  // namespace rowlock

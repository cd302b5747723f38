#pragma once

#include <rowlock/lease.hpp>
#include <rowlock/lock_mode.hpp>
#include <rowlock/lock_name.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup leases
/// @{

/// One of the locks that client::acquire_all() takes together, and what of it: all, as a lease has
/// it, or a part. `{"stock"}`, `{"prices", lock_mode::shared}`.
struct lock_request {
    /// Converts from any string, so that `locks.acquire_all({"from", "to"})` reads well.
    template <std::convertible_to<lock_name> Name>
    lock_request(Name&& name_, lock_mode mode_ = lock_mode::exclusive)  // NOLINT
        : name{std::forward<Name>(name_)}, mode{mode_} {}
    /// So many permits of a semaphore.
    [[nodiscard]] static lock_request of_semaphore(lock_name name, std::int64_t permits) {
        lock_request made{std::move(name)};
        made.permits = permits;
        return made;
    }

    lock_name name;                         ///< of the lock
    lock_mode mode;                         ///< in which to hold it
    std::optional<std::int64_t> permits{};  ///< of a semaphore, which has no mode
};

/// Ownership of several locks that were granted together (client::acquire_all). Releases all of
/// them when destroyed.
///
/// Each has its own fencing token, and may be lost by itself: by a forced release, or the request
/// for one. held() and lost() speak of all of them. Threads as for a lease.
class [[nodiscard]] multi_lease {
public:
    multi_lease() noexcept;  ///< holds nothing
    /// `other` holds nothing then.
    multi_lease(multi_lease&&) noexcept;
    /// Releases what it held before, as the destructor does.
    multi_lease& operator=(multi_lease&&) noexcept;
    /// Releases the locks; failures are reported as events and retried in the background.
    ~multi_lease();

    /// The leases, in byte order of their names: of whole locks, or of parts. Valid as long as this
    /// object is neither moved from nor destroyed.
    [[nodiscard]] std::span<const lease> leases() const noexcept;
    /// The lease of one name.
    /// @throws error errc::not_owner if this is none of its names
    [[nodiscard]] const lease& operator[](std::string_view name) const;
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

    /// Frees all of the locks. Whole locks that no client waits for in one commit: two round trips,
    /// and one or two for each other lease.
    /// @throws error as lease::release(); all of them are released all the same
    void release();

    /// Takes the leases apart: from now on each is released by itself; one that was acquired in a
    /// mode may become a mode_lease, which changes its mode. This object holds nothing then.
    [[nodiscard]] std::vector<lease> split() &&;

private:
    friend class client;
    struct state;
    explicit multi_lease(std::vector<lease> all);

    std::unique_ptr<state> state_;
};

/// @}

}  // namespace rowlock

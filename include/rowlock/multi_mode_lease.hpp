#pragma once

#include <rowlock/client.hpp>
#include <rowlock/lock_mode.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/multi_lease.hpp>
#include <rowlock/shared_mutex.hpp>
#include <rowlock/timeout.hpp>

#include <chrono>
#include <concepts>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup shared
/// @{

/// A shared_mutex, and the mode in which to hold it.
struct mode_request {
    lock_name name;                         ///< of the shared_mutex
    lock_mode mode = lock_mode::exclusive;  ///< to hold it in
};

/// Modes of several shared_mutexes that were granted together. To upgrade or downgrade one, split()
/// them.
using multi_mode_lease = multi_hold<mode_lease>;

namespace detail {
/// Acquires them; nullopt if `until` passes or a stop is requested first.
struct modes_at_once {
    static std::optional<multi_mode_lease> acquire(client& locks,
                                                   const std::vector<mode_request>& wanted,
                                                   std::chrono::steady_clock::time_point until,
                                                   const std::stop_token& stop,
                                                   const mode_options& options);
};
}  // namespace detail

/// Several shared_mutexes at once, 1 to 16, each in its own mode: all of them, or none; to read
/// some tables and change others, say:
///
///     auto both = rowlock::acquire_all(locks, {{"prices", rowlock::lock_mode::shared},
///                                              {"stock", rowlock::lock_mode::exclusive}});
///
/// As client::acquire_all for leases: in one commit if each is free for its mode and no client
/// waits for it, otherwise with one place in all of their queues. It never holds some of them while
/// it waits for others, so two such calls cannot wait for each other, whatever the order of the
/// names and the modes; no request behind it overtakes it, not even one whose mode would fit.
/// Readers have grants of their own (mode_options::reader_linger has no meaning). Two round trips
/// if they are free (three or four on MySQL/MariaDB and SQLite), and two more the first time that
/// names are used (there one, and one for each such name). Otherwise as shared_mutex::acquire().
/// @throws error errc::would_deadlock if this thread holds one of them already, in any mode;
/// errc::invalid_options for no name, a name given twice, more than 16, or the name of a lease or a
/// semaphore
[[nodiscard]] multi_mode_lease acquire_all(client& locks, const std::vector<mode_request>& wanted,
                                           const mode_options& options = {});
/// The same; empty if and only if `stop` was requested first.
template <std::same_as<std::stop_token> Stop>
[[nodiscard]] std::optional<multi_mode_lease> acquire_all(client& locks,
                                                          const std::vector<mode_request>& wanted,
                                                          const Stop& stop,
                                                          const mode_options& options = {}) {
    return detail::modes_at_once::acquire(
        locks, wanted, std::chrono::steady_clock::time_point::max(), stop, options);
}
/// One attempt; empty if another holder keeps one of them from its mode, or a caller waits for it.
[[nodiscard]] std::optional<multi_mode_lease> try_acquire_all(
    client& locks, const std::vector<mode_request>& wanted, const mode_options& options = {});
/// Waits up to `timeout`, or until `stop` is requested; as client::try_acquire_for.
template <typename Rep, typename Period>
[[nodiscard]] std::optional<multi_mode_lease> try_acquire_all_for(
    client& locks, const std::vector<mode_request>& wanted,
    const std::chrono::duration<Rep, Period>& timeout, const mode_options& options = {}) {
    return detail::modes_at_once::acquire(locks, wanted, detail::after(timeout), {}, options);
}
/// The same; empty also if `stop` was requested first.
template <typename Rep, typename Period, std::same_as<std::stop_token> Stop>
[[nodiscard]] std::optional<multi_mode_lease> try_acquire_all_for(
    client& locks, const std::vector<mode_request>& wanted,
    const std::chrono::duration<Rep, Period>& timeout, const Stop& stop,
    const mode_options& options = {}) {
    return detail::modes_at_once::acquire(locks, wanted, detail::after(timeout), stop, options);
}

/// @}

}  // namespace rowlock

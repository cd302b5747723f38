#pragma once

#include <rowlock/client.hpp>
#include <rowlock/timeout.hpp>

#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace rowlock {

/// @addtogroup watching
/// @{

/// Follows the holders of one lock, from client::watch():
///
///     auto changes = locks.watch("nightly");
///     while (const auto seen = changes.next(stop)) show(seen->holder);
///
/// It reads the state of the lock, and no messages: none can be missed, forged or late by more than
/// a poll. A holder that came and went between two polls is not seen; the latest one always is. For
/// people, monitoring, and clients that want to know who leads: what a watch returned may be
/// outdated, and is no reason to work without the lock. One thread at a time.
class [[nodiscard]] lock_watch {
public:
    /// `other` may only be destroyed or assigned to then.
    lock_watch(lock_watch&&) noexcept = default;
    /// Follows what `other` followed.
    lock_watch& operator=(lock_watch&&) noexcept = default;
    ~lock_watch() = default;

    /// The first call returns the state at once. Each further call returns as soon as the lock has
    /// another holder, or none, or its holder has changed its note (election: its value); not when
    /// the holder extends its lease. The holder is empty if the lock is free or its holder's
    /// session has expired; the token is that of the latest grant, 0 if there was none yet. Returns
    /// nullopt if and only if `stop` was requested. One round trip per poll; a poll that fails is
    /// repeated as retry_policy says.
    /// @throws error as client::inspect(); the watch goes on with the next call
    template <std::same_as<std::stop_token> Stop = std::stop_token>
    [[nodiscard]] std::optional<lease_info> next(Stop stop = {}) {
        return next_until(std::chrono::steady_clock::time_point::max(), stop);
    }
    /// The same; nullopt also if nothing changed within `timeout`.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<lease_info> next_for(
        const std::chrono::duration<Rep, Period>& timeout, const std::stop_token& stop = {}) {
        return next_until(detail::after(timeout), stop);
    }

private:
    friend class client;
    lock_watch(std::weak_ptr<detail::engine> of, lock_name name, const watch_options& options);

    std::optional<lease_info> next_until(std::chrono::steady_clock::time_point until,
                                         const std::stop_token& stop);

    std::weak_ptr<detail::engine> engine_;
    lock_name name_;
    watch_options options_;
    std::optional<lease_info> last_{};
};

/// @}

}  // namespace rowlock

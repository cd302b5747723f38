#pragma once

#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/retry_loop.hpp"
#include <rowlock/client.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/lock_name.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// The row of an expired holder names it until the lease is granted again or reaped.
[[nodiscard]] inline bool has_live_holder(const lease_info& seen) noexcept {
    return seen.holder && seen.holder->remaining > std::chrono::milliseconds{0};
}

/// What a client shows of leases, and does to those of other clients. Needs no session.
class lease_admin {
public:
    lease_admin(client_context& context, retry_loop& retries, client_waiters& waiting)
        : context_{context}, retries_{retries}, waiting_{waiting} {}

    bool is_locked(const lock_name& name);
    std::optional<lease_info> inspect(const lock_name& name);
    /// The same for a call that may wait until then; nullopt if a stop was requested.
    std::optional<std::optional<lease_info>> inspect(const lock_name& name,
                                                     std::chrono::steady_clock::time_point until,
                                                     const std::stop_token& stop);
    /// Returns false if a stop was requested.
    /// @throws error errc::lock_lost if the client was destroyed
    bool pause(nanoseconds time, const std::stop_token& stop);
    std::vector<lease_info> list(std::string_view prefix, const page& page);
    std::vector<waiter_info> waiters(const lock_name& name);
    std::optional<std::chrono::milliseconds> request_release(const lock_name& name,
                                                             fencing_token holder,
                                                             const request_options& options);
    bool force_release(const lock_name& name, std::optional<fencing_token> only);

private:
    template <typename Read>
    auto read(Read what);
    template <typename Change>
    auto change(const lock_name& name, const Change& what);

    client_context& context_;
    retry_loop& retries_;
    client_waiters& waiting_;
};

}  // namespace rowlock::detail

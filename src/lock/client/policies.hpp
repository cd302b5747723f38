#pragma once

#include "lock/protocol/policy/policy_protocol.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/retry_loop.hpp"
#include <rowlock/lock_name.hpp>

#include <chrono>
#include <optional>

namespace rowlock::detail {

/// What a client sets and shows of the policies of names; reapers apply them. Needs no session.
/// Thread-safe.
class policies {
public:
    policies(client_context& context, retry_loop& retries)
        : protocol_{context.statements}, context_{context}, retries_{retries} {}

    /// @throws error errc::invalid_options
    void set_max_hold(const lock_name& name, std::optional<std::chrono::milliseconds> limit);
    [[nodiscard]] std::optional<std::chrono::milliseconds> max_hold(const lock_name& name);

private:
    const protocol::policy_protocol protocol_;
    client_context& context_;
    retry_loop& retries_;
};

}  // namespace rowlock::detail

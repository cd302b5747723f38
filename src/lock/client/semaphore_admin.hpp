#pragma once

#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/retry_loop.hpp"
#include <rowlock/lock_name.hpp>
#include <rowlock/semaphore.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// What a client shows of semaphores and shared_mutexes, and how it changes them. Needs no session.
class semaphore_admin {
public:
    semaphore_admin(client_context& context, retry_loop& retries, client_waiters& waiting)
        : context_{context}, retries_{retries}, waiting_{waiting} {}

    void set_capacity(const lock_name& name, std::int64_t permits);
    bool create(const lock_name& name, std::int64_t permits);
    bool exists(const lock_name& name, protocol::counter_kind kind);
    std::optional<semaphore_info> inspect(const lock_name& name, protocol::counter_kind kind);
    std::vector<semaphore_info> list(std::string_view prefix, protocol::counter_kind kind,
                                     const page& page);
    std::vector<protocol::held_permits> holders(const lock_name& name, int limit);
    std::vector<permit_waiter> waiters(const lock_name& name);
    std::optional<std::chrono::milliseconds> request_release(const lock_name& name,
                                                             fencing_token holder,
                                                             const request_options& options);
    bool force_release(const lock_name& name, fencing_token holder);

private:
    template <typename Call>
    auto on_connection(Call call);
    template <typename Attempt>
    auto change(const lock_name& name, const Attempt& attempt);
    void take_back(sql::connection& db, const lock_name& name, sql::deadline until) noexcept;

    client_context& context_;
    retry_loop& retries_;
    client_waiters& waiting_;
};

}  // namespace rowlock::detail

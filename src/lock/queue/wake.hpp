#pragma once

#include "lock/session/client_context.hpp"
#include "lock/session/session_registry.hpp"
#include <rowlock/sql/connection.hpp>

namespace rowlock::detail {

/// Wakes the waiter that was served, if the granting statement did not and it is not one of ours. A
/// hint: if it is lost, a poll finds the grant. At most one round trip.
inline void wake(const client_context& context, const session_registry& sessions,
                 sql::connection& db, const protocol::handed_over& next,
                 sql::deadline until) noexcept {
    if (!sessions.current(next.session)) context.queues.notify_grantee(db, next, until);
}

}  // namespace rowlock::detail

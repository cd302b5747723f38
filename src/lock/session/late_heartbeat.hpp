#pragma once

#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/heartbeat.hpp"
#include "lock/session/reconciler.hpp"
#include "lock/session/session_registry.hpp"

#include <functional>

namespace rowlock::detail {

/// The second heartbeat: while the first is late, over a slow or lossy link, sends one on another
/// connection. Its own thread calls step().
class late_heartbeat {
public:
    /// @param on_doubt the session is to be compared with the database by the first heartbeat
    late_heartbeat(client_context& context, session_registry& sessions,
                   client_connections& connections, const reconciler& reconcile, heartbeat& first,
                   std::function<void()> on_doubt)
        : context_{context},
          sessions_{sessions},
          connections_{connections},
          reconciler_{reconcile},
          first_{first},
          on_doubt_{std::move(on_doubt)} {}

    /// Returns when the next step is due.
    nanoseconds step() noexcept;

private:
    [[nodiscard]] heartbeat::beaten beat(session& ours);
    [[nodiscard]] heartbeat::beaten beat_on_shared(session& ours, nanoseconds left,
                                                   sql::deadline patient, sql::deadline end);
    [[nodiscard]] bool none_idle_for_long();

    client_context& context_;
    session_registry& sessions_;
    client_connections& connections_;
    const reconciler& reconciler_;
    heartbeat& first_;
    const std::function<void()> on_doubt_;
    nanoseconds no_idle_since_{0};
};

}  // namespace rowlock::detail

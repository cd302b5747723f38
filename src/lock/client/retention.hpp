#pragma once

#include "base/worker.hpp"
#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/retained_leases.hpp"
#include "lock/session/session_keeper.hpp"
#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace rowlock::detail {

/// Keeps leases after their release (client_options::retain): what retained_leases decides, in the
/// database. A thread of its own, from the first lease kept on, gives back those that are recalled
/// or whose time is up. Thread-safe.
class retention {
public:
    using grants = std::span<const std::shared_ptr<grant>>;

    /// @param release releases grants, and does not throw
    retention(client_context& context, client_connections& connections, session_keeper& keeper,
              grant_lifecycle& lifecycle, client_waiters& waiting,
              std::function<void(grants)> release);
    retention(const retention&) = delete;
    retention& operator=(const retention&) = delete;
    ~retention() = default;

    /// A retained lease, held by this thread, or whether another thread of this client uses it. No
    /// round trip.
    /// @param thread of this thread, for deadlock detection
    retained_leases::taken take(const lock_name& name, const std::string& thread,
                                const acquire_options& options,
                                std::chrono::steady_clock::time_point until,
                                const std::stop_token& stop);
    /// Keeps a lease that is `releasing`, in the place of a release: without a round trip, or by
    /// one that reserves tokens. Returns false if it is to be released.
    bool keep(grant& held) noexcept;
    /// Keeps no further lease, and allows the thread no further step.
    void begin_stop() noexcept;
    /// Waits for the running step.
    void join() noexcept;

private:
    bool reserve(grant& held);
    void start();
    void poke();
    nanoseconds step() noexcept;
    void check_soon(const std::string& name) noexcept;
    void give_back(grants all, bool& failing) noexcept;
    bool name_holder(const grant& held) noexcept;
    void recall_waited();

    client_context& context_;
    client_connections& connections_;
    session_keeper& keeper_;
    grant_lifecycle& lifecycle_;
    client_waiters& waiting_;
    const std::function<void(grants)> release_;
    const retained_leases::successor succeed_;
    std::mutex mutex_;
    std::unique_ptr<base::worker> worker_;
    std::atomic<bool> stopping_{false};
    struct fresh_name {
        std::string name;
        nanoseconds at;
    };
    /// Names whose tokens were just reserved, to be checked for waiters then, in order of time.
    /// Guarded by the mutex.
    std::vector<fresh_name> fresh_{};
    nanoseconds check_at_{base::alarm::never};
};

}  // namespace rowlock::detail

#pragma once

#include "base/worker.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/heartbeat.hpp"
#include "lock/session/late_heartbeat.hpp"
#include "lock/session/reconciler.hpp"
#include "lock/session/session_registry.hpp"

#include <functional>
#include <memory>
#include <mutex>

namespace rowlock::detail {

/// The threads that keep a client's sessions alive: the heartbeat, a second heartbeat from the
/// first late one on, the watchdog, which closes the trust window without a network, and the reaper
/// on request. Thread-safe.
class session_keeper {
public:
    /// @param also done behind each heartbeat
    /// @param reaper one step of the reaper's thread, or empty
    session_keeper(client_context& context, session_registry& sessions,
                   client_connections& connections, grant_lifecycle& grants, reconciler& reconcile,
                   waiters& waiting, heartbeat::chore also, std::function<nanoseconds()> reaper);

    /// Starts all threads or none, unless they run.
    /// @throws error errc::out_of_resources; errc::lock_lost after stop()
    void start();
    /// A session was opened: all threads look at it.
    void look_at_session() noexcept;
    /// Makes the next step of the heartbeat due now.
    void poke() const noexcept;
    /// A deadline was added.
    void poke_watchdog() const noexcept;
    /// A turn on the shared connection may have read a notification to the session.
    void turn_passed() noexcept;
    /// Has the session compared with the database, at once.
    void reconcile_now() noexcept;

    /// Where the client is notified (PostgreSQL).
    [[nodiscard]] wakeup::listening_connection& listening() noexcept { return listening_; }
    [[nodiscard]] const wakeup::listening_connection& listening() const noexcept {
        return listening_;
    }
    [[nodiscard]] heartbeat& beats() noexcept { return heartbeat_; }
    [[nodiscard]] const heartbeat& beats() const noexcept { return heartbeat_; }
    /// Sends a heartbeat on the connection of a call, whose statements may be what delays the
    /// second heartbeat, if one is late.
    void beat_if_late(session& ours, sql::connection& db, sql::deadline until);

    /// No step begins any more, and none of a heartbeat runs. The reaper's, on which no lease
    /// depends, may run until this object is destroyed.
    void begin_stop() noexcept;
    void finish_stop() noexcept;
    void join_reaper() noexcept;

private:
    nanoseconds watch() noexcept;
    [[nodiscard]] nanoseconds watch_deadlines(nanoseconds now);
    [[nodiscard]] nanoseconds start_second_heartbeat(const session& ours, nanoseconds now) noexcept;
    void began_to_listen() noexcept;
    [[nodiscard]] bool is_started() const;

    client_context& context_;
    session_registry& sessions_;
    grant_lifecycle& grants_;
    reconciler& reconciler_;
    waiters& waiting_;
    const std::function<nanoseconds()> reap_;
    wakeup::listening_connection listening_;
    heartbeat heartbeat_;
    late_heartbeat late_;

    struct threads {
        std::unique_ptr<base::worker> heartbeat{};
        std::unique_ptr<base::worker> second_heartbeat{};  ///< from the first late heartbeat on
        std::unique_ptr<base::worker> watchdog{};
        std::unique_ptr<base::worker> reaper{};
    };
    mutable std::mutex mutex_;
    bool stopped_ = false;
    threads threads_;
    threads stopping_;  ///< used by the thread that closes the client alone
};

}  // namespace rowlock::detail

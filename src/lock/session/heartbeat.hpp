#pragma once

#include "base/worker.hpp"
#include "lock/session/change_listener.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/reconciler.hpp"
#include "lock/session/session_registry.hpp"
#include "lock/session/waiters.hpp"
#include <rowlock/ids.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// Keeps the current session alive: sends its heartbeats on a connection of its own, and what needs
/// a live session behind them (reconciler, sessions that are to be ended). One thread calls step()
/// and the ears; send() and accept() are for all threads.
class heartbeat {
public:
    /// `again`: the session is lost, or its revision moved, and the next heartbeat is due at once.
    /// `later`: the waiters must first find out which grant a row belongs to.
    enum class beaten : unsigned char { confirmed, again, later };

    /// What is done behind a heartbeat, or without a session, beside the reconciler's work.
    struct chore {
        std::function<nanoseconds()> due;
        std::function<void(sql::connection&, sql::deadline)> run;  ///< must not throw
    };

    heartbeat(client_context& context, session_registry& sessions, client_connections& connections,
              reconciler& reconcile, waiters& waiting, wakeup::listening_connection& listening,
              chore also)
        : context_{context},
          sessions_{sessions},
          connections_{connections},
          reconciler_{reconcile},
          waiting_{waiting},
          also_{std::move(also)},
          listener_{context, waiting, listening} {}

    /// Sends a heartbeat if one is due. Returns when the next step is due.
    nanoseconds step() noexcept;
    /// Ends the thread's sleep on what notifies the session. They keep the session alive while its
    /// mailbox is polled, so that its descriptor is not reused.
    [[nodiscard]] base::worker::listener listener();

    /// Sends a heartbeat on any connection; one to three round trips. Threads may call it
    /// concurrently: heartbeats only move the expiry forward.
    beaten send(session& ours, sql::connection& db, sql::deadline until);
    /// See change_listener::accept().
    [[nodiscard]] bool accept(session& ours, std::string_view message) const {
        return listener_.accept(ours, message);
    }
    /// See change_listener::turn_passed().
    void turn_passed() noexcept { listener_.turn_passed(); }

    [[nodiscard]] bool is_connected() const noexcept { return connected_; }
    /// When the second heartbeat of a session is due.
    [[nodiscard]] nanoseconds late_at(const session& ours) const noexcept {
        return context_.link.late_at(ours.last_beat(), connected_);
    }
    /// Counts and reports a heartbeat that failed.
    void report_failure(const session& ours, const std::exception& failure) noexcept;

    // For the thread that closes the client, when step() is not called any more.
    /// The heartbeat's connection, opened if there is none.
    sql::connection& connection(sql::deadline until);
    /// Uses an idle connection of a client whose heartbeat never connected.
    void adopt_idle_connection();
    [[nodiscard]] bool is_stale() const noexcept;
    void drop_connection() noexcept;
    /// Ends sessions that we no longer trust but that may still live in the database, as soon as
    /// permitted, so that no waiter has to wait for their ttl. Returns those that it ended.
    std::vector<session_id> end_lost_sessions(sql::deadline until);

private:
    nanoseconds beat(session& ours);
    [[nodiscard]] bool is_due(const session& ours, nanoseconds now) const;
    [[nodiscard]] sql::deadline deadline_for(const session& ours) const;
    beaten after_refusal(session& ours, sql::connection& db, sql::deadline until);
    void wait_briefly_for_rows(sql::deadline until);
    void after_beat(session& ours, sql::deadline until);
    nanoseconds after_failure(session& ours, const std::exception& failure) noexcept;
    [[nodiscard]] nanoseconds pause_after_failure() noexcept;
    void note_connected() noexcept;
    void warn_of_short_ttl(nanoseconds opening) noexcept;

    client_context& context_;
    session_registry& sessions_;
    client_connections& connections_;
    reconciler& reconciler_;
    waiters& waiting_;
    const chore also_;
    change_listener listener_;
    std::atomic<bool> connected_{false};
    // Used by the heartbeat's thread alone.
    std::unique_ptr<sql::connection> db_;
    bool was_connected_ = false;
    bool has_short_timeout_ = false;  ///< db_ has a short lock timeout
    int failures_ = 0;
    bool warned_of_ttl_ = false;
};

}  // namespace rowlock::detail

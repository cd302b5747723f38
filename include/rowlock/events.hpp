#pragma once

#include <rowlock/fencing_token.hpp>
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace rowlock {

/// @addtogroup watching
/// @{

/// Why a lease ended without its holder's release. After trust_window_passed, deadline_passed and
/// server_changed its holder has a margin (lease.hpp).
enum class loss_reason : unsigned char {
    none,                 ///< not lost
    trust_window_passed,  ///< no heartbeat was confirmed in time; the database may agree or not
    session_ended,        ///< another client found our session expired and ended it
    forced_release,       ///< the row is no longer ours: an operator broke the lock or changed
                          ///< the row by hand, or a server crash lost the grant (right after a
                          ///< hand-over, or without durable commits)
    deadline_passed,      ///< the lease's own fixed deadline
    client_closed,        ///< the client object was destroyed; the lease is free at once
    connection_lost,      ///< the connection that held an advisory lock broke, or its server is no
                          ///< longer the primary
    server_changed,       ///< a different server answers than the one that opened our session, as
                          ///< after a promotion: it may not know all grants of its predecessor
    release_requested,  ///< another client called client::request_release, as `rowlock break` does,
                        ///< or a reaper asked (client::set_max_hold): stop, then release or destroy
                        ///< the lease
};
/// The name of the enumerator, such as "session_ended".
[[nodiscard]] std::string_view to_string(loss_reason why) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, loss_reason why);

/// What an event is about.
enum class event_kind : unsigned char {
    session_opened,     ///< the client has a session from now on
    session_ended,      ///< ours: closed, expired or ended by another client
    waiting,            ///< a queue entry was made, or its position changed; see `position`; or
                        ///< none can be made now, and `message` says why
    lease_acquired,     ///< `waited`: how long it took
    lease_released,     ///< by its holder
    lease_lost,         ///< `reason` says why
    heartbeat_late,     ///< confirmed after more than one and a half periods
    heartbeat_failed,   ///< not confirmed; retried until the trust window ends
    ttl_short,          ///< the link is too slow for the ttl: a connection that breaks could not be
                        ///< replaced in time; `message` says what was measured, and what to set
    reconnected,        ///< a connection was replaced
    outcome_unknown,    ///< an acquire or release whose reply was lost; being resolved
    resolved,           ///< that outcome is known now
    unlock_failed,      ///< a noexcept unlock() or destructor failed; `message` says why
    reaped,             ///< `message` holds the counts
    advisory_locked,    ///< by the call that asked for it
    advisory_unlocked,  ///< by its holder
    advisory_lost,  ///< `reason` says why: connection_lost, trust_window_passed, client_closed, or
                    ///< forced_release if the server denies a lock we never released
    release_requested,  ///< another client has asked for a lock within a time; `message` says who,
                        ///< and why
    queue_entry_lost,   ///< a waiter's session and queue entry ended: the waiter goes to the end of
                        ///< the queue; see when_cut_off
    events_dropped,     ///< the callback was too slow; `message` says how many were dropped
};
/// The name of the enumerator, such as "lease_acquired".
[[nodiscard]] std::string_view to_string(event_kind kind) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, event_kind kind);

/// A background event.
struct event {
    event_kind kind{};                       ///< what happened
    std::string name{};                      ///< the lock, or empty
    fencing_token token{};                   ///< of the lease concerned, or 0
    loss_reason reason = loss_reason::none;  ///< for lease_lost and advisory_lost
    session_id session{};                    ///< id of our session, or 0
    std::int64_t position = 0;               ///< in the queue, 1 = next; 0: none, or not known yet
    std::chrono::microseconds waited{0};  ///< since the call began, for lease_acquired and waiting
    std::string message{};                ///< for people; never credentials
};

/// Called on a thread of its own, one event at a time, in order. If it blocks, later events queue
/// up (1 024, then the oldest are dropped and counted); nothing else waits for it. If it throws,
/// the exception is dropped.
using event_callback = std::function<void(const event&)>;

/// @}

}  // namespace rowlock

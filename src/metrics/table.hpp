#pragma once

#include "metrics/counters.hpp"
#include <rowlock/stats.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

/// Every metric: its name, type, labels, unit and help are said here and nowhere else. Tests
/// compare docs/metrics.md, and the names in monitoring/, with this table.
namespace rowlock::metrics {

enum class type : unsigned char { counter, gauge, histogram };

[[nodiscard]] constexpr std::string_view name_of(type which) noexcept {
    constexpr std::array<std::string_view, 3> names{"counter", "gauge", "histogram"};
    return names.at(static_cast<std::size_t>(which));
}

struct metric {
    std::string_view name;
    type is;
    std::string_view labels;  ///< their names, for people
    std::string_view unit;
    std::string_view help;
};

// --- of a client: metrics::prometheus()

/// A number of client_stats.
struct client_number {
    metric is;
    std::uint64_t client_stats::*member = nullptr;
    std::optional<detail::counter> from;  ///< what counts it; none: it is read when it is asked for
};

inline constexpr std::array client_numbers{
    client_number{{"rowlock_client_grants_total", type::counter, "", "grants", "Grants received."},
                  &client_stats::acquired,
                  detail::counter::acquired},
    client_number{{"rowlock_client_busy_total", type::counter, "", "attempts",
                   "Attempts that found the lock held."},
                  &client_stats::busy,
                  detail::counter::busy},
    client_number{{"rowlock_client_releases_total", type::counter, "", "grants",
                   "Grants that their holder released."},
                  &client_stats::released,
                  detail::counter::released},
    client_number{{"rowlock_client_heartbeats_total", type::counter, "", "heartbeats",
                   "Heartbeats that the database confirmed."},
                  &client_stats::heartbeats,
                  detail::counter::heartbeats},
    client_number{{"rowlock_client_heartbeat_failures_total", type::counter, "", "heartbeats",
                   "Heartbeats that were not confirmed."},
                  &client_stats::heartbeat_failures,
                  detail::counter::heartbeat_failures},
    client_number{{"rowlock_client_reconnects_total", type::counter, "", "connections",
                   "Broken connections found, and renewals by the heartbeat."},
                  &client_stats::reconnects,
                  detail::counter::reconnects},
    client_number{{"rowlock_client_retries_total", type::counter, "", "calls",
                   "Calls repeated after a retryable error."},
                  &client_stats::retries,
                  detail::counter::retries},
    client_number{{"rowlock_client_sessions_total", type::counter, "", "sessions",
                   "Sessions opened: more than one if sessions were lost."},
                  &client_stats::sessions,
                  detail::counter::sessions},
    client_number{{"rowlock_client_unknown_outcomes_total", type::counter, "", "calls",
                   "Acquires and releases whose reply was lost."},
                  &client_stats::unknown_outcomes,
                  detail::counter::unknown_outcomes},
    client_number{
        {"rowlock_client_queued_total", type::counter, "", "entries", "Queue entries made."},
        &client_stats::queued,
        detail::counter::queued},
    client_number{{"rowlock_client_handed_over_total", type::counter, "", "grants",
                   "Grants received in a queue; part of rowlock_client_grants_total."},
                  &client_stats::handed_over,
                  detail::counter::handed_over},
    client_number{{"rowlock_client_wake_ups_total", type::counter, "", "messages",
                   "Notifications of a waiter's grant."},
                  &client_stats::wake_ups,
                  detail::counter::wake_ups},
    client_number{{"rowlock_client_polls_total", type::counter, "", "statements",
                   "Reads of all queue entries of the client."},
                  &client_stats::polls,
                  detail::counter::polls},
    client_number{
        {"rowlock_client_cancelled_total", type::counter, "", "entries", "Queue entries given up."},
        &client_stats::cancelled,
        detail::counter::cancelled},
    client_number{{"rowlock_client_deadlocks_total", type::counter, "", "entries",
                   "Queue entries given up because of a cycle of waiters."},
                  &client_stats::deadlocks,
                  detail::counter::deadlocks},
    client_number{{"rowlock_client_waiting", type::gauge, "", "threads", "Threads in queues now."},
                  &client_stats::waiting,
                  {}},
    client_number{{"rowlock_client_held", type::gauge, "", "grants", "Grants held now."},
                  &client_stats::held,
                  {}},
    client_number{{"rowlock_client_unresolved", type::gauge, "", "grants",
                   "Acquires and releases whose outcome is not known now."},
                  &client_stats::unresolved,
                  {}},
    client_number{{"rowlock_client_connections", type::gauge, "", "connections",
                   "Connections that are open now, including the heartbeat's."},
                  &client_stats::connections,
                  {}}};

inline constexpr metric client_lost{
    "rowlock_client_lost_total", type::counter, "reason, class", "grants",
    "Grants that ended without their holder's release, by rowlock::loss_reason."};
inline constexpr metric client_acquire_seconds{"rowlock_client_acquire_seconds", type::histogram,
                                               "mode, outcome, class", "seconds",
                                               "Duration of acquire calls, waits included."};
inline constexpr metric client_hold_seconds{"rowlock_client_hold_seconds", type::histogram, "class",
                                            "seconds", "From a grant to its release or loss."};
inline constexpr metric client_heartbeat_age{
    "rowlock_client_heartbeat_age_seconds", type::gauge, "", "seconds",
    "Since the last confirmed heartbeat was sent; absent without a session."};
inline constexpr metric client_trust_remaining{
    "rowlock_client_trust_remaining_seconds", type::gauge, "", "seconds",
    "Until the trust window closes if no heartbeat is confirmed; absent without a session."};

// --- of a database: `rowlock metrics`

inline constexpr metric database_held{
    "rowlock_database_held", type::gauge, "kind", "holds",
    "Leases, and holds of semaphores and shared_mutexes, whose session is alive."};
inline constexpr metric database_expired{
    "rowlock_database_expired", type::gauge, "kind", "holds",
    "Holds whose session or deadline is over, but that keep others out until a client or a reaper "
    "ends them."};
inline constexpr metric database_waiting{"rowlock_database_waiting", type::gauge, "kind", "entries",
                                         "Queue entries of live sessions."};
inline constexpr metric database_dead_entries{
    "rowlock_database_dead_entries", type::gauge, "kind", "entries",
    "Queue entries of sessions that are over. They block no waiter; a reaper deletes them."};
inline constexpr metric database_oldest_wait{
    "rowlock_database_oldest_wait_seconds", type::gauge, "kind", "seconds",
    "How long the longest waiter has waited; 0 if there is none."};
inline constexpr metric database_names{
    "rowlock_database_names", type::gauge, "kind", "names",
    "Names that the tables know: leases, held or free, semaphores and shared_mutexes."};
inline constexpr metric database_permits{"rowlock_database_permits", type::gauge, "", "permits",
                                         "Capacity of all semaphores together."};
inline constexpr metric database_permits_used{"rowlock_database_permits_used", type::gauge, "",
                                              "permits",
                                              "Permits of all semaphores that live holders have."};
inline constexpr metric database_sessions{
    "rowlock_database_sessions", type::gauge, "state", "sessions",
    "Sessions that are live, expired (over, but not ended yet) or ended."};
inline constexpr metric database_oldest_expired{
    "rowlock_database_oldest_expired_session_seconds", type::gauge, "", "seconds",
    "How long ago the first of the expired sessions expired; 0 if there is none. It grows if no "
    "reaper runs."};
inline constexpr metric database_reaper_age{
    "rowlock_database_reaper_round_age_seconds", type::gauge, "", "seconds",
    "Since a reaper last ended a round; absent if none has."};
inline constexpr metric database_notification_queue{
    "rowlock_database_notification_queue_ratio", type::gauge, "", "ratio",
    "How full PostgreSQL's queue of notifications is, from 0 to 1. Above 0.01 waiters poll."};
inline constexpr metric database_oldest_transaction{
    "rowlock_database_oldest_transaction_seconds", type::gauge, "database, role", "seconds",
    "Age of the oldest transaction in any database of the PostgreSQL server; absent if there is "
    "none. If the queue of notifications grows, it is most likely the one that keeps it."};
inline constexpr metric database_doctor{"rowlock_database_doctor_verdict", type::gauge, "check",
                                        "verdict",
                                        "What `rowlock doctor` finds: 0 ok, 1 warn, 2 fail."};

/// All of them, in the order of docs/metrics.md.
[[nodiscard]] std::vector<metric> all_metrics();

}  // namespace rowlock::metrics

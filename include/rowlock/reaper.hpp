#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace rowlock {

/// @addtogroup upkeep
/// @{

/// Options of a reaper, in a client or for reap(). No time is longer than 3660 days.
struct reaper_options {
    /// Between two rounds of a reaper thread. Housekeeping only: no client waits for it.
    std::chrono::milliseconds interval{std::chrono::seconds{60}};
    /// A free lease row that was not touched for this long is deleted. A day keeps the last token
    /// of a nightly job visible. At least ten times statement_timeout, so that no statement that
    /// saw the row can still be running.
    std::chrono::milliseconds retention{std::chrono::hours{24}};
    /// Between raising the token floor over the rows to delete and deleting them: longer than a
    /// client's statement_timeout, at most one minute; at least twice this one's statement_timeout.
    std::chrono::milliseconds grace{std::chrono::minutes{2}};
    /// History records (rowlock/history.hpp) older than this are deleted, if a history exists and
    /// this user has the right. A week: on Monday one can still ask about Saturday night. A record
    /// takes about 200 bytes; a grant with its release makes two. 0 keeps them forever.
    std::chrono::milliseconds history_retention{std::chrono::hours{24 * 7}};
    /// Rows per transaction: small enough that no client waits noticeably. 1 to 100 000.
    int batch = 500;
    /// For the reaper's own statements. Up to one minute.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// Called before each step of a round, with what it does, such as "freeing leases": for a
    /// progress display. From the thread that makes the round. It must not throw.
    std::function<void(std::string_view doing)> on_step = {};
};

/// What one round did.
struct reap_report {
    std::int64_t sessions_ended = 0;  ///< expired ones, now ended
    std::int64_t releases_requested =
        0;  ///< of what was held longer than client::set_max_hold allows
    std::int64_t leases_handed_over = 0;  ///< how many waiters were served, for permits as well
    std::int64_t leases_freed = 0;        ///< of ended sessions or past their deadline
    std::int64_t waiters_removed = 0;     ///< of ended sessions
    std::int64_t permits_returned = 0;    ///< of ended sessions or past their deadline
    std::int64_t counters_corrected = 0;  ///< of semaphores: they were not the sum of their holds
    std::int64_t sessions_deleted = 0;    ///< ended and referenced by nothing
    std::int64_t leases_deleted = 0;      ///< idle past retention, under the settled token floor
    std::int64_t leases_pending = 0;      ///< idle past retention, to be deleted after the grace
    std::int64_t rounds_deleted = 0;      ///< of latches and barriers, over past retention
    std::int64_t history_deleted = 0;     ///< records of the history past their retention

    friend bool operator==(const reap_report&, const reap_report&) = default;  ///< by all counts
};
/// One line for people.
[[nodiscard]] std::string to_string(const reap_report& report);
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const reap_report& report);

/// One round on a connection of its own, all batches. Housekeeping: correctness never depends on
/// it, several may run at once, and rows that a holder keeps locked are skipped. It scans the
/// leases in pieces of a few milliseconds and pauses equally long between them. Round trips: a few
/// per batch.
/// @throws error errc::invalid_options, database_unreachable, schema_outdated …
reap_report reap(const sql::connection_source& source, const reaper_options& options = {});

/// @}

}  // namespace rowlock

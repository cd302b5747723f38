#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace rowlock {

struct reaper_options {
    /// Between two rounds of a reaper thread. Housekeeping only: nobody waits for it.
    std::chrono::milliseconds interval{std::chrono::seconds{60}};
    /// A free lease row that nobody touched for so long is deleted. A day keeps the last token of a
    /// nightly job in sight. At least ten statement deadlines, so that no statement that saw the
    /// row can still be running.
    std::chrono::milliseconds retention{std::chrono::hours{24}};
    /// Between raising the token floor over the rows to delete and deleting them: longer than any
    /// statement of any client can run. Statement deadlines are capped at one minute.
    std::chrono::milliseconds grace{std::chrono::minutes{2}};
    /// Records of the history (rowlock/history.hpp) that are older are deleted, where there is one
    /// and this user may. A week: what happened on a Saturday night is asked about on a Monday. A
    /// record takes about 200 bytes, and a grant with its release two of them. 0 keeps them for
    /// ever.
    std::chrono::milliseconds history_retention{std::chrono::hours{24 * 7}};
    /// Rows per transaction: small enough that nobody waits for one.
    int batch = 500;
    /// Of the reaper's own statements.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// The tables' names, as in client_options.
    std::string schema = {};
    std::string prefix = "rowlock_";
};

/// What one round did.
struct reap_report {
    std::int64_t sessions_ended = 0;      ///< expired ones, now ended
    std::int64_t leases_handed_over = 0;  ///< free ones, given to their first waiter
    std::int64_t leases_freed = 0;        ///< of ended sessions or past their deadline
    std::int64_t waiters_removed = 0;     ///< of ended sessions
    std::int64_t sessions_deleted = 0;    ///< ended and referenced by nothing
    std::int64_t leases_deleted = 0;      ///< idle past retention, under the settled token floor
    std::int64_t leases_pending = 0;      ///< idle past retention, to be deleted after the grace
    std::int64_t history_deleted = 0;     ///< records of the history past their retention

    friend bool operator==(const reap_report&, const reap_report&) = default;
};
[[nodiscard]] std::string to_string(const reap_report& report);

/// One round on a connection of its own, all batches. Housekeeping: correctness never depends on
/// it, several may run at once, and rows a holder keeps locked are skipped. It goes over the leases
/// in pieces of some milliseconds and rests as long between them. Round trips: some for each batch.
/// @throws error errc::invalid_options, database_unreachable, schema_outdated …
reap_report reap(const sql::connection_source& source, const reaper_options& options = {});

}  // namespace rowlock

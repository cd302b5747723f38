#pragma once

#include "sql/statements.hpp"
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace rowlock::metrics {

/// Of all locks of one kind.
struct kind_totals {
    std::int64_t names = 0;
    std::int64_t held = 0;
    std::int64_t expired = 0;  ///< over, and not ended yet
    std::int64_t waiting = 0;
    std::int64_t dead_entries = 0;
    std::chrono::microseconds oldest_wait{0};
};

/// PostgreSQL's queue of notifications, which is one for all databases of a server. LISTEN reads
/// all of it; when it is full, every commit that notifies fails.
struct notification_totals {
    std::int64_t millionths = 0;  ///< of its size
    /// The oldest transaction of another client, in any database.
    struct transaction {
        std::int64_t process = 0;
        std::string database{}, role{};
        std::chrono::microseconds age{0};
    };
    std::optional<transaction> oldest{};  ///< none, or none that this role may see
};

/// @throws error errc::unsupported where the database does not notify
[[nodiscard]] notification_totals read_notifications(sql::connection& db,
                                                     const sql::statement_set& statements,
                                                     sql::deadline until);

/// What the tables show at this moment.
struct database_totals {
    kind_totals leases, semaphores, shared_mutexes;
    std::int64_t permits = 0, permits_used = 0;
    std::int64_t live_sessions = 0, expired_sessions = 0, ended_sessions = 0;
    std::chrono::microseconds oldest_expired_session{0};
    std::optional<std::chrono::microseconds>
        reaper_age{};  ///< since the last round; none: no round yet
    std::optional<notification_totals>
        notifications{};  ///< PostgreSQL, unless it is forbidden to this role
};

/// Reads the queues alone. One round trip.
/// @param db of our own (session_protocol::set_up): the statements compare with its clock
void read_queues(database_totals& into, sql::connection& db, const sql::statement_set& statements,
                 sql::deadline until);
/// Five round trips. Each reads tables from end to end.
[[nodiscard]] database_totals read_totals(sql::connection& db, const sql::statement_set& statements,
                                          sql::deadline until);

/// All metrics of a database but the doctor's, in Prometheus' text format.
[[nodiscard]] std::string to_text(const database_totals& all);

}  // namespace rowlock::metrics

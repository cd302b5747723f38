#pragma once

#include "lock/protocol/queue/queue_protocol.hpp"
#include "sql/statements.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

/// What an election asks of a lease and its queue, besides what any lease is asked. Like
/// lease_protocol: no state, no retries; the clock is the database's.
namespace rowlock::protocol {

/// A queue entry, with what a hand-over to it needs.
struct candidate {
    next_waiter entry;
    std::int64_t priority = 0;
    grant_id heir{};  ///< of this election: the candidate that was chosen last
};

/// Thread-safe.
class election_protocol {
public:
    explicit election_protocol(const sql::statement_set& statements);

    /// The candidate that is to lead next, or the first of one session. One round trip.
    [[nodiscard]] std::optional<candidate> next(sql::connection& db, std::string_view name,
                                                std::optional<session_id> of,
                                                sql::deadline until) const;
    /// Changes the note of a grant. Returns whether a row was changed: MySQL does not count a row
    /// that had this note. One round trip; repeatable.
    [[nodiscard]] bool proclaim(sql::connection& db, std::string_view name, session_id session,
                                grant_id grant_id, std::string_view note,
                                sql::deadline until) const;
    /// Says that this grant is about to step down for a candidate. Returns whether a row was
    /// changed, as above. One round trip; repeatable.
    [[nodiscard]] bool choose_heir(sql::connection& db, std::string_view name, session_id session,
                                   grant_id grant_id, rowlock::grant_id heir,
                                   sql::deadline until) const;

private:
    const sql::statement candidate_, proclaim_, choose_heir_;
};

}  // namespace rowlock::protocol

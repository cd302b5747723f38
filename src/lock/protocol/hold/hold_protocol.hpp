#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace rowlock::protocol {

/// What a client expects of a grant that it releases. A wrong hint costs a round trip or two.
struct release_hint {
    bool contended = false;    ///< waiters are to be expected
    std::int64_t permits = 0;  ///< as granted; 0: unknown
};

/// A row of a session: a hold, or the upgrade of one.
struct session_hold {
    session_lease row;
    bool part = false;             ///< as hold_key has it
    rowlock::grant_id upgrades{};  ///< it is the upgrade of this hold

    [[nodiscard]] hold_key key(session_id session) const noexcept {
        return {row.name, session, row.grant_id, part};
    }
};

/// A hold that is to be extended, and the tokens of its row, if the row names the grant.
struct hold_to_extend {
    hold_key which;
    std::int64_t token;
    std::int64_t new_token;  ///< token + 2
};

struct extended_hold {
    extension what = extension::over;
    std::int64_t token = 0;  ///< of its row now, unless the hold has ended
};

/// What a client asks alike for every kind of hold: to get one, to give it back, and what became of
/// each. Entries of the queues are those of queue_protocol, whatever they wait for. Thread-safe.
class hold_protocol {
public:
    /// By the protocols of each kind, which must outlive it.
    hold_protocol(const lease_protocol& leases, const queue_protocol& queues,
                  const semaphore_protocol& counted)
        : leases_{leases}, queues_{queues}, counted_{counted} {}

    /// One attempt. After a lost reply ask find_grant().
    attempt acquire(sql::connection& db, const grant_request& request, sql::deadline until) const;
    /// Whether an attempt could succeed, for less than that costs; nullopt: send the attempt. One
    /// round trip or none.
    std::optional<lease_probe> probe(sql::connection& db, const grant_request& request,
                                     sql::deadline until) const;
    /// The token of a grant whose reply was lost, made durable.
    std::optional<std::int64_t> find_grant(sql::connection& db, const hold_key& which,
                                           sql::deadline until) const;
    /// The same for several grants of one session, by one commit for all of whole locks: their
    /// tokens, or nullopt if one of them is not there.
    std::optional<std::vector<std::int64_t>> find_grants(sql::connection& db,
                                                         std::span<const hold_key> all,
                                                         sql::deadline until) const;
    struct standing {
        bool session_live = false;
        std::optional<std::int64_t> token{};  ///< of its row, if the grant is in force
    };
    /// Whether the tables show a grant in force. One or two round trips.
    [[nodiscard]] standing look_up(sql::connection& db, const hold_key& which,
                                   sql::deadline until) const;
    /// The grant that served an entry, made durable; nullopt if there is none.
    /// @param reported as queue_protocol::served
    std::optional<queue_grant> served(sql::connection& db, const hold_key& entry,
                                      sql::deadline until,
                                      std::optional<std::int64_t> reported = {}) const;
    /// The same for several entries of one session: one commit for all of those for a whole lock.
    std::vector<std::optional<queue_grant>> served(sql::connection& db,
                                                   std::span<const hold_key> entries,
                                                   sql::deadline until) const;
    /// Checks a reported grant, made durable, and may read the next waiter:
    /// queue_protocol::confirm_and_read_next.
    std::optional<confirmed_grant> confirm(sql::connection& db, const hold_key& which, bool durably,
                                           sql::deadline until) const;
    /// Ends a grant. `freed` is false if it was over. If no waiter was served in the same commit,
    /// the caller checks the queue afterwards.
    release_outcome release(sql::connection& db, const hold_key& which, release_hint hint,
                            sql::deadline until) const;
    /// Leaves a hold with so many permits, if it has more, or all of the lock. Returns false if it
    /// has ended. Then check the queue. Idempotent.
    bool lower(sql::connection& db, const hold_key& which, std::int64_t to,
               sql::deadline until) const;
    /// lease_protocol::extend or semaphore_protocol::extend.
    [[nodiscard]] extended_hold extend(sql::connection& db, const hold_to_extend& hold,
                                       std::chrono::microseconds by, std::int64_t revision,
                                       sql::deadline until) const;
    /// What a session has. As read: a caller relies on none of it before find_grant().
    /// @param has_parts whether it may have counted holds. Asked after the others were read: a
    /// hold that becomes a part meanwhile is among one or the other.
    [[nodiscard]] std::vector<session_hold> holds_of(sql::connection& db, session_id session,
                                                     const std::function<bool()>& has_parts,
                                                     sql::deadline until) const;
    struct row_token {
        rowlock::grant_id grant_id;
        std::int64_t token;
    };
    /// Which of these grants of one session the tables have, as read, with the tokens of their
    /// rows; upgrades of the session, too. A round trip for each 16 locks, and one for all parts.
    [[nodiscard]] std::vector<row_token> tokens_of(sql::connection& db, session_id session,
                                                   std::span<const hold_key> held,
                                                   sql::deadline until) const;

private:
    release_outcome release_as(bool part, sql::connection& db, const hold_key& which,
                               release_hint hint, sql::deadline until) const;

    const lease_protocol& leases_;
    const queue_protocol& queues_;
    const semaphore_protocol& counted_;
};

}  // namespace rowlock::protocol

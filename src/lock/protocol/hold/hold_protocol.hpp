#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace rowlock::protocol {

/// What a client expects of a grant that it releases. A wrong hint costs a round trip or two.
struct release_hint {
    bool contended = false;    ///< waiters are to be expected
    std::int64_t permits = 0;  ///< as granted; 0: unknown
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
    /// The token of a grant whose reply was lost, made durable.
    std::optional<std::int64_t> find_grant(hold_kind kind, sql::connection& db,
                                           std::string_view name, session_id session,
                                           grant_id grant_id, sql::deadline until) const;
    /// The grant that served an entry, made durable; nullopt if there is none.
    std::optional<queue_grant> served(hold_kind kind, sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const;
    /// Ends a grant. `freed` is false if it was over. If no waiter was served in the same commit,
    /// the caller checks the queue afterwards.
    release_outcome release(hold_kind kind, sql::connection& db, std::string_view name,
                            session_id session, grant_id grant_id, release_hint hint,
                            sql::deadline until) const;

private:
    const lease_protocol& leases_;
    const queue_protocol& queues_;
    const semaphore_protocol& counted_;
};

}  // namespace rowlock::protocol

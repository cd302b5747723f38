#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace rowlock::protocol {

/// What a grant is of.
enum class hold_kind : unsigned char {
    lease,    ///< of a name that one client has at a time
    permits,  ///< some of a semaphore's permits
};

[[nodiscard]] constexpr hold_kind other_than(hold_kind kind) noexcept {
    return kind == hold_kind::lease ? hold_kind::permits : hold_kind::lease;
}
[[nodiscard]] inline hold_kind kind_of(const wanted_permits& wanted) noexcept {
    return wanted.is_part() ? hold_kind::permits : hold_kind::lease;
}

/// What a client expects of a grant that it releases. A wrong hint costs a round trip or two.
struct release_hint {
    bool contended = false;    ///< waiters are to be expected
    std::int64_t permits = 0;  ///< as granted; 0: unknown
};

/// What a client asks alike for every kind of hold: to get one, to give it back, and what became of
/// each. Entries of the queues are those of queue_protocol, whatever they wait for. One
/// implementation a kind. Thread-safe.
class hold_protocol {
public:
    virtual ~hold_protocol() = default;
    hold_protocol(const hold_protocol&) = delete;
    hold_protocol& operator=(const hold_protocol&) = delete;

    /// One attempt. After a lost reply ask find_grant().
    virtual attempt acquire(sql::connection& db, const grant_request& request,
                            sql::deadline until) const = 0;
    /// The token of a grant whose reply was lost, made durable.
    virtual std::optional<std::int64_t> find_grant(sql::connection& db, std::string_view name,
                                                   session_id session, grant_id grant_id,
                                                   sql::deadline until) const = 0;
    /// The grant that served an entry, made durable; nullopt if there is none.
    virtual std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                              session_id session, grant_id grant_id,
                                              sql::deadline until) const = 0;
    /// Ends a grant. `freed` is false if it was over. If no waiter was served in the same commit,
    /// the caller checks the queue afterwards.
    virtual release_outcome release(sql::connection& db, std::string_view name, session_id session,
                                    grant_id grant_id, release_hint hint,
                                    sql::deadline until) const = 0;

protected:
    hold_protocol() = default;
};

/// Leases, by the protocols of leases and of their queues, which must outlive it.
[[nodiscard]] std::unique_ptr<const hold_protocol> make_lease_holds(const lease_protocol& leases,
                                                                    const queue_protocol& queues);

}  // namespace rowlock::protocol

#pragma once

#include "lock/client/batcher.hpp"
#include "lock/protocol/batch/batch_protocol.hpp"
#include "lock/protocol/hold/hold_protocol.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/waiters.hpp"
#include <rowlock/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rowlock::detail {

/// The calls that concurrent threads of a client make together: what they ask at about the same
/// time goes to the database in one statement, or is one commit. Whole locks share one lane,
/// whatever their names. Parts share with those of the same lock: its row is the bottleneck, and is
/// locked once; threads that use another name are not held up, as the row may be locked for long.
/// Thread-safe.
class call_batches {
public:
    call_batches(client_context& context, client_connections& connections, waiters& waiting);

    /// The first statement of an acquisition, not of an upgrade. Returns nullopt if only an
    /// unbatched attempt can tell.
    /// @param known the token at which this client last saw the lock free
    std::optional<protocol::attempt> acquire(const protocol::grant_request& request,
                                             std::optional<std::int64_t> known,
                                             sql::deadline until);
    /// Whether a lock is held by another client: a try_acquire would certainly fail.
    bool is_held(const std::string& name, sql::deadline until);
    /// Ends a hold that was never fenced, and looks after the waiters of a part. Returns nullopt if
    /// only an unbatched release can tell: the other waiters of a whole lock are its business.
    std::optional<protocol::release_outcome> release(const protocol::hold_key& which,
                                                     protocol::release_hint hint,
                                                     sql::deadline until);
    /// Releases several grants of whole locks of one session by one statement, those that no client
    /// waits for. Returns which it freed.
    std::vector<bool> release_all(session_id session,
                                  std::span<const protocol::granted_name> grants,
                                  sql::deadline until);

private:
    struct acquire_call {
        protocol::grant_request request;
        std::optional<std::int64_t> known;
        sql::deadline until;
    };
    struct release_call {
        protocol::hold_key which;
        std::int64_t permits = 0;
        sql::deadline until;
    };
    struct held_call {
        std::string_view name;
        sql::deadline until;
    };
    using acquires = batcher<acquire_call, protocol::attempt>;
    using releases = batcher<release_call, protocol::release_outcome>;
    using probes = batcher<held_call, bool>;
    struct lane {
        lane(std::size_t most, acquires::sender take, releases::sender give, std::size_t few,
             bool one_by_one);
        acquires taking;
        releases giving;
        const bool contended_alone;  ///< a release that expects a waiter shares no statement
    };

    [[nodiscard]] lane& lane_of(bool part, std::string_view name);

    void acquire_whole(std::span<acquires::item* const> asked);
    void acquire_one(sql::connection& db, acquires::item& asked);
    void grant_all(sql::connection& db, std::span<acquires::item* const> asked, bool known,
                   sql::deadline until);
    void release_whole(std::span<releases::item* const> asked);
    void release_one(sql::connection& db, releases::item& asked);
    void send_probes(std::span<probes::item* const> asked);

    void acquire_parts(std::span<acquires::item* const> asked);
    void release_parts(std::span<releases::item* const> asked);

    client_context& context_;
    client_connections& connections_;
    waiters& waiting_;
    const std::unique_ptr<const protocol::batch_protocol> protocol_;
    lane whole_;
    std::deque<lane> parts_;
    probes probes_;
};

}  // namespace rowlock::detail

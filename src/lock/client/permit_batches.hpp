#pragma once

#include "lock/client/batcher.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/waiters.hpp"
#include <rowlock/ids.hpp>

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rowlock::detail {

/// As lease_batches, for permits: what the threads of a client ask of one semaphore or shared_mutex
/// at about the same time is one commit. Its row is the bottleneck, and they lock it once. Threads
/// that use another name are not held up: the row may be locked for long. Thread-safe.
class permit_batches {
public:
    permit_batches(client_context& context, client_connections& connections, waiters& waiting);

    /// The first statement of an acquisition, not of an upgrade. Returns nullopt if only an
    /// unbatched attempt can tell.
    std::optional<protocol::attempt> acquire(const protocol::grant_request& request,
                                             sql::deadline until);
    /// Ends a hold that was never fenced, and looks after the waiters. Returns nullopt if only an
    /// unbatched release can tell.
    std::optional<protocol::release_outcome> release(const std::string& name, session_id session,
                                                     const protocol::own_hold& hold,
                                                     sql::deadline until);

private:
    struct acquire_call {
        protocol::grant_request request;
        sql::deadline until;
    };
    struct release_call {
        const std::string& name;
        session_id session{};
        protocol::own_hold hold;
        sql::deadline until;
    };
    using acquires = batcher<acquire_call, protocol::attempt>;
    using releases = batcher<release_call, protocol::release_outcome>;
    /// The calls for some of the names.
    struct lane {
        explicit lane(permit_batches& of);
        acquires taking;
        releases giving;
    };

    [[nodiscard]] lane& lane_of(std::string_view name);
    void send_acquires(std::span<acquires::item* const> asked);
    void send_releases(std::span<releases::item* const> asked);

    client_context& context_;
    client_connections& connections_;
    waiters& waiting_;
    std::deque<lane> lanes_;
};

}  // namespace rowlock::detail

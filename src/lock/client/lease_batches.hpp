#pragma once

#include "lock/client/batcher.hpp"
#include "lock/protocol/batch/batch_protocol.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/waiters.hpp"
#include <rowlock/ids.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rowlock::detail {

/// The calls that concurrent threads of a client make together: each kind of call goes to the
/// database in one statement for all threads that ask at about the same time. Thread-safe.
class lease_batches {
public:
    lease_batches(client_context& context, client_connections& connections, waiters& waiting);

    /// The first statement of an acquisition. Returns nullopt if only an unbatched attempt can
    /// tell.
    /// @param known the token at which this client last saw the lease free
    std::optional<protocol::attempt> acquire(const protocol::grant_request& request,
                                             std::optional<std::int64_t> known,
                                             sql::deadline until);
    /// Whether a lease is held by another client: a try_acquire would certainly fail.
    bool is_held(const std::string& name, sql::deadline until);
    /// A release without a known waiter. Returns nullopt if only an unbatched release can tell.
    std::optional<protocol::release_outcome> release(session_id session,
                                                     const protocol::granted_name& granted,
                                                     sql::deadline until);
    /// Releases several grants of one session by one statement, those that no client waits for.
    /// Returns which it freed.
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
        session_id session{};
        protocol::granted_name granted;
        sql::deadline until;
    };
    struct held_call {
        std::string_view name;
        sql::deadline until;
    };
    using acquires = batcher<acquire_call, protocol::attempt>;
    using releases = batcher<release_call, protocol::release_outcome>;
    using probes = batcher<held_call, bool>;

    void send_acquires(std::span<acquires::item* const> asked);
    void acquire_one(sql::connection& db, acquires::item& asked);
    void grant_all(sql::connection& db, std::span<acquires::item* const> asked, bool known,
                   sql::deadline until);
    void send_releases(std::span<releases::item* const> asked);
    void release_one(sql::connection& db, releases::item& asked);
    void send_probes(std::span<probes::item* const> asked);

    client_context& context_;
    client_connections& connections_;
    waiters& waiting_;
    const std::unique_ptr<const protocol::batch_protocol> protocol_;
    acquires acquires_;
    releases releases_;
    probes probes_;
};

}  // namespace rowlock::detail

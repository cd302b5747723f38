#pragma once

#include "lock/protocol/queue/queue_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Several locks at once, each as a whole or a part of it: all of them in one commit, or none; and
/// an entry in each of their queues, in one order for all queues. Like lease_protocol: no state, no
/// retries, no clocks.
///
/// Entries of such a request are not served by other clients (serve() only notifies their
/// session): the client takes them itself, once each of its entries is the first of its queue. Two
/// requests never wait for each other: the same one is first in every queue that both are in.
namespace rowlock::protocol {

/// How many names one request may have.
inline constexpr std::size_t most_names = 16;

/// One of the locks, and what of it.
struct wanted_name {
    std::string_view name;
    rowlock::grant_id grant_id;
    wanted_permits what{};
};

struct multi_request {
    /// At least two, by name in byte order, each name once; at most most_names.
    std::span<const wanted_name> names;
    session_id session{};
    std::string_view thread{};
    std::string_view note{};
    std::optional<std::int64_t> deadline_us{};
    bool queued = false;        ///< it has entries, and takes them as their turn comes
    bool barging = false;       ///< also past waiters in the queues: of whole locks alone
    std::string_view blocks{};  ///< of its entries: party_labels.hpp
    /// Of its entries: how long its caller waits from now on; nullopt: without a limit.
    std::optional<std::int64_t> limit_us{};

    /// Whether it wants a part of a lock, besides whole ones or alone.
    [[nodiscard]] bool has_parts() const {
        return std::ranges::any_of(names, [](const auto& each) { return each.what.is_part(); });
    }
};

struct multi_attempt {
    attempt::outcome what = attempt::outcome::contested;
    std::vector<std::int64_t> tokens{};  ///< if granted, in the order of the names
    /// If held: holders whose sessions have expired, but are not ended. End them, then try again.
    std::vector<session_id> expired{};
    /// If held: until the first holder expires; 0 if none is known to.
    std::chrono::microseconds remaining{0};
    /// If held: locks with counted holds in the way, or without room for the part, whose holders
    /// may have ended.
    std::vector<std::string> full{};
};

/// One implementation a dialect (make_multi_protocol). Thread-safe.
class multi_protocol {
public:
    virtual ~multi_protocol() = default;
    multi_protocol(const multi_protocol&) = delete;
    multi_protocol& operator=(const multi_protocol&) = delete;

    /// Takes all of them, durably, or none. One round trip on PostgreSQL, two with a part;
    /// elsewhere one to look and one to write, with a part one more to read the tokens; on borrowed
    /// connections and SOCI two or three for each name and two more to write. Two more if names
    /// have no row yet, elsewhere one and one for each such name. If the reply is lost:
    /// queue_protocol::held_of() by the names, and semaphore_protocol::find_grant().
    /// @throws error errc::invalid_options as require_obtainable()
    virtual multi_attempt take(sql::connection& db, const multi_request& request,
                               sql::deadline until) const = 0;
    /// Adds the entries, all or none. One round trip, asynchronous commit where there is one. After
    /// a lost reply use other grant ids and cancel these.
    virtual void enqueue(sql::connection& db, const multi_request& request,
                         sql::deadline until) const = 0;

protected:
    multi_protocol() = default;
};

/// In the dialect that `statements` are written in.
[[nodiscard]] std::unique_ptr<const multi_protocol> make_multi_protocol(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

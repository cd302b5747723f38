#pragma once

#include "lock/protocol/queue/queue_protocol.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace support {

/// Serves the head of a queue that wants all of a lock; who was served, or told.
[[nodiscard]] inline std::optional<rowlock::protocol::handed_over> serve_one(
    const rowlock::protocol::queue_protocol& queue, rowlock::sql::connection& db,
    std::string_view name, rowlock::sql::deadline until) {
    const auto served = queue.serve(db, name, rowlock::protocol::queue_head::sole, until);
    if (served.waiters.empty()) return std::nullopt;
    return served.waiters.front();
}

/// Serves the head of a queue as long as anybody can be served. The grant ids, in the order of the
/// queue; negative: told alone.
[[nodiscard]] inline std::vector<std::int64_t> serve_all(
    const rowlock::protocol::queue_protocol& queue, rowlock::sql::connection& db,
    std::string_view name, rowlock::sql::deadline until) {
    std::vector<std::int64_t> ids;
    for (bool more = true; more;) {
        const auto served = queue.serve(db, name, rowlock::protocol::queue_head::counted, until);
        more = served.more;
        for (const auto& each : served.waiters) {
            const auto id = static_cast<std::int64_t>(each.grant_id);
            ids.push_back(each.granted() ? id : -id);
        }
    }
    return ids;
}

}  // namespace support

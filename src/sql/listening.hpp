#pragma once

#include <rowlock/sql/connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <cstdint>

namespace rowlock::sql {

/// PostgreSQL's queue of notifications, in millionths of its size: above that clients poll and do
/// not LISTEN, which reads all of it. By default these are 80 MB, read in less than 0.1 s.
inline constexpr std::int64_t long_notification_queue = 10'000;

/// The notifications of `db`, if they can be relied upon. Null if the driver has none, and behind a
/// transaction pooler, declared or detected: LISTEN would succeed there and nothing would ever
/// arrive. Call it once for each connection, before listen().
///
/// PostgreSQL: one round trip without a pooler, else the cost of pooling_of(). Elsewhere none. A
/// transaction pooler that others use at the same time may be overlooked: the caller must keep
/// polling.
[[nodiscard]] notifications* usable_notifications(connection& db, const connection_source& source,
                                                  deadline until);

}  // namespace rowlock::sql

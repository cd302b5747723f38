#pragma once

#include <rowlock/sql/connection.hpp>
#include <rowlock/sql/notifications.hpp>

namespace rowlock::sql {

/// The capability of `db` to be woken, if it can be relied upon; null if the driver has none, and
/// behind a transaction pooler, declared or found out: LISTEN would succeed there and nothing ever
/// arrive. To be asked once for each connection, before listen().
///
/// PostgreSQL: one round trip if nothing stands in between; else what pooling_of() costs. Elsewhere
/// none. A transaction pooler that others use at the same moment may be overlooked: polling has to
/// go on.
[[nodiscard]] notifications* usable_notifications(connection& db, const connection_source& source,
                                                  deadline until);

}  // namespace rowlock::sql

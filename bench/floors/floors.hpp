#pragma once

#include "common/measure.hpp"

#include <memory>
#include <string>

/// The floors: the fewest statements for a durable lease, written by hand on the database's
/// library, prepared, with one connection for each worker. A row has the owner, a token and an
/// expiry. An acquire is one guarded upsert, which grants only a free or expired row and returns
/// the token. A release is one update guarded by owner and token.
///
/// There is no session, no heartbeat, no queue, no token floor: a client could not wait, no lease
/// could last longer than 30 s, and the tokens of a deleted row would start again.
namespace bench {

/// The table of a floor, made and removed with this object.
class floor_table {
public:
    virtual ~floor_table() = default;
    /// Acquires and releases the lease of that name with each turn.
    [[nodiscard]] virtual std::unique_ptr<worker> lease(const std::string& name) = 0;
};

/// Like rowlock: the grant waits for the disk, the release does not, since no client waits for it.
[[nodiscard]] std::unique_ptr<floor_table> postgresql_floor(const std::string& url);
/// MariaDB (RETURNING). Each commit waits for the disk, as the server is set up.
[[nodiscard]] std::unique_ptr<floor_table> mariadb_floor(const std::string& url);
/// @param synchronous FULL or NORMAL, in WAL mode
[[nodiscard]] std::unique_ptr<floor_table> sqlite_floor(const std::string& path,
                                                        const std::string& synchronous);

}  // namespace bench

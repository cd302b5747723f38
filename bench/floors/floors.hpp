#pragma once

#include "common/measure.hpp"

#include <memory>
#include <string>

/// The floors: the fewest statements that could be a durable lease, written by hand on the library
/// of the database, prepared, one connection a worker. A row has the owner, a token and when it
/// expires. Acquiring is one guarded upsert that is granted only if the row is free or expired,
/// and brings the token back; releasing is one update guarded by owner and token.
///
/// There is no session, no heartbeat, no queue, no token floor: nobody could wait, nobody could
/// hold it longer than 30 s, and a deleted row would begin its tokens anew.
namespace bench {

/// A table for a floor, made and removed with it. Called `name`.
class floor_table {
public:
    virtual ~floor_table() = default;
    /// Takes and gives back the lease of that name with each turn.
    [[nodiscard]] virtual std::unique_ptr<worker> lease(const std::string& name) = 0;
};

/// As ours does: the grant waits for the disk, the release does not, because nobody waits.
[[nodiscard]] std::unique_ptr<floor_table> postgresql_floor(const std::string& url);
/// MariaDB (RETURNING). Each commit waits for the disk, as the server is set up.
[[nodiscard]] std::unique_ptr<floor_table> mariadb_floor(const std::string& url);
/// @param synchronous FULL or NORMAL, in WAL mode
[[nodiscard]] std::unique_ptr<floor_table> sqlite_floor(const std::string& path,
                                                        const std::string& synchronous);

}  // namespace bench

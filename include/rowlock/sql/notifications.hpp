#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace rowlock::sql {

/// Something that the database said unasked.
struct notification {
    std::string channel{};  ///< empty where the database knows no channels
    std::string payload{};  ///< empty: something may have changed, look
};

/// An optional capability of a connection, from connection::notifications(): to be woken by the
/// database. What comes is a hint: it may be lost, late, doubled or forged.
///
/// Used by the thread that uses the connection. The way to wait: take() until it answers nothing,
/// then poll descriptor(), then take() again. A statement may have read what was said, and then the
/// descriptor is silent about it.
class notifications {
public:
    virtual ~notifications() = default;

    /// From the return on, what is said on `channel` arrives; twice is as good as once, another
    /// channel is one more.
    /// PostgreSQL: LISTEN, one round trip; nothing arrives while the connection is in a
    /// transaction. SQLite: the file is watched for commits by others; it knows no channels.
    /// @throws error errc::unsupported if this connection cannot: behind a transaction pooler that
    /// was declared, in a database in memory, no watch is left; errc::invalid_options for a name
    /// that is no channel's, and inside a transaction (PostgreSQL); errc::wrong_process
    virtual void listen(std::string_view channel, deadline until) = 0;
    /// Turns readable when there may be something to take while no call is running. To be polled,
    /// not read. -1 before the first listen() on SQLite, and once the connection is known to be
    /// closed on PostgreSQL.
    [[nodiscard]] virtual int descriptor() const noexcept = 0;
    /// What has arrived since the last call, also while other calls ran. Never waits. May be empty
    /// although the descriptor was readable.
    /// @throws error errc::database_unreachable if the connection turned out to be closed: alive()
    /// is false, and nothing will arrive any more; errc::wrong_process
    [[nodiscard]] virtual std::vector<notification> take() = 0;
    /// Whether to be told that something may have changed (an empty payload); true after the first
    /// listen(). To be called if a change is of no interest for a while: on a busy SQLite file each
    /// commit costs a wake-up and a look. When it is wanted again, what was committed meanwhile
    /// counts as a change. Elsewhere nothing happens.
    /// @throws error errc::unsupported if no watch is left any more: it stays as it was
    virtual void want_changes(bool wanted) { static_cast<void>(wanted); }
};

}  // namespace rowlock::sql

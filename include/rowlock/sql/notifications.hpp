#pragma once

#include <rowlock/sql/connection.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace rowlock::sql {

/// @addtogroup connections
/// @{

/// An unsolicited message from the database.
struct notification {
    std::string channel{};  ///< empty where the database knows no channels
    std::string payload{};  ///< empty: something may have changed
};

/// An optional capability of a connection, from connection::notifications(): to be woken by the
/// database. A notification is a hint: it may be lost, late, doubled or forged.
///
/// Used by the thread that uses the connection. To wait: take() until it answers nothing, then poll
/// descriptor(), then take() again. A statement may already have read a notification from the
/// socket, and then the descriptor does not show it.
class notifications {
public:
    virtual ~notifications() = default;

    /// After the return, notifications on `channel` arrive. Listening twice has no further effect;
    /// another channel is added.
    /// PostgreSQL: LISTEN, one round trip; nothing arrives while the connection is in a
    /// transaction. SQLite: the file is watched for commits by others; it has no channels.
    /// @throws error errc::unsupported if this connection cannot: behind a transaction pooler that
    /// was declared, in a database in memory, no watch is left; errc::invalid_options for an
    /// invalid channel name, and inside a transaction (PostgreSQL); errc::wrong_process
    virtual void listen(std::string_view channel, deadline until) = 0;
    /// Turns readable when there may be something to take while no call is running. To be polled,
    /// not read. -1 before the first listen() on SQLite, and once the connection is known to be
    /// closed on PostgreSQL.
    [[nodiscard]] virtual int descriptor() const noexcept = 0;
    /// Notifications that have arrived since the last call, also while other calls ran. Never
    /// waits. May be empty although the descriptor was readable.
    /// @throws error errc::database_unreachable if the connection turned out to be closed: alive()
    /// is false, and nothing will arrive any more; errc::wrong_process
    [[nodiscard]] virtual std::vector<notification> take() = 0;
    /// Switches notifications of possible changes (with an empty payload) on or off; on after the
    /// first listen(). Switch them off while changes do not matter: on a busy SQLite file each
    /// commit costs a wake-up and a read. After switching on again, commits made meanwhile count as
    /// a change. No effect on other databases.
    /// @throws error errc::unsupported if no watch is left any more: the setting stays as it was
    virtual void want_changes(bool wanted) { static_cast<void>(wanted); }
};

/// @}

}  // namespace rowlock::sql

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
/// Used by the thread that uses the connection.
class notifications {
public:
    virtual ~notifications() = default;

    /// From the return on, what is said on `channel` arrives. PostgreSQL: LISTEN, one round trip.
    /// SQLite: the file is watched for changes by others, the channel is not used.
    /// @throws error errc::unsupported if this connection cannot (behind a transaction pooler, no
    /// watch could be made)
    virtual void listen(std::string_view channel, deadline until) = 0;
    /// Turns readable when something arrives while no call is running. To be polled, not read.
    [[nodiscard]] virtual int descriptor() const noexcept = 0;
    /// What has arrived since the last call, also while other calls ran. Never waits.
    /// @throws error errc::database_unreachable if the connection turned out to be closed
    [[nodiscard]] virtual std::vector<notification> take() = 0;
};

}  // namespace rowlock::sql

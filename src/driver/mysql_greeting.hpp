#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// What a MySQL or MariaDB server says before anything is said to it. A client library that goes on
/// in clear text where a server has no TLS must be told beforehand.
namespace rowlock::driver {

struct mysql_greeting {
    bool offers_tls = false;
    std::string address;  ///< numeric, of the server that was asked
};

/// Connects, reads the greeting, sends nothing and hangs up, as soon as the server has: what it
/// counts as a connection is free again then, or nearly so. To the server this is a handshake that
/// was interrupted. Tries each address of the host in turn.
/// @throws error of the kind that the server's error number stands for if it turns clients away;
/// errc::database_unreachable if there is no such host, no answer by the deadline, or an answer
/// that is not a MySQL server's.
[[nodiscard]] mysql_greeting look_at_mysql(const std::string& host, std::uint16_t port,
                                           sql::deadline until);

/// Whether the server whose first packet has this payload offers TLS. @throws error as above
[[nodiscard]] bool offers_tls(std::string_view payload);

}  // namespace rowlock::driver

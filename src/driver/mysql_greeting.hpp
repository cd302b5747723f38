#pragma once

#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// The greeting that a MySQL or MariaDB server sends first. A client library that continues in
/// clear text if a server has no TLS must know beforehand.
namespace rowlock::driver {

struct mysql_greeting {
    bool offers_tls = false;
    std::string address;  ///< numeric, of the server that answered
};

/// Connects, reads the greeting, sends nothing and hangs up once the server has: by then the
/// server's connection slot is free again, or nearly so. The server sees an interrupted handshake.
/// Tries each address of the host in turn.
/// @throws error of the kind that the server's error number stands for if it turns clients away;
/// errc::database_unreachable if there is no such host, no answer by the deadline, or an answer
/// that is not a MySQL server's.
[[nodiscard]] mysql_greeting look_at_mysql(const std::string& host, std::uint16_t port,
                                           sql::deadline until);

/// Whether the server whose first packet has this payload offers TLS. @throws error as above
[[nodiscard]] bool offers_tls(std::string_view payload);

}  // namespace rowlock::driver

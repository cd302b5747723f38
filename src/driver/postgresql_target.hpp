#pragma once

#include <rowlock/driver/postgresql.hpp>

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

/// Where a PostgreSQL connection goes, and making it.
namespace rowlock::postgresql {

/// One of libpq's parameters.
struct setting {
    std::string name;
    std::string text;
};
using settings = std::vector<setting>;

/// What a URL or conninfo says, worked out once by open().
struct target {
    std::vector<settings> hosts;  ///< what to tell libpq, one set a host, tried in this order
    std::chrono::seconds connect_timeout{0};  ///< for one host; 0 = none but the deadline
    bool transaction_pooler = false;
    std::vector<std::string> secrets;  ///< never to be seen in a message
    std::string description;
};

/// Our own parameters taken out, defaults added. Connects to nothing.
/// @throws error errc::invalid_url, which never quotes the URL.
[[nodiscard]] target understand(std::string url, const options& how);

struct finish {
    void operator()(PGconn* handle) const noexcept { PQfinish(handle); }
};
using connection_handle = std::unique_ptr<PGconn, finish>;

/// A connection in non-blocking mode to the first host that will do. Each host gets its share of
/// the time. libpq looks names up with the system's resolver, which no deadline bounds.
/// @throws error errc::database_unreachable, access_denied …
[[nodiscard]] connection_handle connect(const target& to, sql::deadline until);

/// Waits until the socket is ready for poll()'s `events`; false if the deadline passed first.
[[nodiscard]] bool wait_for(int socket, short events, sql::deadline until);

}  // namespace rowlock::postgresql

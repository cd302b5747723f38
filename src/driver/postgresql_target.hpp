#pragma once

#include <rowlock/driver/postgresql.hpp>

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

/// Understands where a PostgreSQL connection goes, and makes it.
namespace rowlock::postgresql {

/// One of libpq's parameters.
struct setting {
    std::string name;
    std::string text;
};
using settings = std::vector<setting>;

/// What a URL or conninfo says, worked out once by open().
struct target {
    std::vector<settings> hosts;  ///< libpq's parameters, one set per host, tried in this order
    std::chrono::seconds connect_timeout{0};  ///< per host; 0 = the deadline only
    bool transaction_pooler = false;
    sql::table_names tables;
    std::vector<std::string> secrets;  ///< must never appear in a message
    std::string description;
};

/// Takes our own parameters out and adds defaults. Does not connect.
/// @throws error errc::invalid_url, which never quotes the URL.
[[nodiscard]] target understand(std::string url, const options& how);

struct finish {
    void operator()(PGconn* handle) const noexcept { PQfinish(handle); }
};
using connection_handle = std::unique_ptr<PGconn, finish>;

/// Opens a connection in non-blocking mode to the first suitable host. Each host gets its share of
/// the time. libpq looks names up with the system's resolver, which no deadline bounds.
/// @throws error errc::database_unreachable, access_denied …
[[nodiscard]] connection_handle connect(const target& to, sql::deadline until);

/// Waits until the socket is ready for poll()'s `events`; returns false if the deadline passed
/// first.
[[nodiscard]] bool wait_for(int socket, short events, sql::deadline until);

}  // namespace rowlock::postgresql

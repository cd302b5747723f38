#pragma once

#include <rowlock/error.hpp>

#include <string_view>

namespace rowlock::sql {

/// Whether the server, or a pooler in front of it, has no connection left for us: that passes when
/// others disconnect. Not for SOCI's PostgreSQL, which reports no code when connecting.
[[nodiscard]] inline bool too_many_connections(errc kind, std::string_view sqlstate,
                                               int native_code) noexcept {
    constexpr std::string_view of_the_server = "53300";  // also the reserved slots
    constexpr std::string_view of_pgbouncer = "08P01";   // max_client_conn; see cannot_connect()
    constexpr int max_connections = 1040;
    constexpr int max_user_connections = 1203;
    constexpr int limit_of_the_account = 1226;
    if (kind != errc::out_of_resources) return false;
    return sqlstate == of_the_server || sqlstate == of_pgbouncer ||
           native_code == max_connections || native_code == max_user_connections ||
           native_code == limit_of_the_account;
}

[[nodiscard]] inline bool too_many_connections(const error& failure) noexcept {
    return too_many_connections(failure.kind(), failure.sqlstate(), failure.native_code());
}

}  // namespace rowlock::sql

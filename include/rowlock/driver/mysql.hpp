#pragma once

#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

namespace sql {
class Connection;  // MySQL Connector/C++
}

/// MySQL and MariaDB through MySQL Connector/C++ (the `cppconn` API). Component `rowlock::mysql`.
namespace rowlock::mysql {

/// Options of open() and connection_ref.
struct options {
    /// Off only where a server-side prepared statement does not last (a proxy): each is then
    /// prepared for one use, which costs a round trip more.
    bool prepare_statements = true;
};

/// A source of connections of our own. Connector/C++ has no deadline for a single call, so each
/// connection has a thread, and a call that passes its deadline leaves thread and connection behind
/// (errc::outcome_unknown, to the millisecond). Both end when the server answers or closes, at the
/// latest after 300 s of silence, which is also the longest that any call lasts. The server may go
/// on with the statement meanwhile: give the session its own limits (innodb_lock_wait_timeout,
/// max_statement_time), as rowlock::client does.
/// @param url `mysql://user:password@host:port/database`, percent-encoded, or `mariadb://…`; of
/// several hosts, `host:port,host:port`, each connection goes to the first that accepts writes (not
/// read_only; a member of its Galera cluster or MySQL group), for up to its share of the deadline.
/// With
/// - `socket=/run/mysqld/mysqld.sock` in place of host and port;
/// - `ssl-mode=PREFERRED|DISABLED|REQUIRED|VERIFY_CA|VERIFY_IDENTITY`: TLS if the server offers it
///   (the default, unless all hosts are localhost, 127.0.0.1 or ::1), no TLS (the default for
///   those), no connection without TLS; the last two check both chain and host name;
/// - `ssl-verify=true|false`, `ssl-ca`, `ssl-capath`, `ssl-cert`, `ssl-key`, `ssl-cipher`,
///   `ssl-crl`, `ssl-crlpath`: each requires TLS, except for `ssl-verify=false`;
/// - `read-default-file=/path`, an option file to read;
/// - `rowlock_prefix`: see table_names.
///
/// Before requesting TLS without verification, the driver reads the server's greeting over a
/// separate connection, which the server counts as interrupted. docs/urls.md says why, and
/// when not.
///
/// A server on another machine that asks for the password in clear text (PAM) is refused
/// (errc::unsupported) unless its certificate is verified, and so is any that asks at the terminal.
/// This does not apply if an option file is read, which may say `restricted-auth` itself, nor on a
/// unix socket.
///
/// Without a password in the URL, MYSQL_PWD is used as it is at the time of this call, and without
/// that the usual option files (~/.my.cnf), group `[client]`. User, host, port, socket and database
/// of the URL override those of an option file; all else in the file overrides the URL, TLS
/// included.
///
/// A connect that passes its deadline leaves its thread behind, too. Of one source at most 16 such
/// connects, and those begun before there were that many, may be under way; a further connect waits
/// until one has ended, and fails at its deadline (errc::database_unreachable).
/// @throws error errc::invalid_url. Connects to nothing.
[[nodiscard]] ::rowlock::sql::connection_source open(const std::string& url, options options = {});

/// The caller's own connection, borrowed: never closed, no setting left changed. Calls block as
/// long as Connector/C++ does: they are bounded only by the timeouts that the connection was opened
/// with (OPT_READ_TIMEOUT, whole seconds), and a deadline is only checked before anything is sent.
/// The connection should have OPT_RECONNECT off and OPT_CHARSET_NAME utf8mb4. The handle must
/// outlive this object and must not be used by others during a call.
class connection_ref final : public ::rowlock::sql::connection {
public:
    /// Sends nothing.
    explicit connection_ref(::sql::Connection* handle, options options = {});
    ~connection_ref() override;

    /// As sql::connection::speaks().
    [[nodiscard]] ::rowlock::sql::dialect speaks() const noexcept override {
        return ::rowlock::sql::dialect::mysql;
    }
    /// As sql::connection::execute().
    ::rowlock::sql::result execute(const ::rowlock::sql::statement& what,
                                   std::span<const ::rowlock::sql::value> parameters,
                                   ::rowlock::sql::deadline until) override;
    /// As sql::connection::query().
    ::rowlock::sql::result query(std::string_view text, ::rowlock::sql::deadline until) override;
    [[nodiscard]] bool alive() const noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

private:
    class session;
    std::unique_ptr<session> session_;
};

}  // namespace rowlock::mysql

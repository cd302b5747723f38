#pragma once

#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

namespace sql {
class Connection;  // MySQL Connector/C++
}

/// MySQL and MariaDB through MySQL Connector/C++ (the `cppconn` API). Component `rowlock::mysql`.
namespace rowlock::mysql {

struct options {
    /// Off only where server-side prepared statements are not to be had (a proxy).
    bool prepare_statements = true;
};

/// A source of connections of our own.
/// @param url `mysql://user:password@host:port/database?socket=/run/mysqld/mysqld.sock&ssl-ca=…`
/// (docs/operations.md lists the parameters).
/// @throws error errc::invalid_url. Connects to nothing.
[[nodiscard]] ::rowlock::sql::connection_source open(const std::string& url, options options = {});

/// The caller's own connection, borrowed: never closed, no setting left changed, deadlines no
/// finer than the timeouts it was opened with. The handle must outlive this object and must not be
/// used by others during a call.
class connection_ref final : public ::rowlock::sql::connection {
public:
    explicit connection_ref(::sql::Connection* handle, options options = {});
    ~connection_ref() override;

    [[nodiscard]] ::rowlock::sql::dialect speaks() const noexcept override {
        return ::rowlock::sql::dialect::mysql;
    }
    ::rowlock::sql::result execute(const ::rowlock::sql::statement& what,
                                   std::span<const ::rowlock::sql::value> parameters,
                                   ::rowlock::sql::deadline until) override;
    ::rowlock::sql::result query(std::string_view text, ::rowlock::sql::deadline until) override;
    [[nodiscard]] bool alive() const noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

private:
    class session;
    std::unique_ptr<session> session_;
};

}  // namespace rowlock::mysql

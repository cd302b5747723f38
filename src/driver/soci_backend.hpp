#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <soci/soci.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::soci {

/// What a SOCI exception meant.
struct failure {
    errc kind = errc::database_error;
    error::server_report report = {};
    bool connection_lost = false;
    /// Another connection holds a lock, this one holds none, and nothing was done: try again.
    bool worth_waiting = false;
};

/// What SOCI does not expose through <soci/soci.h>. Each backend has its own, in a separate
/// translation unit, since the backends' headers conflict.
class backend {
public:
    backend() = default;
    backend(const backend&) = delete;
    backend& operator=(const backend&) = delete;
    virtual ~backend() = default;

    [[nodiscard]] virtual sql::dialect speaks() const noexcept = 0;
    [[nodiscard]] virtual const ::soci::backend_factory& factory() const noexcept = 0;

    /// @throws error errc::invalid_url for what would break our promises, without quoting it.
    virtual void require_usable(const std::string& /*connect_string*/) const {}
    /// Returns the same string with timeouts and settings added where it has none.
    [[nodiscard]] virtual std::string complete(const std::string& connect_string,
                                               std::chrono::seconds to_connect) const = 0;
    /// The string's target, for people: no user, no password.
    [[nodiscard]] virtual std::string describe(const std::string& connect_string) const;
    /// Sends nothing.
    /// @throws error errc::unsupported or invalid_options for a session that would break our
    /// promises, before each statement.
    virtual void require_suitable(::soci::session&) const {}

    [[nodiscard]] virtual failure read(const ::soci::soci_error& thrown,
                                       ::soci::session& session) const = 0;
    /// While connecting there is no session to ask.
    [[nodiscard]] virtual failure read(const ::soci::soci_error& thrown) const = 0;

    /// As the database's library knows it; sends nothing.
    [[nodiscard]] virtual sql::transaction_state transaction(::soci::session& session) const = 0;

    /// Rows changed by the statement that just ran; `mark` was taken before it.
    [[nodiscard]] virtual std::int64_t mark(::soci::session&) const { return 0; }
    [[nodiscard]] virtual std::int64_t affected(::soci::details::statement_backend& statement,
                                                ::soci::session&, std::int64_t /*mark*/) const {
        return statement.get_affected_rows();
    }
    /// Keeps the destructor of `statement` from talking to the server.
    virtual void forget(::soci::details::statement_backend& /*statement*/) const {}
};

[[nodiscard]] const backend& postgresql_backend() noexcept;
[[nodiscard]] const backend& mysql_backend() noexcept;
[[nodiscard]] const backend& sqlite3_backend() noexcept;

/// The value that a connection string of `key=value` pairs, quoted by ' or " where needed, gives to
/// `key`; nullopt if it has no such key.
[[nodiscard]] std::optional<std::string> value_of(std::string_view connect_string,
                                                  std::string_view key);

}  // namespace rowlock::soci

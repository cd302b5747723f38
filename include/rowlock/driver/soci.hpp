#pragma once

#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

namespace soci {
class session;
}

/// Any of the three dialects through SOCI, for services that already hold a soci::session.
/// Component `rowlock::soci`. It has the limits of SOCI 4.0: docs/soci.md. The main
/// one: SOCI cannot interrupt a statement that waits for its server. A call that has begun ends
/// when the server answers (set its own time limits) or the connection breaks.
namespace rowlock::soci {

/// A source of connections of our own.
/// @param backend "postgresql", "mysql" or "sqlite3"
/// @param connect_string as that backend expects it. These are added if missing: connect_timeout
/// from the deadline (whole seconds, on PostgreSQL two at least); PostgreSQL: keepalives and
/// tcp_user_timeout as in postgresql::options; MySQL: charset=utf8mb4, read_timeout and
/// write_timeout of 65 s; SQLite: WAL mode and synchronous=FULL.
/// Where rowlock's tables are is said by connection_source::with_tables(), not in this string.
/// @throws error errc::invalid_url for an unknown backend, a database in memory, `reconnect`,
/// `singlerow`, `rowlock_schema` and `rowlock_prefix`. Connects to nothing.
[[nodiscard]] sql::connection_source open(const std::string& backend,
                                          const std::string& connect_string);

/// The caller's own session, borrowed: never closed, no setting left changed. It must outlive this
/// object, be neither closed nor reconnected meanwhile, and not be used by others during a call.
/// Its logger sees our statements, never their parameters.
class connection_ref final : public sql::connection {
public:
    /// @throws error errc::unsupported for a backend of another dialect and for a session that was
    /// opened with `reconnect` (MySQL) or `singlerow` (PostgreSQL); errc::invalid_options if it is
    /// not open.
    explicit connection_ref(::soci::session& handle);
    ~connection_ref() override;

    [[nodiscard]] sql::dialect speaks() const noexcept override;
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override;
    sql::result query(std::string_view text, sql::deadline until) override;
    [[nodiscard]] bool alive() const noexcept override;
    [[nodiscard]] sql::transaction_state transaction() const noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

private:
    class statements;
    std::unique_ptr<statements> statements_;
};

}  // namespace rowlock::soci

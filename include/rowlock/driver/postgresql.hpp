#pragma once

#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

struct pg_conn;  // libpq's PGconn

/// PostgreSQL through libpq. Component `rowlock::postgresql`.
namespace rowlock::postgresql {

/// Options of open() and connection_ref.
struct options {
    /// Set behind a transaction pooler (PgBouncer `pool_mode = transaction`): statements are not
    /// prepared and no session setting is relied upon. Also `?rowlock_pooler=transaction` in the
    /// URL.
    bool transaction_pooler = false;
    /// Sent where the URL does not set them. A half-open TCP connection is noticed after about
    /// 10 + 3 × 5 s of silence, well inside the default ttl of 30 s.
    int keepalives_idle_s = 10;
    int keepalives_interval_s = 5;  ///< between two probes
    int keepalives_count = 3;       ///< unanswered probes that end the connection
    /// How long sent data may stay unacknowledged before the kernel drops the connection.
    int tcp_user_timeout_ms = 15'000;
};

/// A source of connections of our own. A call returns at most 250 ms after its deadline; that time
/// is spent on cancelling the statement: errc::timed_out if the server confirms the cancellation,
/// errc::outcome_unknown if not. connect() tries several hosts in turn, each with its share of the
/// time; the system's resolver looks up host names without a deadline.
/// @param url everything libpq accepts: `postgresql://` URLs with several hosts, TLS parameters and
/// so on, or a `key=value` conninfo. With several hosts and no `target_session_attrs`, the writer
/// is chosen (`read-write`), since a lock must be written. Passwords are also found in PGPASSWORD
/// and ~/.pgpass. libpq does not see `rowlock_schema`, `rowlock_prefix` (see table_names) and
/// `rowlock_pooler`.
/// @throws error errc::invalid_url. Connects to nothing.
[[nodiscard]] sql::connection_source open(const std::string& url, options options = {});

/// The caller's own connection, borrowed: never closed, no setting left changed. It must speak
/// UTF-8 (client_encoding). A statement is prepared at its second execution here, under a name that
/// starts with `rowlock_`, and deallocated by the destructor (at most two round trips, one second)
/// if the connection still works. A statement cancelled at its deadline fails the caller's
/// transaction, as any refused statement does. The handle must outlive this object and must not be
/// used by others during a call.
class connection_ref final : public sql::connection {
public:
    /// Sends nothing.
    explicit connection_ref(pg_conn* handle, options options = {});
    ~connection_ref() override;

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::postgresql; }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override;
    sql::result query(std::string_view text, sql::deadline until) override;
    [[nodiscard]] bool alive() const noexcept override;
    [[nodiscard]] bool keeps_session_state() const noexcept override;
    [[nodiscard]] sql::transaction_state transaction() const noexcept override;
    [[nodiscard]] int socket() const noexcept override;
    /// From the first listen() on, take() also takes notifications of the owner's own channels: a
    /// handle has one queue. The destructor ends what listen() began, in one more round trip; in a
    /// transaction of the owner's that takes effect with the commit.
    [[nodiscard]] sql::notifications* notifications() noexcept override;
    [[nodiscard]] std::int64_t announced_process() const noexcept override;
    [[nodiscard]] std::uint64_t round_trips() const noexcept override;

private:
    class session;
    std::unique_ptr<session> session_;
};

}  // namespace rowlock::postgresql

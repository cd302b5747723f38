#pragma once

#include <rowlock/advisory_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// A key as the server knows it.
struct server_key {
    std::int64_t bits = 0;  ///< PostgreSQL
    bool pair = false;      ///< PostgreSQL: two halves, in a space of their own
    std::string text{};     ///< MySQL

    /// Equal for keys that are one lock to the server.
    [[nodiscard]] std::string identity() const;
};

/// @throws error errc::unsupported if PostgreSQL has no such key
[[nodiscard]] server_key postgresql_key(const advisory_key& key, std::string_view domain);
/// The text of a call of `function`, such as pg_advisory_lock, for a PostgreSQL key.
[[nodiscard]] std::string call_of(std::string_view function, const server_key& key,
                                  advisory_mode mode);
/// The text of the statement advisory_wait. With a mark, it locks nothing in a
/// server process that does not bear it.
[[nodiscard]] std::string wait_text(std::chrono::milliseconds slice, const std::string& call,
                                    const std::string& mark = {});

/// The server session at the other end of a connection.
struct server_session {
    std::int64_t process = 0;  ///< pg_backend_pid() or connection_id()
    std::string schema{};      ///< MySQL: the current database
    std::string mark{};        ///< PostgreSQL: the process's mark; digits and dots
};

/// The statements of session-level advisory locks. No state, no retries; one round trip per call,
/// except set_up() and, on PostgreSQL, wait(). Each makes sure that it still talks to `session`; if
/// not, it discards the connection and throws errc::unsupported. One implementation a dialect; see
/// make_advisory_protocol().
class advisory_protocol {
public:
    advisory_protocol() = default;
    advisory_protocol(const advisory_protocol&) = delete;
    advisory_protocol& operator=(const advisory_protocol&) = delete;
    virtual ~advisory_protocol() = default;

    /// Whether key_of() this key needs the schema of the connections, so that one must be open.
    [[nodiscard]] virtual bool depends_on_schema(const advisory_key& key) const noexcept = 0;
    /// @throws error errc::unsupported if this database has no such key
    [[nodiscard]] virtual server_key key_of(const advisory_key& key, std::string_view domain,
                                            std::string_view schema) const = 0;
    /// @throws error errc::unsupported if this database has no such locks
    virtual void require_mode(advisory_mode mode) const = 0;

    /// Sets up a connection of our own. @throws error errc::unsupported on a Galera node, and if
    /// the server process holds advisory locks already
    [[nodiscard]] virtual server_session set_up(sql::connection& db,
                                                std::chrono::milliseconds statement,
                                                std::chrono::milliseconds keepalive_timeout,
                                                sql::deadline until) const = 0;

    /// @throws error errc::read_only on a standby
    [[nodiscard]] virtual bool try_lock(sql::connection& db, const server_session& session,
                                        const server_key& key, advisory_mode mode,
                                        sql::deadline until) const = 0;
    /// Waits in the server for at most `slice`; returns whether the lock is ours afterwards.
    [[nodiscard]] virtual bool wait(sql::connection& db, const server_session& session,
                                    const server_key& key, advisory_mode mode,
                                    std::chrono::milliseconds slice, sql::deadline until) const = 0;
    /// Returns false if the lock was not ours.
    [[nodiscard]] virtual bool unlock(sql::connection& db, const server_session& session,
                                      const server_key& key, advisory_mode mode,
                                      sql::deadline until) const = 0;
    virtual void unlock_all(sql::connection& db, sql::deadline until) const = 0;

    struct wanted {
        server_key key;
        advisory_mode mode = advisory_mode::exclusive;
    };
    /// Whether this session holds each lock. On PostgreSQL one round trip for all, otherwise one
    /// for every eight.
    [[nodiscard]] virtual std::vector<bool> held(sql::connection& db, const server_session& session,
                                                 std::span<const wanted> locks,
                                                 sql::deadline until) const = 0;

    enum class holder_state { alone, contended, not_ours };
    /// Whether other sessions wait for a shared lock of ours.
    /// @throws error errc::unsupported where no lock is shared
    [[nodiscard]] virtual holder_state holder_status(sql::connection& db,
                                                     const server_session& session,
                                                     const server_key& key,
                                                     sql::deadline until) const = 0;
};

/// @throws error errc::unsupported for SQLite
[[nodiscard]] std::unique_ptr<const advisory_protocol> make_advisory_protocol(sql::dialect speaks);

}  // namespace rowlock::detail

#pragma once

#include <rowlock/advisory_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::strategy {

/// A key as the server knows it.
struct server_key {
    std::int64_t bits = 0;  ///< PostgreSQL
    bool pair = false;      ///< PostgreSQL: two halves, in a space of their own
    std::string text{};     ///< MySQL

    /// Equal for keys that are one lock to the server.
    [[nodiscard]] std::string identity() const;
};

/// @throws error errc::unsupported if this database has no such key
[[nodiscard]] server_key server_key_of(const advisory_key& key, sql::dialect speaks,
                                       std::string_view domain, std::string_view schema);
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
/// not, it discards the connection and throws errc::unsupported.
class advisory_protocol {
public:
    explicit advisory_protocol(sql::dialect speaks);

    /// Sets up a connection of our own. @throws error errc::unsupported on a Galera node, and if
    /// the server process holds advisory locks already
    [[nodiscard]] server_session set_up(sql::connection& db, std::chrono::milliseconds statement,
                                        std::chrono::milliseconds keepalive_timeout,
                                        sql::deadline until) const;

    /// @throws error errc::read_only on a standby
    [[nodiscard]] bool try_lock(sql::connection& db, const server_session& session,
                                const server_key& key, advisory_mode mode,
                                sql::deadline until) const;
    /// Waits in the server for at most `slice`; returns whether the lock is ours afterwards.
    [[nodiscard]] bool wait(sql::connection& db, const server_session& session,
                            const server_key& key, advisory_mode mode,
                            std::chrono::milliseconds slice, sql::deadline until) const;
    /// Returns false if the lock was not ours.
    [[nodiscard]] bool unlock(sql::connection& db, const server_session& session,
                              const server_key& key, advisory_mode mode, sql::deadline until) const;
    void unlock_all(sql::connection& db, sql::deadline until) const;

    struct wanted {
        server_key key;
        advisory_mode mode = advisory_mode::exclusive;
    };
    /// Whether this session holds each lock. On PostgreSQL one round trip for all, otherwise one
    /// for every eight.
    [[nodiscard]] std::vector<bool> held(sql::connection& db, const server_session& session,
                                         std::span<const wanted> locks, sql::deadline until) const;

    enum class company { alone, names_with_waiters, not_ours };
    /// PostgreSQL: whether other sessions wait for a lock of ours.
    [[nodiscard]] company holder_status(sql::connection& db, const server_session& session,
                                        const server_key& key, sql::deadline until) const;

private:
    [[nodiscard]] bool is_mysql() const noexcept { return speaks_ == sql::dialect::mysql; }
    std::vector<bool> held_postgresql(sql::connection& db, const server_session& session,
                                      std::span<const wanted> locks, sql::deadline until) const;
    std::vector<bool> held_mysql(sql::connection& db, const server_session& session,
                                 std::span<const wanted> locks, sql::deadline until) const;

    sql::dialect speaks_;
    sql::statement setup_, try_, unlock_, unlock_all_, held_;
    std::optional<sql::statement> company_;  ///< PostgreSQL
    std::optional<sql::statement> wait_;     ///< MySQL
};

}  // namespace rowlock::strategy

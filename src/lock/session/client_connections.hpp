#pragma once

#include "lock/session/abandoned_connections.hpp"
#include "lock/session/client_context.hpp"
#include "sql/connection_pool.hpp"
#include "sql/shared_connection.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

namespace rowlock::detail {

/// The connections of one client: a pool with a budget for its calls, and those beyond the budget
/// of its own threads; or turns on one connection (client_options::single_connection). Where the
/// server does not end statements that the client has given up, no further connection is made:
/// those that it has dropped are never many more than those that it has (PostgreSQL, and a role
/// that may read pg_stat_activity). Thread-safe.
class client_connections {
public:
    using borrowed = sql::connection_pool::borrowed;
    using rank = sql::shared_connection::rank;

    struct hooks {
        /// Checks a new connection before its first use.
        std::function<void(sql::connection&, sql::deadline)> on_connected;
        /// A connection broke: what was sent on it may have been lost.
        std::function<void()> on_broken;
        /// A turn on the shared connection may have read a notification.
        std::function<void()> on_shared_turn;
    };

    client_connections(client_context& context, hooks use);
    client_connections(const client_connections&) = delete;
    client_connections& operator=(const client_connections&) = delete;
    ~client_connections() = default;

    /// A connection for a call.
    /// @throws error errc::timed_out if none came free; those of connecting
    [[nodiscard]] borrowed take(sql::deadline until) { return pool_.take(budget_, until, until); }
    /// One read connection beyond the budget, for a thread whose own transaction may have locked
    /// what all threads with a connection wait for.
    [[nodiscard]] borrowed take_spare(sql::deadline until) {
        return pool_.take(budget_ + 1, until, until);
    }
    /// Never waits or connects.
    [[nodiscard]] std::optional<borrowed> take_idle() { return pool_.take_idle(); }
    /// Removes an idle connection from the pool for good; null if there is none.
    [[nodiscard]] std::unique_ptr<sql::connection> remove_idle() { return pool_.remove_idle(); }
    /// A connection of one of the client's own threads, beyond the budget.
    [[nodiscard]] std::unique_ptr<sql::connection> make(sql::deadline until,
                                                        rank who = rank::usual);

    /// Statements on the existing connections run to their end; no call begins there any more.
    void renew() noexcept;
    /// Called when a connection was found broken.
    void broke() noexcept;
    /// A shared connection stays open as long as it has a user left: lets go of the idle ones.
    void let_go_of_shared() noexcept;

    /// How long the shared connection has been in its current turn; 0 if there is none.
    [[nodiscard]] nanoseconds busy_for() const { return shared_.busy_for(); }
    [[nodiscard]] std::size_t open() const { return pool_.open_connections(); }
    [[nodiscard]] bool shared_is_open() const { return shared_.connected(); }

private:
    [[nodiscard]] std::unique_ptr<sql::connection> connect(sql::deadline until, rank who);
    void require_few_abandoned(sql::connection& db, std::size_t most, sql::deadline until);

    client_context& context_;
    const hooks hooks_;
    const std::size_t budget_;
    abandoned_connections abandoned_;
    sql::shared_connection shared_;  ///< if the client shares one: used by pool_
    sql::connection_pool pool_;
};

}  // namespace rowlock::detail

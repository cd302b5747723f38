#pragma once

#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/session_registry.hpp"
#include "sql/brief_wait.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <memory>

namespace rowlock::detail {

/// The connection of the thread that works for a client's waiters, and how long a statement may
/// take on it. Used by that thread alone, except is_connected().
class loop_connection {
public:
    loop_connection(client_context& context, session_registry& sessions,
                    client_connections& connections);

    /// Makes the connection, unless it is there and leads to the session's server. One round trip
    /// or two if it is new.
    sql::connection& open(sql::deadline until);
    /// Whether the connection broke, is to be replaced, or leads elsewhere.
    [[nodiscard]] bool is_stale() const;
    void close() noexcept;
    /// Null if it is not open.
    [[nodiscard]] sql::connection* get() const noexcept { return db_.get(); }
    /// The open connection.
    [[nodiscard]] sql::connection& operator*() const noexcept { return *db_; }
    [[nodiscard]] bool is_connected() const noexcept { return connected_; }

    /// Whether other nodes of a cluster may know more than ours, or that is not known yet.
    [[nodiscard]] bool in_cluster() const noexcept { return in_cluster_; }
    /// Whether wake-ups by the database are wanted, and no transaction pooler is in their way.
    [[nodiscard]] bool may_listen() const noexcept { return may_listen_; }

    /// The deadline of a statement that is sent now.
    [[nodiscard]] sql::deadline soon() const { return context_.statement_deadline(); }
    /// The same, for a task that writes: it does not wait long for a locked row.
    [[nodiscard]] sql::deadline write_deadline() const;
    /// A task that writes was done in time.
    void wrote() noexcept { patience_ = sql::brief; }
    /// A task that writes exceeded its time: the next one has more.
    void wrote_too_slowly() noexcept;
    /// Does a task that writes: `work(write_deadline())`. Returns false if another transaction has
    /// a row locked that it needs; any other error is thrown.
    template <typename Work>
    bool write(Work work) {
        try {
            work(write_deadline());
            wrote();
            return true;
        } catch (const error& failure) {
            const bool locked = sql::is_locked(*db_, failure);
            wrote_too_slowly();
            if (!locked) throw;
            return false;
        }
    }

private:
    void set_up(sql::deadline until);

    client_context& context_;
    session_registry& sessions_;
    client_connections& connections_;
    std::unique_ptr<sql::connection> db_;
    std::atomic<bool> connected_{false};
    bool is_set_up_ = false;
    bool in_cluster_;
    bool may_listen_;
    bool pooler_known_ = false;
    nanoseconds patience_ = sql::brief;  ///< lock wait of a task that writes, on SQLite
};

}  // namespace rowlock::detail

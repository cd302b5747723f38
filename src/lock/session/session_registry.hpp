#pragma once

#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/lost_sessions.hpp"
#include "lock/session/session.hpp"
#include <rowlock/events.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace rowlock::detail {

/// The session in which a client acquires leases: opened with the first acquire, replaced after it
/// was lost; and those lost ones that are still to be ended. Thread-safe; no mutex is held over a
/// round trip.
class session_registry {
public:
    struct hooks {
        /// Starts the threads that keep a session alive, unless they run.
        /// @throws error if they cannot be started: no session is opened without them
        std::function<void()> before_opened;
        /// A session has become the current one. Called with the mutex held: must not call the
        /// registry.
        std::function<void()> on_current;
        std::function<void()> on_opened;
        /// The current session is lost, its grants are declared lost.
        std::function<void(session_id, loss_reason)> on_lost;
        /// Another server answers: what was learnt from the old one is no longer true.
        std::function<void()> on_server_changed;
        /// A lost session may be due.
        std::function<void()> on_due;
    };

    session_registry(client_context& context, hooks use);
    session_registry(const session_registry&) = delete;
    session_registry& operator=(const session_registry&) = delete;
    ~session_registry() = default;

    /// Null if there is none.
    [[nodiscard]] std::shared_ptr<session> current() const;
    /// The current session if it has this id, else null: that session is lost or over.
    [[nodiscard]] std::shared_ptr<session> current(session_id id) const;
    /// The current session, in its trust window; opened in one or two round trips if there is none.
    /// One thread opens it, the others wait.
    /// @throws error; errc::lock_lost if the client is closed
    std::shared_ptr<session> ensure(sql::connection& db, sql::deadline until);

    /// Declares the session and its grants lost, unless that was done already.
    void lose(session& ours, loss_reason why) noexcept;
    [[nodiscard]] lost_sessions& lost() noexcept { return lost_; }

    /// Checks a new connection. If it leads to another server than our session's, the session and
    /// all its leases are lost: a promoted standby may not know them. The statements would find
    /// that too (fragment `here`); this finds it with the first connection, and gives the reason.
    /// The caller's attempt was meant for the old session and is repeated without it.
    void require_same_server(sql::connection& db, sql::deadline until);
    /// Whether an existing connection leads to another server than the current session's.
    [[nodiscard]] bool leads_elsewhere(sql::connection& db) const;
    /// For a session that the database does not find alive. Behind a pooler the server may have
    /// changed under a connection. One round trip where the server identifies itself.
    [[nodiscard]] loss_reason why_over(const session& ours, sql::connection& db,
                                       sql::deadline until) const noexcept;
    /// The same, on a connection of its own; none is taken if there is nothing to ask.
    [[nodiscard]] loss_reason why_over(const session& ours,
                                       client_connections& connections) const noexcept;

    /// No session is opened any more.
    void close() noexcept;
    [[nodiscard]] bool is_closed() const noexcept { return closed_; }
    /// Forgets the current session, which was ended.
    void clear() noexcept;

private:
    [[nodiscard]] std::shared_ptr<session> open(sql::connection& db, sql::deadline until);
    [[nodiscard]] session::endpoint make_endpoint() const;
    void adopt(std::shared_ptr<session> opened);

    client_context& context_;
    const hooks hooks_;
    lost_sessions lost_;
    mutable std::mutex mutex_;
    std::atomic<bool> closed_{false};
    bool opening_ = false;  ///< one thread opens a session, the others wait for it
    std::condition_variable opened_;
    bool schema_checked_ = false;  ///< used by the opening thread alone
    std::shared_ptr<session> current_;
};

}  // namespace rowlock::detail

#pragma once

#include "coordination/session/client_context.hpp"
#include "coordination/session/session.hpp"
#include "coordination/session/waiters.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <poll.h>

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// Wakes a holder when another client has changed rows of its session and notifies it outside the
/// tables. A notification moves the next heartbeat forward, which asks the database. The waiters'
/// thread reads the mailbox once it runs; before that the heartbeat's thread does. PostgreSQL's
/// notifications are received by the one of the two whose connection listens.
///
/// The heartbeat's thread calls all functions but accept() and turn_passed().
class change_listener {
public:
    change_listener(client_context& context, waiters& waiting)
        : context_{context}, waiting_{waiting} {}

    /// Fills in the descriptors to poll before the heartbeat's thread sleeps. Returns when to call
    /// read_wakeups() at the latest. @param db the heartbeat's connection, or null
    nanoseconds open(const session& ours, sql::connection* db, std::span<pollfd> on) noexcept;
    /// Reads what arrived. Returns true if the next heartbeat is due now. After useless messages
    /// the thread ignores its descriptors for mailbox::rest_from_flood: a process that keeps
    /// sending costs a few hundred wake-ups a second.
    bool read_wakeups(session& ours, sql::connection* db) noexcept;
    /// PostgreSQL: the heartbeat's connection listens while the waiters' does not; LISTEN is sent
    /// once per session and connection. A listening connection costs the server time on every
    /// notification in the database, so a client has only one.
    void listen(const session& ours, sql::connection& db, sql::deadline until);
    /// The heartbeat has a new connection.
    void connection_opened() noexcept;

    /// A turn on the shared connection is over and may have read a notification. Any thread.
    void turn_passed() noexcept { unheard_ = true; }
    enum class use : unsigned char {
        none,
        change,  ///< of our rows: the next heartbeat is due
        recall,  ///< of a lease that the client keeps
    };
    /// What a message is good for. Any local user may write to our mailbox and any role of the
    /// database to our channel: a message without proof is dropped. So is one that is not news,
    /// such as a replay of an overheard message. Any thread.
    [[nodiscard]] use accept(session& ours, std::string_view message) const;

private:
    void read_messages(const session& ours, sql::connection* db, std::vector<std::string>& into);
    [[nodiscard]] bool hears_notifications() const noexcept;
    [[nodiscard]] bool may_listen_on(sql::connection& db, sql::deadline until);

    client_context& context_;
    waiters& waiting_;
    nanoseconds deaf_until_{0};         ///< after useless notifications
    std::atomic<bool> unheard_{false};  ///< another user may have read notifications
    session_id listens_for_{};          ///< session id, on the heartbeat's connection
    bool may_listen_ = true;            ///< that connection may receive our notifications
    std::optional<bool> is_direct_;     ///< no pooler is in between
};

}  // namespace rowlock::detail

#pragma once

#include "lock/session/client_context.hpp"
#include "lock/session/session.hpp"
#include "lock/session/waiters.hpp"
#include "lock/wakeup/listening_connection.hpp"
#include <rowlock/sql/connection.hpp>

#include <poll.h>

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// Wakes a holder when another client has changed rows of its session and notifies it outside the
/// tables. A notification moves the next heartbeat forward, which asks the database. The waiters'
/// thread reads the mailbox and PostgreSQL's notifications once it runs; before that the
/// heartbeat's thread does.
///
/// The heartbeat's thread calls all functions but accept() and turn_passed().
class change_listener {
public:
    change_listener(client_context& context, waiters& waiting,
                    wakeup::listening_connection& listening)
        : context_{context}, waiting_{waiting}, listening_{listening} {}

    /// Fills in the descriptors to poll before the heartbeat's thread sleeps. Returns when to call
    /// read_wakeups() at the latest.
    nanoseconds open(const session& ours, std::span<pollfd> on) noexcept;
    /// Reads what arrived. Returns true if the next heartbeat is due now. After useless messages
    /// the thread ignores its descriptors for mailbox::rest_from_flood: a process that keeps
    /// sending costs a few hundred wake-ups a second.
    bool read_wakeups(session& ours) noexcept;
    /// PostgreSQL: has the client listen for the session. Never waits.
    /// @param db any connection of the client
    void listen(const session& ours, sql::connection& db) noexcept;

    /// The client listens, or a turn on the shared connection may have read a notification. Any
    /// thread.
    void turn_passed() noexcept { unheard_ = true; }
    /// Whether a message tells of a change of our rows: the next heartbeat is due. Any local user
    /// may write to our mailbox and any role of the database to our channel: a message without
    /// proof is dropped. So is one that is not news, such as a replay of an overheard message. Any
    /// thread.
    [[nodiscard]] bool accept(session& ours, std::string_view message) const;

private:
    void read_messages(const session& ours, std::vector<std::string>& into);

    client_context& context_;
    waiters& waiting_;
    wakeup::listening_connection& listening_;
    nanoseconds deaf_until_{0};         ///< after useless notifications
    std::atomic<bool> unheard_{false};  ///< another user may have read notifications
};

}  // namespace rowlock::detail

#pragma once

#include "coordination/protocol/queue/queue_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::detail {

/// What the parts that keep a session alive ask of the part in which threads wait for leases. All
/// functions are thread-safe, and none makes a round trip but after_release().
class waiters {
public:
    waiters() = default;
    waiters(const waiters&) = delete;
    waiters& operator=(const waiters&) = delete;
    virtual ~waiters() = default;

    /// All threads that wait in this session fail.
    virtual void session_lost(session_id session, loss_reason why) noexcept = 0;
    /// A commit that has returned ended this session, of any client: its leases are handed to
    /// waiters.
    virtual void session_ended(session_id session) noexcept = 0;
    /// A commit that has returned freed this lease, or may have: with `reply_lost` it may also have
    /// served a thread of ours.
    virtual void lease_freed(const std::string& name, bool reply_lost) noexcept = 0;
    void lease_freed(const std::string& name) noexcept { lease_freed(name, false); }
    /// Wakes the waiter that the release served, in one round trip where the statement did not wake
    /// it. If it served none, a ticket may have been committed after its snapshot.
    virtual void after_release(sql::connection& db, const std::string& name,
                               const protocol::release_outcome& done,
                               sql::deadline until) noexcept = 0;
    /// Fails the threads that wait for `name`.
    virtual void fail(const error& why, std::string_view name) = 0;
    /// All entries of ours are polled soon.
    virtual void poll_soon() noexcept = 0;

    // Which thread reads what wakes the session: the waiters' once it runs.
    /// Reads the current session's mailbox, or starts to listen, anew. Returns false if there is no
    /// such thread.
    virtual bool listen_again() noexcept = 0;
    [[nodiscard]] virtual bool is_running() const noexcept = 0;
    /// Whether its connection receives notifications to this session (PostgreSQL).
    [[nodiscard]] virtual bool listens_for(session_id session) const noexcept = 0;
    /// Calls `use` with is_running(), which does not change meanwhile.
    virtual void while_unchanged(const std::function<void(bool running)>& use) = 0;
};

}  // namespace rowlock::detail

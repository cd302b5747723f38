#pragma once

#include "lock/protocol/hold/hold_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::detail {

/// What the parts that keep a session alive ask of the part in which threads wait for locks. All
/// functions are thread-safe, and none makes a round trip but after_release(), serve() and
/// take_back().
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
    /// A commit that has returned freed a lock, or a part of it, or deleted an entry of its queue:
    /// the queue is looked at.
    virtual void freed(const std::string& name) noexcept = 0;
    /// The same of a commit whose answer was lost: it may also have served a thread of ours.
    virtual void perhaps_freed(const std::string& name) noexcept = 0;
    /// Runs `act`, which may free a part of the lock. If its outcome is unknown, the queue is
    /// looked at, as by perhaps_freed().
    template <typename Act>
    auto look_if_unknown(const std::string& name, const Act& act) {
        try {
            return act();
        } catch (const error& failure) {
            if (failure.kind() == errc::outcome_unknown) perhaps_freed(name);
            throw;
        }
    }
    /// Wakes the waiter that the release served, in one round trip where the statement did not wake
    /// it. If it served none, a ticket may have been committed after its snapshot. Where waiters
    /// are expected that the release has not served, they are: see serve().
    virtual void after_release(sql::connection& db, const std::string& name,
                               const protocol::release_outcome& done,
                               sql::deadline until) noexcept = 0;
    /// Serves the head of a queue (queue_protocol::serve) while that grants anything, and wakes
    /// those that were served. One round trip, one more where it grants a part of the lock, and one
    /// to wake each.
    virtual void serve(sql::connection& db, const std::string& name, protocol::queue_head expected,
                       sql::deadline until) = 0;
    /// What take_back() found.
    struct taken_back {
        bool any = false;                  ///< by this call: a session or a hold was ended
        protocol::permit_holders found{};  ///< before
    };
    /// Ends the sessions that hold one of the names and have expired, each in a commit of its own
    /// (I3), and takes back what ended sessions and holds past their deadline have. It
    /// serves no waiter: that is planned, as is what else those sessions had. Leaves a hold that
    /// another transaction has locked. One round trip a name if there is nothing, one more for each
    /// session, and some.
    virtual std::vector<taken_back> take_back(sql::connection& db,
                                              std::span<const std::string> names,
                                              sql::deadline until) = 0;
    /// Fails the threads that wait for this lock, or for a part of it.
    virtual void fail(const error& why, std::string_view name) = 0;
    /// All entries of ours are polled soon.
    virtual void poll_soon() noexcept = 0;

    // Which thread reads what wakes the session: the waiters' once it runs.
    /// Reads the current session's mailbox, or starts to listen, anew. Returns false if there is no
    /// such thread.
    virtual bool listen_again() noexcept = 0;
    [[nodiscard]] virtual bool is_running() const noexcept = 0;
    /// Calls `use` with is_running(), which does not change meanwhile.
    virtual void while_unchanged(const std::function<void(bool running)>& use) = 0;
};

}  // namespace rowlock::detail

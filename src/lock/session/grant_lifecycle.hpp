#pragma once

#include "lock/session/client_context.hpp"
#include "lock/session/grant_deadlines.hpp"
#include "lock/session/session_registry.hpp"
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace rowlock::detail {

/// The reason for a loss by the grant's own deadline.
[[nodiscard]] loss_reason why_deadline_passed(const grant& over) noexcept;

/// Makes grants and ends them: each step in the ledger of its session, in the list of deadlines,
/// and for the heartbeat, which frees in the database what no call could free. No round trips.
/// Thread-safe.
class grant_lifecycle {
public:
    struct hooks {
        /// The heartbeat has something to free, or to end.
        std::function<void()> on_work;
        /// What this client knows and what the database shows may differ: they are to be compared.
        std::function<void()> on_doubt;
        /// A deadline was added.
        std::function<void()> on_deadline;
    };

    grant_lifecycle(client_context& context, session_registry& sessions, hooks use)
        : context_{context}, sessions_{sessions}, hooks_{std::move(use)} {}

    /// It counts as held from hand_out() on.
    /// @param sent when the statement was sent that granted it, or that read what is left of it
    /// @param max_duration from then to its own deadline, if it has one
    /// @param whole of a hold that was taken over: how long it was to last, which is more than what
    /// is left
    std::shared_ptr<grant> make(session& ours, std::string name, grant_id grant_id,
                                std::int64_t token, nanoseconds sent,
                                std::optional<std::chrono::microseconds> max_duration,
                                std::string thread, const protocol::wanted_permits& permits = {},
                                std::optional<std::chrono::microseconds> whole = {});
    /// A caller is about to receive these grants: from now on the client holds them. Returns false,
    /// and changes nothing, if one of them is not held: then no caller may receive any.
    [[nodiscard]] bool hand_out(std::span<const std::shared_ptr<grant>> granted) noexcept;
    /// The database confirmed that the grant is over.
    void forget(const grant& ended) noexcept;

    /// The holder has stopped working on what the lease protects. If the lease was lost, this
    /// client need not withhold it from the next holder any longer.
    void stopped(grant& by) noexcept;
    /// Declares the loss of a lease that this client relied on until now. The watchdog is about to
    /// do the same; the first of them declares it.
    void declare_if_over(grant& held) noexcept;
    /// Another client has asked for the release of this grant by its row's deadline, which was so
    /// long ahead when the row was read by a statement sent then. @param shortens whether that is
    /// earlier than this client believes
    void end_by(const std::shared_ptr<grant>& held, const release_request& request,
                nanoseconds sent, nanoseconds left, bool shortens);
    /// Another client has asked for it at once, and its own deadline, which was so long ahead when
    /// the row was read by a statement sent then, comes first: nothing moves that any more.
    void keep_deadline(const std::shared_ptr<grant>& held, nanoseconds sent, nanoseconds left);
    /// The table denies a grant that we believed: another client may hold the lease. Returns
    /// whether this call declared it lost.
    bool deny(grant& believed, grant::state from = grant::state::held) noexcept;
    /// The table denies a grant that was offered: another client has adopted it, or an operator has
    /// broken it. Returns false if it was not offered.
    bool taken_over(grant& offered) noexcept;
    /// Clears the row of a lease whose own deadline is over, to keep lists readable: the lease is
    /// free by the database's definition. Before the deadline, only once its holder has reported
    /// that it stopped.
    void clear_row(grant& passed) noexcept;

    /// Gives back a grant that no caller wants any more. The heartbeat releases it to the next
    /// waiter.
    void give_back(grant& unwanted) noexcept;
    /// Gives back an abandoned queue entry, and any grant that results from it.
    void give_back(session& ours, const protocol::hold_key& entry) noexcept;
    /// The reply to its release was lost or refused. Returns false if its session is over.
    bool leave_unanswered(const grant& released) noexcept;
    /// Adds the grant to those the heartbeat resolves. If there is no memory for that, the session
    /// forgets it, and a comparison with the database gives back rows that are not known.
    void leave_unresolved(session& ours, const protocol::hold_key& which,
                          unresolved_grant what) noexcept;

    [[nodiscard]] grant_deadlines& deadlines() noexcept { return deadlines_; }

private:
    void leave_denied(session& ours, const grant& lost) noexcept;

    client_context& context_;
    session_registry& sessions_;
    const hooks hooks_;
    grant_deadlines deadlines_;
};

}  // namespace rowlock::detail

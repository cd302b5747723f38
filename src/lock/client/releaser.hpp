#pragma once

#include "lock/client/call_batches.hpp"
#include "lock/client/call_parts.hpp"
#include "lock/client/token_cache.hpp"
#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/retry_loop.hpp"
#include "lock/session/session_keeper.hpp"
#include "lock/session/session_registry.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace rowlock::detail {

/// Releases leases: hands each to the waiter behind it, or frees it. Thread-safe.
class releaser {
public:
    explicit releaser(const call_parts& with)
        : context_{with.context},
          connections_{with.connections},
          sessions_{with.sessions},
          keeper_{with.keeper},
          retries_{with.retries},
          grants_{with.grants},
          batches_{with.batches},
          waiting_{with.waiting},
          tokens_{with.tokens} {}

    /// One round trip, two where a waiter is expected. A release that fails is repeated by the
    /// heartbeat.
    /// @throws error errc::lock_lost if the lease was lost
    void release(grant& held);
    /// Releases a lease to this waiter of its queue, which may overtake others there, or, if that
    /// waiter has gone, as release() does. Returns whether the waiter got it. One round trip, and
    /// one or two in the other case.
    /// @throws error as release()
    bool hand_over_to(grant& held, protocol::next_waiter heir);
    /// Stops this client's trust in a lease, so that another may take it over. No round trip.
    /// @throws error errc::lock_lost if it was lost; errc::not_owner if it was released
    void offer(grant& held);
    /// Releases several leases of one session: whole locks without a waiter together, in one
    /// commit, the others one by one. Two round trips, and one or two for each of the others.
    /// @throws error as release(), the first of them; the others are released all the same
    void release_several(std::span<const std::shared_ptr<grant>> all);
    /// The same, but reports failures as events.
    void release_several_quietly(std::span<const std::shared_ptr<grant>> all) noexcept;
    /// Lowers the permits of a hold to this number, or makes a hold with so many of a grant of all
    /// of the lock, and serves waiters. Two or three round trips, and some to serve waiters if
    /// there were any lately. Idempotent.
    /// @throws error errc::lock_lost if the hold was lost; errc::not_owner if it was released.
    /// After another error it has one of the two numbers.
    void shrink(grant& held, std::int64_t to);
    /// The hold has all of its lock from now on, by this grant of an upgrade, which ends with it.
    /// No round trip.
    void take_in(grant& hold, grant& upgrade) noexcept;
    /// Ends the upgrade of a hold. After an error the heartbeat ends it.
    /// @param more how many permits the hold has then, if that is more than before; after an error
    /// it has these, or not
    /// @throws error errc::lock_lost if the hold is over
    void end_upgrade(grant& hold, std::optional<std::int64_t> more);
    /// Ends what end_upgrade() could not confirm, if there is anything: no statement of it comes
    /// later.
    void finish_ending(grant& hold);
    /// @throws error errc::lock_lost if it was lost; errc::not_owner if it was released
    void require_held(grant& held);
    /// For a lease whose row was found to be another grant, or free: declares it lost.
    /// @throws error errc::lock_lost
    [[noreturn]] void refuse(grant& held);
    /// Moves a hold's own deadline to so long from now, never earlier.
    /// @throws error errc::invalid_options if it has none; errc::lock_lost, errc::not_owner as
    /// above
    void extend(grant& held, std::chrono::milliseconds by);
    /// Like release(), but reports a failure as an event.
    void release_quietly(grant& held) noexcept;

private:
    [[nodiscard]] bool send_end_of_upgrade(grant& hold, grant_id upgrade,
                                           std::optional<std::int64_t> more);
    protocol::extension send_extension(sql::connection& db, grant& held,
                                       std::chrono::milliseconds by, std::int64_t revision,
                                       sql::deadline until);
    /// A release that has begun: its grant is `releasing`.
    struct begun {
        bool perhaps_freed = false;  ///< a transaction of the caller may have freed it
        bool unknown = false;        ///< an answer to a release was lost
    };
    [[nodiscard]] std::optional<begun> begin(grant& held);
    /// How a release ended: the waiter that got the lease, if that is known.
    struct ending {
        bool unknown = false;  ///< an answer was lost
        std::optional<protocol::handed_over> next{};
    };
    ending finish(grant& held, begun how, const protocol::next_waiter* heir = nullptr);
    [[nodiscard]] std::vector<bool> release_unwaited(const std::vector<std::shared_ptr<grant>>& all,
                                                     bool& unknown) noexcept;
    [[nodiscard]] protocol::release_outcome send(grant& held, bool& unknown,
                                                 const protocol::next_waiter* heir);
    [[nodiscard]] protocol::release_outcome send_alone(grant& held, bool contended,
                                                       const protocol::next_waiter* heir,
                                                       sql::deadline until);
    [[nodiscard]] std::optional<protocol::release_outcome> send_together(const grant& held,
                                                                         bool contended,
                                                                         sql::deadline until,
                                                                         bool& unknown);
    [[nodiscard]] std::optional<protocol::handed_over> hand_over_to_next(sql::connection& db,
                                                                         grant& held,
                                                                         sql::deadline until);
    [[nodiscard]] std::optional<protocol::handed_over> hand_over_to(
        sql::connection& db, const grant& held, const protocol::next_waiter& next,
        sql::deadline until);
    void released(grant& held);
    void deny(grant& held);
    void leave_to_heartbeat(grant& held, const char* why) noexcept;

    client_context& context_;
    client_connections& connections_;
    session_registry& sessions_;
    session_keeper& keeper_;
    retry_loop& retries_;
    grant_lifecycle& grants_;
    call_batches& batches_;
    client_waiters& waiting_;
    token_cache& tokens_;
};

}  // namespace rowlock::detail

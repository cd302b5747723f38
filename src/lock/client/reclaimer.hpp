#pragma once

#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/reconciler.hpp"
#include "lock/session/retry_loop.hpp"
#include "lock/session/session_registry.hpp"
#include "lock/session/waiters.hpp"
#include <rowlock/ids.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace rowlock::detail {

/// Takes over the holds of a predecessor: an earlier process, or session, of the same owner.
class reclaimer {
public:
    /// Parts of the client that live as long as this.
    struct surroundings {
        client_context& context;
        session_registry& sessions;
        retry_loop& retries;
        grant_lifecycle& grants;
        reconciler& reconcile;
        waiters& waiting;
    };
    explicit reclaimer(const surroundings& with)
        : context_{with.context},
          sessions_{with.sessions},
          retries_{with.retries},
          grants_{with.grants},
          reconciler_{with.reconcile},
          waiting_{with.waiting} {}

    /// @throws error errc::invalid_options if the client has no stable owner; errc::lock_lost while
    /// holders of lost leases may still work
    std::vector<std::shared_ptr<grant>> reclaim();

private:
    void require_no_holder_of_lost();
    void reclaim_once(std::shared_ptr<session>& ours, std::vector<std::shared_ptr<grant>>& taken,
                      sql::connection& db, sql::deadline until);
    std::vector<session_id> move_rows(std::shared_ptr<session>& ours, sql::connection& db,
                                      sql::deadline until);
    std::shared_ptr<grant> adopt(session& ours, const protocol::session_hold& hold,
                                 nanoseconds sent, sql::connection& db, sql::deadline until);
    void hand_out(const std::shared_ptr<grant>& granted) noexcept;
    void abandon(session* ours, const std::vector<std::shared_ptr<grant>>& taken);

    client_context& context_;
    session_registry& sessions_;
    retry_loop& retries_;
    grant_lifecycle& grants_;
    reconciler& reconciler_;
    waiters& waiting_;
};

}  // namespace rowlock::detail

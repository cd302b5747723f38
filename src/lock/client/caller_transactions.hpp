#pragma once

#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/session_keeper.hpp"
#include "lock/session/session_registry.hpp"
#include "transaction/fencing/fencing.hpp"
#include <rowlock/sql/connection.hpp>
#include <rowlock/transaction.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace rowlock::detail {

/// Fences of leases, and their releases, in transactions of the caller's. Thread-safe; a connection
/// is its caller's.
class caller_transactions {
public:
    /// Parts of the client that live as long as this.
    struct surroundings {
        client_context& context;
        client_connections& connections;
        session_registry& sessions;
        session_keeper& keeper;
        grant_lifecycle& grants;
        client_waiters& waiting;
    };
    explicit caller_transactions(const surroundings& with)
        : context_{with.context},
          connections_{with.connections},
          sessions_{with.sessions},
          keeper_{with.keeper},
          grants_{with.grants},
          waiting_{with.waiting},
          fencing_{detail::make_fencing(context_.statements)} {}

    void fence(sql::connection& db, grant& held, const fence_options& options);
    void release_on_commit(sql::connection& db, grant& held, const fence_options& options);
    /// After fence() with the lease of a member of a quorum.
    /// @throws error errc::lock_lost if the member knows a later token
    void fence_quorum_token(sql::connection& db, const std::string& name, std::int64_t token,
                            const fence_options& options) const;

private:
    /// What a read on a connection of our own says of a grant.
    enum class standing : unsigned char { ours, over, session_over, unknown };
    using step = detail::verdict (detail::fencing::*)(sql::connection&, const detail::claim&,
                                                      const detail::fence_limits&,
                                                      sql::deadline) const;

    void run(sql::connection& db, grant& held, const fence_options& options, step what);
    void require_fenceable(grant& held);
    [[nodiscard]] standing look_up(grant& held, sql::deadline until) noexcept;
    [[nodiscard]] bool is_elsewhere(sql::connection& db, sql::deadline until) noexcept;
    [[noreturn]] void refuse(sql::connection& db, grant& held, std::int64_t token,
                             detail::verdict seen, sql::deadline until);
    void refuse_standing(sql::connection& db, standing now, bool released_in, detail::verdict seen,
                         sql::deadline until);
    void hold_again(grant& fenced, unsigned releases_before);

    client_context& context_;
    client_connections& connections_;
    session_registry& sessions_;
    session_keeper& keeper_;
    grant_lifecycle& grants_;
    client_waiters& waiting_;
    const std::unique_ptr<const detail::fencing> fencing_;
};

}  // namespace rowlock::detail

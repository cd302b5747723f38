#pragma once

#include "coordination/batch/lease_batches.hpp"
#include "coordination/batch/permit_batches.hpp"
#include "coordination/lease/acquirer.hpp"
#include "coordination/lease/adopter.hpp"
#include "coordination/lease/barriers.hpp"
#include "coordination/lease/caller_transactions.hpp"
#include "coordination/lease/elections.hpp"
#include "coordination/lease/lease_admin.hpp"
#include "coordination/lease/periodic_runs.hpp"
#include "coordination/lease/policies.hpp"
#include "coordination/lease/reclaimer.hpp"
#include "coordination/lease/releaser.hpp"
#include "coordination/lease/retention.hpp"
#include "coordination/lease/semaphore_admin.hpp"
#include "coordination/lease/token_cache.hpp"
#include "coordination/queue/client_waiters.hpp"
#include "coordination/session/client_connections.hpp"
#include "coordination/session/client_context.hpp"
#include "coordination/session/grant_lifecycle.hpp"
#include "coordination/session/reconciler.hpp"
#include "coordination/session/retry_loop.hpp"
#include "coordination/session/session_keeper.hpp"
#include "coordination/session/session_registry.hpp"
#include <rowlock/stats.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

namespace rowlock::detail {

struct hold;
class mode_holds;

/// A client: makes its parts and introduces them to each other, and closes them in order. It does
/// nothing else.
///
/// Threads: the callers'; those of session_keeper; that of the waiters' loop, from the first wait
/// or release on; delivery of events and loss signals. No part holds a mutex over a round trip, but
/// reclaim() its own.
class engine {
public:
    /// @throws error errc::invalid_options
    static std::shared_ptr<engine> make(sql::connection_source source, client_options options);
    explicit engine(sql::connection_source source, client_options options);
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine() = default;

    [[nodiscard]] client_context& context() noexcept { return context_; }
    [[nodiscard]] retry_loop& retries() noexcept { return retries_; }
    [[nodiscard]] const session_registry& sessions() const noexcept { return sessions_; }
    [[nodiscard]] acquirer& acquires() noexcept { return acquirer_; }
    [[nodiscard]] releaser& releases() noexcept { return releaser_; }
    [[nodiscard]] adopter& adoptions() noexcept { return adopter_; }
    [[nodiscard]] reclaimer& reclaims() noexcept { return reclaimer_; }
    [[nodiscard]] lease_admin& admin() noexcept { return admin_; }
    [[nodiscard]] semaphore_admin& semaphores() noexcept { return semaphores_; }
    [[nodiscard]] periodic_runs& runs() noexcept { return runs_; }
    [[nodiscard]] policies& demands() noexcept { return policies_; }
    [[nodiscard]] elections& offices() noexcept { return elections_; }
    [[nodiscard]] detail::barriers& barriers() noexcept { return barriers_; }
    [[nodiscard]] caller_transactions& transactions() noexcept { return transactions_; }

    [[nodiscard]] client_stats stats() const;
    /// The hold that recursive mutexes of this name share.
    std::shared_ptr<hold> shared_hold(const std::string& name,
                                      const std::function<std::shared_ptr<hold>()>& make);
    /// What all shared_mutex objects of this name share.
    std::shared_ptr<mode_holds> shared_mode_holds(
        const std::string& name, const std::function<std::shared_ptr<mode_holds>()>& make);

    /// Ends the session; the object only answers `lost` from then on. Bounded by some statement
    /// deadlines.
    void close() noexcept;
    /// In a forked child: lets go of connections and threads that belong to the parent.
    static void abandon(std::shared_ptr<engine> inherited) noexcept;

private:
    [[nodiscard]] client_connections::hooks connection_hooks();
    [[nodiscard]] session_registry::hooks session_hooks();
    [[nodiscard]] grant_lifecycle::hooks grant_hooks();
    [[nodiscard]] std::function<nanoseconds()> reaper();
    nanoseconds reap() noexcept;
    void end_sessions(waiting_threads::leftovers& rest, sql::deadline until) noexcept;
    bool end_own_session(session& ours, waiting_threads::leftovers& rest, sql::deadline until);
    void hand_over_last(const waiting_threads::leftovers& rest, sql::deadline until) noexcept;

    // In this order: each part uses the ones before it, and some, through hooks and references that
    // no constructor calls, later ones. They are destroyed when no thread of theirs runs.
    client_context context_;
    std::stop_source reaping_;
    client_connections connections_;
    session_registry sessions_;
    retry_loop retries_;
    grant_lifecycle grants_;
    token_cache tokens_;
    reconciler reconciler_;
    session_keeper keeper_;
    client_waiters waiting_;
    lease_batches batches_;
    permit_batches permit_batches_;
    acquirer acquirer_;
    releaser releaser_;
    retention retention_;
    adopter adopter_;
    reclaimer reclaimer_;
    lease_admin admin_;
    semaphore_admin semaphores_;
    periodic_runs runs_;
    policies policies_;
    elections elections_;
    detail::barriers barriers_;
    caller_transactions transactions_;

    std::mutex holds_mutex_;
    std::unordered_map<std::string, std::weak_ptr<hold>> holds_;
    std::unordered_map<std::string, std::weak_ptr<mode_holds>> mode_holds_;
};

}  // namespace rowlock::detail

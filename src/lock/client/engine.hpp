#pragma once

#include "lock/client/acquirer.hpp"
#include "lock/client/adopter.hpp"
#include "lock/client/call_batches.hpp"
#include "lock/client/call_parts.hpp"
#include "lock/client/caller_transactions.hpp"
#include "lock/client/engine_part.hpp"
#include "lock/client/lease_admin.hpp"
#include "lock/client/policies.hpp"
#include "lock/client/reclaimer.hpp"
#include "lock/client/releaser.hpp"
#include "lock/client/semaphore_admin.hpp"
#include "lock/client/token_cache.hpp"
#include "lock/queue/client_waiters.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/reconciler.hpp"
#include "lock/session/retry_loop.hpp"
#include "lock/session/session_keeper.hpp"
#include "lock/session/session_registry.hpp"
#include <rowlock/stats.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <vector>

namespace rowlock::detail {

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
    [[nodiscard]] session_registry& sessions() noexcept { return sessions_; }
    [[nodiscard]] client_waiters& waiting() noexcept { return waiting_; }
    [[nodiscard]] acquirer& acquires() noexcept { return acquirer_; }
    [[nodiscard]] releaser& releases() noexcept { return releaser_; }
    [[nodiscard]] adopter& adoptions() noexcept { return adopter_; }
    [[nodiscard]] reclaimer& reclaims() noexcept { return reclaimer_; }
    [[nodiscard]] lease_admin& admin() noexcept { return admin_; }
    [[nodiscard]] semaphore_admin& semaphores() noexcept { return semaphores_; }
    [[nodiscard]] policies& demands() noexcept { return policies_; }
    [[nodiscard]] caller_transactions& transactions() noexcept { return transactions_; }

    [[nodiscard]] client_stats stats() const;
    /// What a recipe keeps in this client. Made from the engine at the first call.
    /// @throws error errc::wrong_process in a forked child
    template <std::derived_from<engine_part> Part>
    [[nodiscard]] Part& part() {
        context_.fork.require_same_process();  // the mutex may be locked there for ever
        const std::lock_guard lock{parts_mutex_};
        auto& slot = parts_[typeid(Part)];
        if (!slot) slot = std::make_unique<Part>(*this);
        return static_cast<Part&>(*slot);
    }
    /// A part has work for the heartbeat.
    void poke() const noexcept { keeper_.poke(); }

    /// Ends the session; the object only answers `lost` from then on. Bounded by some statement
    /// deadlines.
    void close() noexcept;
    /// In a forked child: lets go of connections and threads that belong to the parent.
    static void abandon(std::shared_ptr<engine> inherited) noexcept;

private:
    [[nodiscard]] call_parts parts_of_calls() noexcept;
    [[nodiscard]] client_connections::hooks connection_hooks();
    [[nodiscard]] session_registry::hooks session_hooks();
    [[nodiscard]] grant_lifecycle::hooks grant_hooks();
    [[nodiscard]] std::function<nanoseconds()> reaper();
    nanoseconds reap() noexcept;
    [[nodiscard]] nanoseconds parts_due() const;
    void work_of_parts(sql::connection& db, sql::deadline until, bool at_once);
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
    call_batches batches_;
    acquirer acquirer_;
    releaser releaser_;
    adopter adopter_;
    reclaimer reclaimer_;
    lease_admin admin_;
    semaphore_admin semaphores_;
    policies policies_;
    caller_transactions transactions_;

    mutable std::mutex parts_mutex_;
    std::unordered_map<std::type_index, std::unique_ptr<engine_part>> parts_;
};

}  // namespace rowlock::detail

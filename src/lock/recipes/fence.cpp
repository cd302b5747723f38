// What a caller's transaction is fenced with: whatever holds a lock.

#include "lock/client/engine.hpp"
#include "lock/recipes/hold.hpp"
#include "lock/recipes/mode_holds.hpp"
#include <rowlock/error.hpp>
#include <rowlock/multi_lease.hpp>
#include <rowlock/mutex.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>
#include <rowlock/transaction.hpp>

#include <memory>
#include <mutex>

namespace rowlock {
namespace detail {

/// Returns the grant behind a user's lease or mutex; null if there is none.
struct grant_of {
    static std::shared_ptr<grant> object(const lease& held) { return held.grant_; }
    static std::shared_ptr<grant> object(const permits& held) { return held.hold_.grant_; }
    static std::shared_ptr<grant> object(const mode_lease& held) { return held.hold_.grant_; }
    static const mode_holds& holds(const shared_mutex& locked) { return *locked.holds_; }

    template <typename Mutex>
    static std::shared_ptr<grant> object(const Mutex& locked) {
        locked.hold_->fork.require_same_process();
        const std::lock_guard lock{locked.hold_->guard};
        return locked.hold_->is_mine() ? locked.hold_->current->grant_ : nullptr;
    }
};

namespace {

template <typename Lock>
void in_transaction_of(sql::connection& db, const Lock& lock, const fence_options& options,
                       void (caller_transactions::*what)(sql::connection&, grant&,
                                                         const fence_options&),
                       const char* without) {
    const auto held = grant_of::object(lock);
    if (!held) throw error{errc::not_owner, without};
    held->fork.require_same_process();
    if (const auto owner = held->owner.lock()) {
        return (owner->transactions().*what)(db, *held, options);
    }
    throw error{errc::lock_lost, "the client of this lease was destroyed, which released it"};
}

constexpr auto no_lease = "this lease holds nothing: acquire one first";
constexpr auto no_lock = "this thread has not locked this mutex";
constexpr auto no_permits = "this holds no permits: acquire some first";
constexpr auto no_mode = "this holds nothing: acquire the shared_mutex first";

}  // namespace
}  // namespace detail

void fence(sql::connection& db, const lease& held, const fence_options& options) {
    detail::in_transaction_of(db, held, options, &detail::caller_transactions::fence,
                              detail::no_lease);
}

void fence(sql::connection& db, const mutex& locked, const fence_options& options) {
    detail::in_transaction_of(db, locked, options, &detail::caller_transactions::fence,
                              detail::no_lock);
}

void fence(sql::connection& db, const recursive_mutex& locked, const fence_options& options) {
    detail::in_transaction_of(db, locked, options, &detail::caller_transactions::fence,
                              detail::no_lock);
}

void fence(sql::connection& db, const multi_lease& held, const fence_options& options) {
    if (held.size() == 0) throw error{errc::not_owner, "there is no lease to fence"};
    for (const auto& each : held.leases()) fence(db, each, options);
}

void fence(sql::connection& db, const permits& held, const fence_options& options) {
    detail::in_transaction_of(db, held, options, &detail::caller_transactions::fence,
                              detail::no_permits);
}

void fence(sql::connection& db, const mode_lease& held, const fence_options& options) {
    detail::in_transaction_of(db, held, options, &detail::caller_transactions::fence,
                              detail::no_mode);
}

void fence(sql::connection& db, const shared_mutex& locked, const fence_options& options) {
    fence(db, detail::grant_of::holds(locked).require_mine().used->lease, options);
}

void release_on_commit(sql::connection& db, lease& held, const fence_options& options) {
    detail::in_transaction_of(db, held, options, &detail::caller_transactions::release_on_commit,
                              detail::no_lease);
}

}  // namespace rowlock

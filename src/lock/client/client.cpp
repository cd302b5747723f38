#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>

namespace rowlock {
namespace {

protocol::wanted_permits wanted_by(const lock_request& request) {
    if (!request.permits) return protocol::wanted_for(request.mode);
    require(request.mode == lock_mode::exclusive, "permits of a semaphore have no mode");
    require(*request.permits > 0, "ask for one permit or more");
    return {.count = *request.permits};
}

}  // namespace

client::client(sql::connection_source source, client_options options)
    : engine_{detail::engine::make(std::move(source), std::move(options))} {}

client::~client() {
    if (engine_->context().fork.in_child()) {
        detail::engine::abandon(std::move(engine_));
    } else {
        engine_->close();
    }
}

lease client::acquire(const lock_name& name, const acquire_options& options) {
    return *acquire_until(name, time_point::max(), {}, options);
}

std::optional<lease> client::try_acquire(const lock_name& name, const acquire_options& options) {
    return acquire_until(name, time_point::min(), {}, options);
}

multi_lease client::acquire_all(const std::vector<lock_request>& wanted,
                                const acquire_options& options) {
    auto granted = acquire_all_until(wanted, time_point::max(), {}, options);
    return std::move(*granted);  // neither a time limit nor a stop can have ended the call
}

std::optional<multi_lease> client::try_acquire_all(const std::vector<lock_request>& wanted,
                                                   const acquire_options& options) {
    return acquire_all_until(wanted, time_point::min(), {}, options);
}

std::optional<lease> client::adopt(const lease_offer& offer) {
    static_cast<void>(lock_name{offer.name});
    auto taken = engine_->adoptions().adopt(offer);
    if (!taken) return std::nullopt;
    return lease{std::move(taken)};
}

bool client::is_locked(const lock_name& name) {
    return engine_->admin().is_locked(name);
}

bool client::holds(const lock_name& name) const {
    return engine_->acquires().holds(name);
}

void client::assert_held(const lock_name& name) const {
    if (holds(name)) return;
    throw error{errc::not_owner, "this code must run under the lock \"" + name.str() +
                                     "\", which this client does not hold"};
}

std::optional<lease_info> client::inspect(const lock_name& name) {
    return engine_->admin().inspect(name);
}

std::vector<lease_info> client::list(std::string_view prefix, const page& page) {
    return engine_->admin().list(prefix, page);
}

std::vector<waiter_info> client::waiters(const lock_name& name) {
    return engine_->admin().waiters(name);
}

std::optional<std::chrono::milliseconds> client::request_release(const lock_name& name,
                                                                 fencing_token holder,
                                                                 const request_options& options) {
    return engine_->admin().request_release(name, holder, options);
}

bool client::force_release(const lock_name& name) {
    return engine_->admin().force_release(name, std::nullopt);
}

bool client::force_release(const lock_name& name, fencing_token holder) {
    return engine_->admin().force_release(name, holder);
}

void client::set_max_hold(const lock_name& name, std::optional<std::chrono::milliseconds> limit) {
    engine_->demands().set_max_hold(name, limit);
}

std::optional<std::chrono::milliseconds> client::max_hold(const lock_name& name) {
    return engine_->demands().max_hold(name);
}

client_stats client::stats() const {
    return engine_->stats();
}

const std::string& client::owner() const noexcept {
    return engine_->context().options.owner;
}

std::optional<lease> client::acquire_until(const lock_name& name, time_point until,
                                           std::stop_token stop, const acquire_options& options) {
    const auto alive = engine_;  // until the call learns of the client's destruction
    auto granted = alive->acquires().acquire(name, until, stop, options);
    if (!granted) return std::nullopt;
    return lease{std::move(granted)};
}

std::optional<multi_lease> client::acquire_all_until(const std::vector<lock_request>& wanted,
                                                     time_point until, std::stop_token stop,
                                                     const acquire_options& options) {
    const auto alive = engine_;
    std::vector<detail::wanted_lock> locks;
    for (const auto& each : wanted) locks.push_back({each.name, wanted_by(each)});
    std::vector<lease> leases;
    leases.reserve(wanted.size());  // before the grants: nothing may fail after them
    auto granted = alive->acquires().acquire_several(std::move(locks), until, stop, options);
    if (granted.empty()) return std::nullopt;
    for (auto& each : granted) leases.push_back(lease{std::move(each)});
    return multi_lease{std::move(leases)};
}

}  // namespace rowlock

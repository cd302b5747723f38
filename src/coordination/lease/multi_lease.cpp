#include "coordination/lease/engine.hpp"
#include "coordination/protocol/semaphore/semaphore_protocol.hpp"
#include "coordination/session/grant.hpp"
#include <rowlock/error.hpp>
#include <rowlock/multi_mode_lease.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

namespace rowlock {

template <typename Lease>
struct multi_hold<Lease>::state {
    using signal = std::stop_callback<std::function<void()>>;

    explicit state(std::vector<Lease> all) : leases{std::move(all)}, signals(2 * leases.size()) {
        auto next = signals.begin();
        const auto pass_on = [&](const std::stop_token& from, const std::stop_source& to) {
            (next++)->emplace(from, [to]() mutable { to.request_stop(); });
        };
        for (const auto& each : leases) {
            pass_on(each.lost(), lost);
            pass_on(each.release_requested(), requested);
        }
    }

    /// Calls `use` with the client's engine and the grants of the leases. Returns false, and does
    /// nothing, if there are none, or the client is gone.
    template <typename Use>
    bool with_grants(Use use) const {
        std::vector<std::shared_ptr<detail::grant>> all;
        for (const auto& each : leases) {
            if (each.grant_) all.push_back(each.grant_);
        }
        if (all.empty()) return false;
        const auto engine = all.front()->owner.lock();
        if (engine) use(*engine, all);
        return engine != nullptr;
    }

    std::stop_source lost{}, requested{};
    std::vector<Lease> leases;
    std::vector<std::optional<signal>> signals;  ///< gone before the leases are
};

template <typename Lease>
multi_hold<Lease>::multi_hold() noexcept = default;

template <typename Lease>
multi_hold<Lease>::multi_hold(std::vector<Lease> all)
    : state_{std::make_unique<state>(std::move(all))} {}

template <typename Lease>
multi_hold<Lease>::multi_hold(multi_hold&&) noexcept = default;

template <typename Lease>
multi_hold<Lease>& multi_hold<Lease>::operator=(multi_hold&& other) noexcept {
    // The old leases are released as the temporary goes out of scope.
    multi_hold moved{std::move(other)};
    state_.swap(moved.state_);
    return *this;
}

/// Modes are released by their own destructors.
template <typename Lease>
multi_hold<Lease>::~multi_hold() {
    if constexpr (std::same_as<Lease, lease>) {
        if (!state_) return;
        try {
            state_->with_grants([](detail::engine& by, const auto& all) {
                if (!all.front()->fork.in_child()) by.releases().release_several_quietly(all);
            });
        } catch (...) {
            // No memory: each lease is released by its own destructor.
        }
    }
}

template <typename Lease>
std::span<const Lease> multi_hold<Lease>::leases() const noexcept {
    return state_ ? std::span<const Lease>{state_->leases} : std::span<const Lease>{};
}

template <typename Lease>
const Lease& multi_hold<Lease>::operator[](std::string_view name) const {
    const auto all = leases();
    const auto found = std::ranges::find(all, name, &Lease::name);
    if (found == all.end()) throw error{errc::not_owner, "none of these leases has that name"};
    return *found;
}

template <typename Lease>
bool multi_hold<Lease>::held() const noexcept {
    const auto all = leases();
    return !all.empty() && std::ranges::all_of(all, &Lease::held);
}

template <typename Lease>
std::chrono::milliseconds multi_hold<Lease>::remaining() const noexcept {
    const auto all = leases();
    auto least = std::chrono::milliseconds::max();
    for (const auto& each : all) least = std::min(least, each.remaining());
    return all.empty() ? std::chrono::milliseconds{0} : least;
}

template <typename Lease>
std::stop_token multi_hold<Lease>::lost() const {
    return state_ ? state_->lost.get_token() : std::stop_token{};
}

template <typename Lease>
std::stop_token multi_hold<Lease>::release_requested() const {
    return state_ ? state_->requested.get_token() : std::stop_token{};
}

template <typename Lease>
void multi_hold<Lease>::release() {
    if (!state_) return;
    if constexpr (std::same_as<Lease, lease>) {
        const bool done = state_->with_grants([](detail::engine& by, const auto& all) {
            all.front()->fork.require_same_process();
            by.releases().release_several(all);
        });
        if (done) return;
    }
    std::exception_ptr failed;
    for (auto& each : state_->leases) {
        try {
            each.release();  // says what became of it
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    }
    if (failed) std::rethrow_exception(failed);
}

template <typename Lease>
std::vector<Lease> multi_hold<Lease>::split() && {
    if (!state_) return {};
    state_->signals.clear();
    auto all = std::move(state_->leases);
    state_.reset();
    return all;
}

template class multi_hold<lease>;
template class multi_hold<mode_lease>;

std::optional<multi_mode_lease> detail::modes_at_once::acquire(
    client& locks, const std::vector<mode_request>& wanted,
    std::chrono::steady_clock::time_point until, const std::stop_token& stop,
    const mode_options& options) {
    const auto alive = locks.engine_;  // until the call learns of the client's destruction
    std::vector<wanted_lock> all;
    for (const auto& each : wanted) all.push_back({each.name, protocol::permits_for(each.mode)});
    // Room before the grants: each of them is released if something throws behind them.
    std::vector<lease> loose;
    std::vector<mode_lease> held;
    loose.reserve(all.size());
    held.reserve(all.size());
    auto granted = alive->acquires().acquire_several(
        std::move(all), until, stop, {.note = options.note, .max_duration = options.max_duration});
    if (granted.empty()) return std::nullopt;
    for (auto& each : granted) loose.push_back(lease{std::move(each)});
    for (auto& each : loose) {
        const auto mode = *protocol::mode_for(each.grant_->permits);
        held.push_back(mode_lease{std::move(each), mode});
    }
    return multi_mode_lease{std::move(held)};
}

multi_mode_lease acquire_all(client& locks, const std::vector<mode_request>& wanted,
                             const mode_options& options) {
    return *detail::modes_at_once::acquire(
        locks, wanted, std::chrono::steady_clock::time_point::max(), {}, options);
}

std::optional<multi_mode_lease> try_acquire_all(client& locks,
                                                const std::vector<mode_request>& wanted,
                                                const mode_options& options) {
    return detail::modes_at_once::acquire(
        locks, wanted, std::chrono::steady_clock::time_point::min(), {}, options);
}

}  // namespace rowlock

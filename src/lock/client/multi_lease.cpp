#include "lock/client/engine.hpp"
#include "lock/session/grant.hpp"
#include <rowlock/error.hpp>
#include <rowlock/multi_lease.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

namespace rowlock {

struct multi_lease::state {
    using signal = std::stop_callback<std::function<void()>>;

    explicit state(std::vector<lease> all) : leases{std::move(all)}, signals(2 * leases.size()) {
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
    base::fork_guard fork{};
    std::vector<lease> leases;
    std::vector<std::optional<signal>> signals;  ///< gone before the leases are
};

multi_lease::multi_lease() noexcept = default;

multi_lease::multi_lease(std::vector<lease> all)
    : state_{std::make_unique<state>(std::move(all))} {}

multi_lease::multi_lease(multi_lease&&) noexcept = default;

multi_lease& multi_lease::operator=(multi_lease&& other) noexcept {
    // The old leases are released as the temporary goes out of scope.
    multi_lease moved{std::move(other)};
    state_.swap(moved.state_);
    return *this;
}

multi_lease::~multi_lease() {
    if (!state_) return;
    if (state_->fork.in_child()) {
        // A thread of the parent that called back at the fork would be waited for.
        static_cast<void>(state_.release());
        return;
    }
    try {
        state_->with_grants([](detail::engine& by, const auto& all) {
            by.releases().release_several_quietly(all);
        });
    } catch (...) {
        // No memory: each lease is released by its own destructor.
    }
}

std::span<const lease> multi_lease::leases() const noexcept {
    return state_ ? std::span<const lease>{state_->leases} : std::span<const lease>{};
}

const lease& multi_lease::operator[](std::string_view name) const {
    const auto all = leases();
    const auto found = std::ranges::find(all, name, &lease::name);
    if (found == all.end()) throw error{errc::not_owner, "none of these leases has that name"};
    return *found;
}

bool multi_lease::held() const noexcept {
    const auto all = leases();
    return !all.empty() && std::ranges::all_of(all, &lease::held);
}

std::chrono::milliseconds multi_lease::remaining() const noexcept {
    const auto all = leases();
    auto least = std::chrono::milliseconds::max();
    for (const auto& each : all) least = std::min(least, each.remaining());
    return all.empty() ? std::chrono::milliseconds{0} : least;
}

std::stop_token multi_lease::lost() const {
    return state_ ? state_->lost.get_token() : std::stop_token{};
}

std::stop_token multi_lease::release_requested() const {
    return state_ ? state_->requested.get_token() : std::stop_token{};
}

void multi_lease::release() {
    if (!state_) return;
    const bool done = state_->with_grants([](detail::engine& by, const auto& all) {
        all.front()->fork.require_same_process();
        by.releases().release_several(all);
    });
    if (done) return;
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

std::vector<lease> multi_lease::split() && {
    if (!state_) return {};
    state_->fork.require_same_process();
    state_->signals.clear();
    auto all = std::move(state_->leases);
    state_.reset();
    return all;
}

}  // namespace rowlock

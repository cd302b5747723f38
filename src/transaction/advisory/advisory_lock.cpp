#include "transaction/advisory/advisory_engine.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/error.hpp>

namespace rowlock {
namespace {

const advisory_key& no_key() {
    static const advisory_key none = advisory_key::number(0);
    return none;
}

}  // namespace

advisory_lock::advisory_lock(std::shared_ptr<detail::advisory_hold> hold) noexcept
    : hold_{std::move(hold)} {}

advisory_lock::advisory_lock(advisory_lock&&) noexcept = default;

advisory_lock& advisory_lock::operator=(advisory_lock&& other) noexcept {
    // The old one is unlocked as the temporary goes out of scope.
    advisory_lock moved{std::move(other)};
    hold_.swap(moved.hold_);
    return *this;
}

advisory_lock::~advisory_lock() {
    if (!hold_ || hold_->fork.in_child()) return;
    if (const auto engine = hold_->owner.lock()) engine->release_quietly(*hold_);
}

const advisory_key& advisory_lock::key() const noexcept {
    return hold_ ? hold_->key : no_key();
}

const std::string& advisory_lock::name() const noexcept {
    return key().str();
}

advisory_mode advisory_lock::mode() const noexcept {
    return hold_ ? hold_->mode : advisory_mode::exclusive;
}

bool advisory_lock::held() const noexcept {
    return hold_ && hold_->held();
}

std::stop_token advisory_lock::lost() const {
    if (!hold_) return {};
    auto token = hold_->lost_signal.get_token();
    const bool first = !hold_->watched.exchange(true);
    // Lost before a caller took the token: no signal was sent, and none of our callbacks exists
    // yet.
    if (first && hold_->now == detail::advisory_hold::state::lost) {
        hold_->lost_signal.request_stop();
    }
    return token;
}

void advisory_lock::unlock() {
    if (!hold_) return;
    hold_->fork.require_same_process();
    if (const auto engine = hold_->owner.lock()) {
        engine->release(*hold_);
    } else if (hold_->now == detail::advisory_hold::state::lost) {
        throw error{errc::lock_lost,
                    "the advisory_client of this lock were destroyed, which unlocked it"};
    }
}

advisory_client::advisory_client(sql::connection_source source, advisory_options options)
    : engine_{std::make_shared<detail::advisory_engine>(std::move(source), std::move(options))} {}

advisory_client::~advisory_client() {
    if (engine_->fork().in_child()) {
        detail::advisory_engine::abandon(std::move(engine_));
    } else {
        engine_->close();
    }
}

std::size_t advisory_client::connections() const {
    engine_->fork().require_same_process();
    return engine_->connections();
}

std::optional<advisory_lock> advisory_client::acquire(const advisory_key& key, advisory_mode mode,
                                                      time_point until, std::stop_token stop) {
    const auto engine = engine_;
    auto hold = engine->acquire(key, mode, until, stop);
    if (!hold) return std::nullopt;
    return advisory_lock{std::move(hold)};
}

}  // namespace rowlock

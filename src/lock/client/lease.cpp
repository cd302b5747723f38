#include "lock/client/engine.hpp"
#include "lock/client/validation.hpp"
#include "lock/session/grant.hpp"
#include <rowlock/lease.hpp>
#include <rowlock/lease_offer.hpp>

namespace rowlock {
namespace {

const std::string no_name;

}  // namespace

lease::lease(std::shared_ptr<detail::grant> grant) noexcept : grant_{std::move(grant)} {}

lease::lease(lease&&) noexcept = default;

lease& lease::operator=(lease&& other) noexcept {
    // The old grant is released as the temporary goes out of scope.
    lease moved{std::move(other)};
    grant_.swap(moved.grant_);
    return *this;
}

lease::~lease() {
    if (!grant_ || grant_->fork.in_child()) return;
    if (const auto engine = grant_->owner.lock()) engine->releases().release_quietly(*grant_);
}

const std::string& lease::name() const noexcept {
    return grant_ ? grant_->name : no_name;
}

fencing_token lease::token() const noexcept {
    return grant_ ? grant_->token : fencing_token{};
}

bool lease::held() const noexcept {
    return grant_ && grant_->held();
}

std::chrono::milliseconds lease::remaining() const noexcept {
    if (!grant_) return std::chrono::milliseconds{0};
    return std::chrono::floor<std::chrono::milliseconds>(grant_->remaining());
}

std::stop_token lease::lost() const {
    if (!grant_) return {};
    auto token = grant_->lost_signal.get_token();
    const bool first = !grant_->watched.exchange(true);
    // Lost before the first call of lost(): no signal was sent, and no callback exists yet.
    const auto now = grant_->now.load();
    using state = detail::grant::state;
    const bool over = now == state::lost || (grant_->taken_over && now == state::released);
    if (first && over) grant_->lost_signal.request_stop();
    return token;
}

std::stop_token lease::release_requested() const {
    return grant_ ? grant_->request_signal.get_token() : std::stop_token{};
}

std::optional<rowlock::release_request> lease::release_request() const {
    if (!grant_ || grant_->fork.in_child()) return std::nullopt;
    const std::lock_guard lock{grant_->mutex};
    return grant_->request;
}

lease_offer lease::offer() {
    if (!grant_) throw error{errc::not_owner, "this lease holds nothing: acquire one first"};
    grant_->fork.require_same_process();
    const auto engine = grant_->owner.lock();
    if (!engine) throw detail::client_destroyed();
    engine->releases().offer(*grant_);
    return {.name = grant_->name,
            .session = grant_->session_id,
            .grant_id = grant_->grant_id,
            .token = fencing_token{grant_->row_token}};
}

void lease::extend(std::chrono::milliseconds duration) {
    if (!grant_) throw error{errc::not_owner, "this holds nothing: acquire it first"};
    detail::validate(acquire_options{.max_duration = duration});
    const auto engine = grant_->owner.lock();
    if (!engine) throw detail::client_destroyed();
    engine->releases().extend(*grant_, duration);
}

void lease::release() {
    if (!grant_) return;
    if (grant_->fork.in_child()) grant_->fork.require_same_process();
    if (const auto engine = grant_->owner.lock()) {
        engine->releases().release(*grant_);
    } else if (grant_->now == detail::grant::state::lost) {
        throw error{errc::lock_lost, "the client of this lease was destroyed, which released it"};
    }
}

session_id lease::session_id() const noexcept {
    return grant_ ? grant_->session_id : rowlock::session_id{};
}

grant_id lease::grant_id() const noexcept {
    return grant_ ? grant_->grant_id : rowlock::grant_id{};
}

}  // namespace rowlock

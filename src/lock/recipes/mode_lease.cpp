#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/shared_mutex.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace rowlock {

using namespace std::chrono_literals;
using protocol::permits_for;
using steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

const char* to_string(lock_mode mode) noexcept {
    switch (mode) {
        case lock_mode::shared:
            return "shared";
        case lock_mode::upgradeable:
            return "upgradeable";
        case lock_mode::exclusive:
            break;
    }
    return "exclusive";
}

namespace {

error not_held() {
    return {errc::not_owner, "this holds nothing: acquire a shared_mutex first"};
}

/// What the table has of a hold, without its upgrade.
std::int64_t weight_of(const detail::grant& hold) {
    const std::int64_t permits = hold.permits;
    return permits > 0 ? permits : permits_for(lock_mode::exclusive);
}

void require_mode(const detail::grant* hold) {
    if (hold == nullptr) throw not_held();
    require(hold->permits == 0 || (hold->of_mode && protocol::mode_for(hold->permits)),
            "permits of a semaphore have no mode");
}

}  // namespace

mode_lease::mode_lease() noexcept = default;
mode_lease::mode_lease(mode_lease&& other) noexcept = default;
mode_lease::~mode_lease() = default;
mode_lease& mode_lease::operator=(mode_lease&& other) noexcept = default;

mode_lease::mode_lease(lease&& hold) {
    require_mode(hold.grant_.get());
    hold_ = std::move(hold);
}

mode_lease::mode_lease(std::shared_ptr<detail::grant> granted) noexcept
    : hold_{std::move(granted)} {}

const std::string& mode_lease::name() const noexcept {
    return hold_.name();
}

lock_mode mode_lease::mode() const noexcept {
    return hold_.grant_ ? hold_.grant_->mode.load() : lock_mode::shared;
}

fencing_token mode_lease::token() const noexcept {
    if (!hold_.grant_) return {};
    return std::max(hold_.token(), fencing_token{hold_.grant_->upgrade_token.load()});
}

bool mode_lease::held() const noexcept {
    return hold_.held();
}

milliseconds mode_lease::remaining() const noexcept {
    return hold_.remaining();
}

std::stop_token mode_lease::lost() const {
    return hold_.lost();
}

std::stop_token mode_lease::release_requested() const {
    return hold_.release_requested();
}

std::optional<release_request> mode_lease::release_request() const {
    return hold_.release_request();
}

session_id mode_lease::session_id() const noexcept {
    return hold_.session_id();
}

grant_id mode_lease::grant_id() const noexcept {
    const auto upgrade = hold_.grant_ ? hold_.grant_->upgrade.load() : rowlock::grant_id{};
    return upgrade == rowlock::grant_id{} ? hold_.grant_id() : upgrade;
}

void mode_lease::release() {
    hold_.release();
}

void mode_lease::extend(milliseconds duration) {
    static_cast<void>(tell_weaker_mode());
    hold_.extend(duration);
}

void mode_lease::upgrade() {
    static_cast<void>(upgrade_until(steady::time_point::max(), {}));
}

bool mode_lease::upgrade(const std::stop_token& stop) {
    return upgrade_until(steady::time_point::max(), stop);
}

bool mode_lease::try_upgrade() {
    return upgrade_until(steady::time_point::min(), {});
}

detail::grant& mode_lease::require_grant() const {
    if (!hold_.grant_) throw not_held();
    return *hold_.grant_;
}

void mode_lease::require_held() const {
    using state = detail::grant::state;
    const auto& hold = require_grant();
    if (held()) return;
    const auto now = hold.now.load();
    if (now == state::released || now == state::releasing) throw not_held();
    throw error{errc::lock_lost,
                "the shared_mutex was lost: stop, release it, and start over with a new hold"};
}

/// If a change to a weaker mode has failed, the table has one of the two weights, or the upgrade is
/// in force: the next change begins with it again.
std::shared_ptr<detail::engine> mode_lease::tell_weaker_mode() const {
    require_held();
    auto& hold = require_grant();
    auto by = hold.owner.lock();
    if (!by) throw detail::client_destroyed();
    by->releases().finish_ending(hold);
    const auto weight = permits_for(hold.mode);
    if (hold.upgrade == rowlock::grant_id{} && weight_of(hold) > weight) {
        by->releases().shrink(hold, weight);
    }
    return by;
}

/// Acquires what the hold lacks as a second grant, which the hold takes in. The hold stays as it
/// is, so no other client is exclusive or upgradeable before. New readers wait behind the entry of
/// the upgrade, which is the first of the queue.
bool mode_lease::upgrade_until(steady::time_point until, const std::stop_token& stop) {
    require_held();
    auto& hold = require_grant();
    if (hold.mode == lock_mode::exclusive) return true;
    if (hold.mode == lock_mode::shared && until > steady::now()) {
        throw error{errc::would_deadlock,
                    "two shared holders that upgrade would wait for each other: hold it "
                    "upgradeable, or use try_upgrade()"};
    }
    const auto by = tell_weaker_mode();
    std::stop_source over;
    const auto stop_it = [&over] { over.request_stop(); };
    const std::stop_callback stopped{stop, stop_it};
    const std::stop_callback when_lost{lost(), stop_it};
    lease brought{
        by->acquires().acquire(lock_name{name()}, until, over.get_token(), {},
                               {.count = permits_for(lock_mode::exclusive) - weight_of(hold),
                                .of = protocol::counter_kind::shared_mutex,
                                .upgrades = hold.grant_id})};
    if (brought.grant_) brought.grant_->unclaimed = true;  // no caller has it
    require_held();                                        // or what was brought is released again
    if (!brought.grant_) {
        if (stop.stop_requested() || until <= steady::now()) return false;
        throw error{errc::lock_lost, "the shared_mutex was lost while it was upgraded"};
    }
    by->releases().take_in(hold, *brought.grant_);
    return true;
}

/// What remains is held without a break. Until the end of an upgrade is confirmed, no more is
/// believed than the hold has without it.
void mode_lease::downgrade(lock_mode to) {
    auto& hold = require_grant();
    require(to <= hold.mode, "downgrade() goes to a weaker mode; for a stronger one use upgrade()");
    const auto by = tell_weaker_mode();
    if (to == hold.mode) return;
    if (hold.upgrade != rowlock::grant_id{}) {
        const auto before = *protocol::mode_for(hold.permits);
        hold.mode = std::min(to, before);
        by->releases().end_upgrade(hold,
                                   to > before ? std::optional{permits_for(to)} : std::nullopt);
    }
    hold.mode = to;
    static_cast<void>(tell_weaker_mode());
}

}  // namespace rowlock

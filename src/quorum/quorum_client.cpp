#include "base/require.hpp"
#include "lock/client/validation.hpp"
#include "quorum/quorum_hold.hpp"
#include <rowlock/error.hpp>
#include <rowlock/quorum.hpp>

#include <utility>

namespace rowlock {

namespace {

client_options checked(client_options options) {
    require(options.owner.empty(),
            "a quorum client has no owner: nothing may take its leases over");
    auto valid = detail::validated(options);
    // The clients of the members validate these again: what is derived is theirs to derive.
    valid.program = std::move(options.program);
    return valid;
}

}  // namespace

quorum_lease::quorum_lease(std::shared_ptr<detail::quorum_hold> hold) noexcept
    : hold_{std::move(hold)} {}

quorum_lease::quorum_lease(quorum_lease&&) noexcept = default;

quorum_lease& quorum_lease::operator=(quorum_lease&& other) noexcept {
    quorum_lease moved{std::move(other)};
    hold_.swap(moved.hold_);
    return *this;
}

quorum_lease::~quorum_lease() {
    if (hold_) hold_->release();
}

const std::string& quorum_lease::name() const noexcept {
    static const std::string none;
    return hold_ ? hold_->name() : none;
}

fencing_token quorum_lease::token() const noexcept {
    return hold_ ? fencing_token{hold_->token()} : fencing_token{};
}

bool quorum_lease::held() const noexcept {
    return hold_ && hold_->held();
}

std::chrono::milliseconds quorum_lease::remaining() const noexcept {
    if (!hold_) return std::chrono::milliseconds{0};
    return std::chrono::floor<std::chrono::milliseconds>(hold_->remaining());
}

std::stop_token quorum_lease::lost() const {
    return hold_ ? hold_->lost() : std::stop_token{};
}

int quorum_lease::counted() const noexcept {
    return hold_ ? hold_->counted() : 0;
}

void quorum_lease::release() {
    if (hold_) hold_->release();
}

quorum_client::quorum_client(std::vector<sql::connection_source> members, quorum_options options) {
    detail::require_count(members.size());
    parts_ = std::make_shared<detail::quorum_parts>(std::move(members),
                                                    checked(std::move(options.member)));
}

quorum_client::~quorum_client() {
    if (parts_->fork.in_child()) {
        detail::quorum_parts::abandon(std::move(parts_));
    } else {
        parts_->close();
    }
}

quorum_lease quorum_client::acquire(const lock_name& name, const std::string& note) {
    return *acquire_until(name, time_point::max(), {}, note);
}

std::optional<quorum_lease> quorum_client::acquire_until(const lock_name& name, time_point until,
                                                         std::stop_token stop,
                                                         const std::string& note) {
    const auto parts = parts_;  // until the call learns of the client's destruction
    parts->fork.require_same_process();
    detail::validate(acquire_options{.note = note});
    for (;;) {
        auto hold = std::make_shared<detail::quorum_hold>(parts, name, note);
        parts->add(hold);
        switch (hold->acquire(until, stop)) {
            case detail::quorum_hold::outcome::granted:
                return quorum_lease{std::move(hold)};
            case detail::quorum_hold::outcome::given_up:
                return std::nullopt;
            case detail::quorum_hold::outcome::lost:
                break;
        }
    }
}

std::vector<quorum_member_info> quorum_client::members() const {
    parts_->fork.require_same_process();
    std::vector<quorum_member_info> all;
    all.reserve(parts_->size());
    for (std::size_t i = 0; i < parts_->size(); ++i) all.push_back(parts_->store(i).info());
    return all;
}

void fence(sql::connection& db, const quorum_lease& held, std::size_t member,
           const fence_options& options) {
    require(!options.two_phase,
            "the fence of a quorum lock does not outlast xa prepare: leave two_phase unset, and "
            "commit in one phase");
    if (!held.hold_) throw error{errc::not_owner, "this quorum lease holds nothing"};
    const auto counts = held.hold_->counted_lease(member);
    fence(db, *counts, options);
    held.hold_->fence_token(db, member, options);
}

}  // namespace rowlock

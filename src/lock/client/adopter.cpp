#include "lock/client/adopter.hpp"

#include "base/require.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace rowlock::detail {

std::shared_ptr<grant> adopter::adopt(const lease_offer& offer) {
    context_.fork.require_same_process();
    require(
        offer.session != session_id{} && offer.grant_id != grant_id{} && offer.token.value() > 0,
        "an offer has a session, a grant id and a token: pass what lease::offer() returned");
    if (is_over(offer)) return nullptr;
    attempt mine;
    std::shared_ptr<grant> taken;
    try {
        retries_.on_connection([&](sql::connection& db, sql::deadline until) {
            taken = adopt_once(offer, mine, db, until);
            return true;
        });
    } catch (...) {
        give_up(mine, offer);
        throw;
    }
    if (!taken) {
        give_up(mine, offer);
        return nullptr;
    }
    if (!grants_.hand_out({&taken, 1})) {  // its deadline is so near that the margin has begun
        grants_.give_back(*taken);
        return nullptr;
    }
    if (const auto offered = own(offer)) grants_.taken_over(*offered);
    context_.count(counter::acquired);
    context_.report(event_kind::lease_acquired, *taken, "adopted from another client");
    return taken;
}

/// Whether an offer of this very client was withdrawn or lost. It must be one: the holder that
/// works under it would not learn of the loss in time.
bool adopter::is_over(const lease_offer& offer) const {
    if (!sessions_.current(offer.session)) return false;
    const auto offered = own(offer);
    if (!offered) return true;
    const auto now = offered->now.load();
    require(now != grant::state::held,
            "this client holds that lease and has not offered it: call lease::offer() first");
    return now != grant::state::offered;
}

/// The grant of this client that is offered; null if it is another client's.
std::shared_ptr<grant> adopter::own(const lease_offer& offer) const {
    const auto giver = sessions_.current(offer.session);
    if (!giver) return nullptr;
    const auto held = giver->grants().held();
    const auto found = std::ranges::find(held, offer.grant_id, &grant::grant_id);
    return found == held.end() ? nullptr : *found;
}

std::shared_ptr<grant> adopter::adopt_once(const lease_offer& offer, attempt& mine,
                                           sql::connection& db, sql::deadline until) {
    for (;;) {
        use(sessions_.ensure(db, until), mine, offer);
        const protocol::offered_lease from{.name = offer.name,
                                           .session = offer.session,
                                           .grant_id = offer.grant_id,
                                           .token = offer.token.value()};
        const auto& to = *mine.ours;
        nanoseconds sent = context_.now();
        std::optional<protocol::adopted_lease> row;
        try {
            row = context_.leases.adopt(db, from, to.id(), mine.id, until);
            if (!row && mine.unsure) {
                sent = context_.now();
                row = context_.leases.find_adopted(db, offer.name, to.id(), mine.id, until);
            }
        } catch (const error& failure) {
            mine.unsure = mine.unsure || failure.kind() == errc::outcome_unknown;
            throw;
        } catch (...) {
            mine.unsure = true;
            throw;
        }
        if (row) {
            context_.notify_holder(db, offer.session, until);
            return make_grant(offer, mine, *row, sent);
        }
        if (context_.sessions.state_of(db, to.id(), until).live) return nullptr;
        sessions_.lose(*mine.ours, sessions_.why_over(to, db, until));
    }
}

/// @param sent when the statement was sent that read the row
std::shared_ptr<grant> adopter::make_grant(const lease_offer& offer, const attempt& mine,
                                           const protocol::adopted_lease& row, nanoseconds sent) {
    auto granted =
        grants_.make(*mine.ours, offer.name, mine.id, row.token, sent, row.left, {}, {}, row.whole);
    if (row.asked && row.left) {
        grants_.end_by(granted, *row.asked, sent, *row.left, true);
    }
    // A thread that declared the session lost meanwhile may not have seen this grant.
    if (!mine.ours->trust()->open(context_.now())) {
        context_.lose(*granted, loss_reason::trust_window_passed);
    }
    return granted;
}

/// A grant id belongs to one session.
void adopter::use(std::shared_ptr<session> next, attempt& mine, const lease_offer& offer) {
    if (mine.ours == next) return;
    give_up(mine, offer);
    mine = {.ours = std::move(next), .id = grant_id{context_.next_id()}};
    mine.ours->expect({offer.name, mine.ours->id(), mine.id});
}

/// If the grant may have been made, or may come late, the heartbeat releases it.
void adopter::give_up(const attempt& mine, const lease_offer& offer) noexcept {
    if (!mine.ours) return;
    if (!mine.unsure) return mine.ours->grants().forget(mine.id);
    grants_.leave_unresolved(*mine.ours, {offer.name, mine.ours->id(), mine.id},
                             {.not_after = context_.now() + context_.statement_bound()});
}

}  // namespace rowlock::detail

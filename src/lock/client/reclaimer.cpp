#include "lock/client/reclaimer.hpp"

#include "lock/client/validation.hpp"
#include <rowlock/error.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace rowlock::detail {

using std::chrono::microseconds;

std::vector<std::shared_ptr<grant>> reclaimer::reclaim() {
    context_.fork.require_same_process();
    if (context_.options.owner.starts_with(random_owner)) {
        throw error{errc::invalid_options,
                    "reclaim() needs client_options::owner: a stable name of this process"};
    }
    require_no_holder_of_lost();
    const std::lock_guard reclaiming{reconciler_.reclaiming()};
    std::vector<std::shared_ptr<grant>> taken;
    std::shared_ptr<session> ours;
    try {
        retries_.on_connection([&](sql::connection& db, sql::deadline until) {
            reclaim_once(ours, taken, db, until);
            return true;
        });
    } catch (...) {
        abandon(ours.get(), taken);
        throw;
    }
    for (const auto& granted : taken) {
        context_.count(counter::acquired);
        context_.report(event_kind::lease_acquired, *granted, "reclaimed from a predecessor");
        hand_out(granted);
    }
    return taken;
}

/// It ends its owner's sessions, including those that this client has lost.
void reclaimer::require_no_holder_of_lost() {
    if (sessions_.lost().all_due(context_.now())) return;
    throw error{errc::lock_lost,
                "leases of this client were lost and may still be worked under: release or destroy "
                "them first, or call again when the margin is over"};
}

void reclaimer::reclaim_once(std::shared_ptr<session>& ours,
                             std::vector<std::shared_ptr<grant>>& taken, sql::connection& db,
                             sql::deadline until) {
    for (const auto id : move_rows(ours, db, until)) waiting_.session_ended(id);
    const nanoseconds sent = context_.now();
    for (const auto& each : context_.holds.holds_of(
             db, ours->id(), [] { return true; }, until)) {
        // An upgrade comes with its hold.
        if (each.row.forced || each.upgrades != grant_id{}) continue;
        if (auto granted = adopt(*ours, each, sent, db, until)) taken.push_back(std::move(granted));
    }
}

/// Reclaims into a live session of ours. Returns the sessions that it ended.
std::vector<session_id> reclaimer::move_rows(std::shared_ptr<session>& ours, sql::connection& db,
                                             sql::deadline until) {
    for (;;) {
        ours = sessions_.ensure(db, until);
        require_no_holder_of_lost();  // since the last check: ensure() may have declared a loss
        ours->expect_parts();
        const auto also = [&](session_id ended) {
            context_.semaphores.reclaim(db, ended, ours->id(), until);
        };
        try {
            if (auto ended =
                    context_.leases.reclaim(db, context_.options.owner, ours->id(), also, until)) {
                return *std::move(ended);
            }
        } catch (const error& failure) {
            // The lost commit may take effect only after another attempt has read our rows.
            if (failure.kind() == errc::outcome_unknown) ours->grants().doubt();
            throw;
        }
        sessions_.lose(*ours, sessions_.why_over(*ours, db, until));
    }
}

/// Makes a grant from a row of our session. Returns null if the grant is known here already.
std::shared_ptr<grant> reclaimer::adopt(session& ours, const protocol::session_hold& hold,
                                        nanoseconds sent, sql::connection& db,
                                        sql::deadline until) {
    const auto& row = hold.row;
    if (ours.grants().knows(row.grant_id) || ours.grants().is_unresolved(row.grant_id))
        return nullptr;
    // Read again, now that the grant is unknown here: another thread may have released it between
    // the read and that check.
    if (!context_.holds.find_grant(db, hold.key(ours.id()), until)) return nullptr;
    std::optional<microseconds> left;
    if (row.deadline_us) left = microseconds{*row.deadline_us};
    auto granted =
        grants_.make(ours, row.name, row.grant_id, row.token, sent, left, {}, row.what());
    if (row.upgrade != grant_id{}) {
        granted->upgrade_token = row.upgrade_token;
        granted->upgrade = row.upgrade;
        granted->mode = lock_mode::exclusive;
    }
    if (row.asked && left) grants_.end_by(granted, *row.asked, sent, *left, true);
    return granted;
}

/// The caller receives it, even if it was lost since its row was read: then it is told, as of any
/// loss. A thread that declared the session lost meanwhile may not have seen this grant.
void reclaimer::hand_out(const std::shared_ptr<grant>& granted) noexcept {
    if (grants_.hand_out({&granted, 1})) return;
    grants_.declare_if_over(*granted);  // in silence, as no caller has it yet
    granted->unclaimed = false;
    if (granted->now == grant::state::lost) {
        context_.lose(*granted, granted->reason, grant::state::lost);
    }
}

/// No caller receives these grants. Rows that the session does not know are reclaimed by the next
/// attempt, or given back with the next heartbeat.
void reclaimer::abandon(session* ours, const std::vector<std::shared_ptr<grant>>& taken) {
    for (const auto& granted : taken) {
        granted->stopped = true;
        granted->now = grant::state::released;
        grants_.forget(*granted);
    }
    if (ours == nullptr) return;
    ours->grants().doubt();
    reconciler_.want();
}

}  // namespace rowlock::detail

#include "lock/queue/grant_verifier.hpp"

#include "base/ablation.hpp"
#include "lock/wakeup/hint.hpp"

#include <algorithm>
#include <unordered_map>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// Deadline of a statement on a connection that was idle.
constexpr auto check_deadline = 1s;

}  // namespace

bool grant_verifier::handed_over(const protocol::handed_over& next) {
    const auto which = parts_.registry.find(next.grant_id);
    if (!which) return false;  // it was reported already, or is to be given back
    if (which->of_several()) return call(*which);
    if (!which->hints_suffice()) {
        parts_.tasks.verify({which, nullptr, next.token, parts_.now()});
        return true;
    }
    parts_.registry.serve(*which, {next.token, parts_.context.now()});
    if (!source_.names_grants()) return false;
    auto granted = parts_.registry.granted(*which);
    if (!granted) return false;
    parts_.tasks.verify({which, std::move(granted), next.token, parts_.now() + rush, true});
    return true;
}

bool grant_verifier::on_message(std::string_view message, bool by_database) {
    const auto next = wakeup::decode_wakeup(message);
    if (!next) return false;
    const auto which = parts_.registry.find(next->grant_id);
    if (!which || !wakeup::is_proved(message, which->ours->address().secret)) return false;
    parts_.context.count(counter::wake_ups);
    if (which->of_several()) {
        if (next->token != 0) parts_.pacing.want();  // it was served alone: the poll gives it up
        return !call(*which);
    }
    if (next->token == 0) {  // it may be the first of its queue, and was granted nothing
        parts_.pacing.want();
        return true;
    }
    trust_.woken(which->name, wakeup_trust::way::message, which->waited());
    // A datagram is sent once the commit was confirmed. A client that may read an SQLite file need
    // not be allowed to write it: there the row is read. And our node of a cluster may show only
    // later what was committed on another, and the grant would be refuted.
    const bool believed =
        which->hints_suffice() &&
        (by_database || (parts_.context.traits().secrets_prove_writers && !link_.in_cluster()));
    // The transaction that wrote the grant sent this, delivered after its commit, or it was sent
    // after that: durable, or keeping a promise that was. So the grant is believed, and then
    // verified.
    if (believed) parts_.registry.serve(*which, {next->token, parts_.context.now()});
    auto granted = parts_.registry.granted(*which);
    const nanoseconds at = granted ? parts_.now() + rush : parts_.now();
    parts_.tasks.verify({which, std::move(granted), next->token, at, next->asynchronous});
    return true;
}

/// One of the locks that a thread waits for at once may be free. Whatever the hint said of a grant:
/// the thread looks, and takes all of them or none; what is not as expected its next poll finds.
/// Returns false: there is nothing to verify.
bool grant_verifier::call(waiter& which) {
    parts_.registry.call(which);
    return false;
}

void grant_verifier::verify_due() {
    while (const auto one = parts_.tasks.next_unverified(parts_.now())) {
        // A grant that was released meanwhile needs no check, nor does a waiter that is over.
        const bool matters = one->granted ? one->granted->now == grant::state::held
                                          : !parts_.registry.is_over(*one->which);
        if (matters) verify(*one);
        parts_.tasks.verified(*one);
    }
}

void grant_verifier::verify(const waiter_tasks::unverified& one) {
    const nanoseconds sent = parts_.context.now();
    const auto found = read(one);
    if (!one.granted) {
        if (found) {
            return parts_.registry.serve(*one.which,
                                         {found->granted.token, sent, found->granted.deadline_us});
        }
        if (link_.in_cluster()) {
            parts_.pacing.no_later_than(parts_.now() + poll_pacing::replicated_within);
        }
        return;
    }
    // Its holder may have extended it by now.
    if (!found || found->granted.token < one.token ||
        found->granted.token > std::max<std::int64_t>(one.token, one.granted->last_row_token())) {
        // Nor can its row tell once its holder goes to a weaker mode: the statement for that does,
        // and the flag was set before it was sent.
        if (one.granted->perhaps_lowered) return;
        return static_cast<void>(parts_.grants.deny(*one.granted));
    }
    if (!found->next || !uses(base::fast_path::prefetched_next)) return;
    const std::lock_guard lock{one.granted->mutex};
    one.granted->next = found->next;
    one.granted->next_until = sent + found->next->alive;
}

/// A grant on the connection that will most likely send the release, too, whose server process then
/// has everything at hand. It may have died while it was idle: the loop does not wait long to find
/// out.
std::optional<protocol::confirmed_grant> grant_verifier::read(const waiter_tasks::unverified& one) {
    const auto key = one.which->key();
    const auto confirm = [&](sql::connection& db, sql::deadline until) {
        return parts_.context.holds.confirm(db, key, one.durably, until);
    };
    if (source_.names_grants() && one.which->wants_the_row()) {
        if (const auto calling = parts_.connections.take_idle()) {
            return confirm(**calling,
                           std::min<sql::deadline>(
                               link_.soon(), std::chrono::steady_clock::now() + check_deadline));
        }
    } else if (!one.granted) {  // its remaining deadline is needed
        const auto granted = parts_.context.holds.served(*link_, key, link_.soon(), one.token);
        if (!granted) return std::nullopt;
        return protocol::confirmed_grant{*granted, std::nullopt};
    }
    return confirm(*link_, link_.soon());
}

void grant_verifier::read_served_if_woken() {
    if (!parts_.tasks.take_read_served()) return;
    try {
        (void)read_served(*link_, link_.soon());
        if (parts_.registry.empty()) parts_.pacing.was_read();
    } catch (...) {
        parts_.pacing.want();  // what is really wrong the poll finds
        if (!link_.get()->alive()) throw;
    }
}

bool grant_verifier::read_served(sql::connection& db, sql::deadline until) {
    constexpr std::size_t many = 64;
    const session_id session = parts_.registry.waiting_session();
    std::vector<std::string> names;
    std::unordered_map<grant_id, std::shared_ptr<waiter>> standing;
    bool waits_for_others = false;
    for (auto& each : parts_.registry.of_session(session)) {
        if (!each->wants_the_row()) {
            waits_for_others = true;
            continue;
        }
        names.push_back(each->name);
        standing.emplace(each->grant_id, std::move(each));
    }
    if (waits_for_others) parts_.pacing.want();  // one poll reads all entries
    if (names.empty()) return waits_for_others;
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() > many) {
        // One poll of all entries costs less than to ask for so many names. The wake-up may have
        // come before the commit: a poll comes after it if we have read behind it first.
        names.resize(1);
        (void)parts_.queues().served_of(db, session, names, until);
        parts_.pacing.want();
        return true;
    }
    bool is_doubtful = false;
    const nanoseconds sent = parts_.context.now();
    for (const auto& each : parts_.queues().served_of(db, session, names, until)) {
        const auto served = standing.find(each.grant_id);
        if (served == standing.end()) continue;  // held before
        const auto& which = served->second;
        trust_.woken(which->name, wakeup_trust::way::interruption, which->waited());
        if (each.durable) {
            parts_.registry.serve(*which, {each.granted.token, sent, each.granted.deadline_us});
        } else {
            // The grant we were woken for is most often known to be durable; the wake-up may have
            // come amid the commit of another hand-over.
            parts_.tasks.verify({which, nullptr, 0, parts_.now(), true});
            is_doubtful = true;
        }
    }
    return is_doubtful || waits_for_others;
}

}  // namespace rowlock::detail

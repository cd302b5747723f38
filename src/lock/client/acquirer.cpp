#include "lock/client/acquirer.hpp"

#include "base/ablation.hpp"
#include "base/jitter.hpp"
#include "base/server_words.hpp"
#include "lock/client/validation.hpp"
#include "lock/queue/waiting_threads.hpp"
#include "sql/too_many_connections.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::fast_path;
using std::chrono::microseconds;
using steady = std::chrono::steady_clock;

using outcome = protocol::attempt::outcome;
using approach = acquisition::approach;

metrics::acquire_mode mode_of(const protocol::wanted_permits& permits) {
    using metrics::acquire_mode;
    if (permits.count == 0) return acquire_mode::exclusive;
    if (permits.is_upgrade()) return acquire_mode::upgrade;
    if (permits.of_semaphore()) return acquire_mode::permits;
    switch (protocol::mode_for(permits.count).value_or(lock_mode::exclusive)) {
        case lock_mode::shared:
            return acquire_mode::shared;
        case lock_mode::upgradeable:
            return acquire_mode::upgradeable;
        case lock_mode::exclusive:
            break;
    }
    return acquire_mode::exclusive;
}

}  // namespace

std::shared_ptr<grant> acquirer::acquire(const lock_name& name, steady::time_point until,
                                         const std::stop_token& stop,
                                         const acquire_options& options,
                                         const protocol::wanted_permits& permits,
                                         const std::string& shared_label, int priority,
                                         bool withheld) {
    context_.fork.require_same_process();
    validate(options);
    acquisition call{
        .context = context_,
        .grants = grants_,
        .name = name,
        .options = options,
        .stop = stop,
        .until = until,
        .thread = shared_label.empty() || is_one_party() ? thread_label() : shared_label,
        .permits = permits,
        .priority = priority,
        .withheld = withheld};
    choose_approach(call);
    return call.measured(mode_of(permits), [&] { return ask_until_over(call); });
}

/// If the last release found a waiter, the queue most likely still exists: what is wanted whole is
/// not free, of a part there may be enough.
void acquirer::choose_approach(acquisition& call) const {
    const auto contended = [&] { return waiting_.contended().has(call.name.str()); };
    if (!call.by_token()) {
        if (call.permits.is_upgrade() || contended()) call.next = approach::alone;
    } else if (!call.barging() && call.has_time() && contended()) {
        call.contended = true;
        call.next = approach::enqueue;
    }
}

std::shared_ptr<grant> acquirer::ask_until_over(acquisition& call) {
    while (!call.stop.stop_requested()) {
        try {
            if (const auto found = ask(call)) return *found;
        } catch (const error& failure) {
            if (!outlasts(call, failure)) throw;
            if (!wait_to_ask_again(call, failure)) return nullptr;
        }
    }
    return nullptr;
}

bool acquirer::holds(const lock_name& name) const {
    context_.fork.require_same_process();
    const auto ours = sessions_.current();
    if (!ours) return false;
    const auto all = ours->grants().held();
    return std::ranges::any_of(all, [&](const auto& each) {
        // A lease that no caller has is flagged before its state changes.
        return each->name == name.str() && each->held() && !each->unclaimed && !each->withheld;
    });
}

/// The check for waiters that an earlier release of the lease has left to the waiters' loop, while
/// an attempt asks for them as well. A client that takes a lease again and again would make one for
/// each release.
class acquirer::owed_check {
public:
    owed_check(const client_waiters& waiting, const acquisition& call)
        : at_{call.by_token() && !call.barging() ? waiting.made() : nullptr},
          name_{call.name.str()},
          number_{at_ && uses(fast_path::deferred_check) ? at_->defer_check(name_) : std::nullopt} {
    }
    owed_check(const owed_check&) = delete;
    owed_check& operator=(const owed_check&) = delete;
    ~owed_check() {
        if (number_) at_->hasten_check(name_, *number_);
    }
    /// No client waited for the lease when it was granted.
    void settle() {
        if (number_) at_->withdraw_check(name_, *number_);
        number_.reset();
    }

private:
    const std::shared_ptr<waiting_threads> at_;
    const std::string& name_;
    std::optional<std::uint64_t> number_;
};

/// One round.
acquirer::answer acquirer::ask(acquisition& call) {
    if (call.next == approach::enqueue) {
        call.next = approach::alone;
        if (auto waited = wait_in_queue(call)) return waited;
        return go_on(call);
    }
    const auto made = attempt(call);
    return made ? after_attempt(call, *made) : std::shared_ptr<grant>{};
}

/// Returns nullopt if the caller's time is up.
std::optional<protocol::attempt> acquirer::attempt(acquisition& call) {
    owed_check owed{waiting_, call};
    auto made = retries_.repeat(limits_of(call), call.stop, [&](sql::deadline end) {
        if (call.next == approach::together) {
            call.next = approach::alone;
            if (const auto shared = attempt_together(call, end)) return *shared;
        }
        const auto db = connections_.take(end);
        return attempt_alone(call, *db, end);
    });
    if (made && made->what == outcome::granted) owed.settle();
    return made;
}

acquirer::answer acquirer::after_attempt(acquisition& call, const protocol::attempt& made) {
    switch (made.what) {
        case outcome::granted:
            if (auto granted = accept(call, made)) return granted;
            require_timely(call);
            break;
        case outcome::session_dead:
            sessions_.lose(*call.ours, sessions_.why_over(*call.ours, connections_));
            break;
        case outcome::contested:
            call.next = approach::look_first;
            break;
        case outcome::held:
            if (call.is_ours(made.seen)) break;  // the next attempt finds it
            return wait_for_holder(call, made.seen);
    }
    return go_on(call);
}

/// Continues after an attempt that found the lock held.
acquirer::answer acquirer::wait_for_holder(acquisition& call, const protocol::lease_probe& seen) {
    context_.count(counter::busy);
    call.contention.forget();
    call.seen_held = true;
    if (!call.has_time()) {
        const bool has_sole_holder = seen.session != session_id{};
        if (!call.barging() && has_sole_holder) tokens_.remember_held(call.name.str());
        return std::shared_ptr<grant>{};
    }
    if (call.barging()) {
        if (!sleep_until_probe(call, seen)) return std::shared_ptr<grant>{};
        return std::nullopt;
    }
    if (auto waited = wait_in_queue(call)) return waited;
    return go_on(call);
}

/// Called before the next round of a call; no round begins after the call's time limit.
acquirer::answer acquirer::go_on(acquisition& call) {
    if (!pause_before_retry(call)) return std::shared_ptr<grant>{};
    if (!call.limited() || call.has_time()) return std::nullopt;
    if (call.seen_held) return std::shared_ptr<grant>{};
    throw error{errc::timed_out,
                "the time limit passed before the lock was found held or free: allow more than a "
                "round trip to the database"};
}

/// Whether the call continues after a failure. It does not while its thread holds other leases:
/// those may be lost with the session, and their holder must learn of that rather than wait.
bool acquirer::outlasts(const acquisition& call, const error& failure) const {
    if (context_.options.when_cut_off != when_cut_off::requeue || sessions_.is_closed()) {
        return false;
    }
    if (call.holds_others || call.too_late.often()) return false;
    if (sql::too_many_connections(failure)) return call.until > call.began;
    if (!call.seen_held || failure.kind() == errc::deadlock) return false;
    return may_be_outlasted(failure);
}

/// Returns false if a stop was requested, or the caller's time is up and another client had the
/// lock.
/// @throws failure if the time is up
bool acquirer::wait_to_ask_again(acquisition& call, const error& failure) {
    const bool session_over = failure.kind() == errc::lock_lost;
    const bool entry_lost = std::exchange(call.had_entry, false) || session_over;
    context_.report({.kind = entry_lost ? event_kind::queue_entry_lost : event_kind::waiting,
                     .name = call.name.str(),
                     .session = call.ours ? call.ours->id() : session_id{},
                     .waited = call.waited(),
                     .message = base::with_server_words(failure)});
    call.contention.forget();
    if (call.has_time()) {
        if (!rest_before_asking_again(call, session_over)) return false;
        if (call.has_time()) return true;
    }
    if (session_over) return false;
    throw failure;
}

/// Returns false if a stop was requested.
bool acquirer::rest_before_asking_again(acquisition& call, bool session_over) {
    const auto& retry = context_.options.retry;
    const auto rest =
        base::shortened(nanoseconds{session_over ? retry.backoff : retry.max_backoff});
    const auto now = steady::now();
    const nanoseconds left = std::max<nanoseconds>(std::min(call.until, now + 24h) - now, 0ns);
    return retries_.pause(std::clamp<nanoseconds>(rest, std::min<nanoseconds>(5ms, left), left),
                          call.stop);
}

/// For the attempts of an acquisition: one that begins in time has a statement's full time.
retry_loop::limits acquirer::limits_of(const acquisition& call) const {
    const auto give_up = retries_.failure_deadline(call.until);
    return {give_up, call.limited() ? call.until : give_up};
}

/// Sends the first statement of an acquisition together with those of other threads. Returns
/// nullopt if only an unbatched attempt can tell.
std::optional<protocol::attempt> acquirer::attempt_together(acquisition& call,
                                                            sql::deadline until) {
    if (call.barging()) return std::nullopt;
    auto ours = sessions_.current();
    if (!ours || !ours->trust()->open(context_.now())) return std::nullopt;
    call.use(std::move(ours));
    const auto& name = call.name.str();
    if (call.by_token() && uses(fast_path::probe_held) && call.until <= steady::now() &&
        tokens_.was_held(name)) {
        if (batches_.is_held(name, until)) return protocol::attempt{outcome::held, 0, {}};
        tokens_.forget(name);
    }
    auto known = call.by_token() ? tokens_.take_free(name) : std::nullopt;
    if (!uses(fast_path::reacquire)) known.reset();
    auto found = call.send_as_new([&] { return batches_.acquire(call.request(), known, until); });
    if (found && found->seen.holder_expired) return std::nullopt;  // must be ended first
    if (found) look_for_ended(call, *found, until);
    return found;
}

/// After an attempt that was sent together with others.
void acquirer::look_for_ended(acquisition& call, protocol::attempt& found, sql::deadline until) {
    if (!may_have_ended(found)) return;
    const auto db = connections_.take(until);
    take_back(call, *db, found, until);
}

/// Whether holders are in the way that the attempt has not judged.
bool acquirer::may_have_ended(const protocol::attempt& found) {
    return found.what == outcome::held && !found.seen.waited && found.seen.counted;
}

protocol::attempt acquirer::attempt_alone(acquisition& call, sql::connection& db,
                                          sql::deadline until) {
    call.use(sessions_.ensure(db, until));
    keeper_.beat_if_late(*call.ours, db, until);
    if (const auto found = find_lost_attempt(call, db, until)) return *found;
    std::optional<protocol::attempt> found;
    if (call.next == approach::look_first) found = probe(call, db, until);
    if (!found) found = send(call, db, until);
    if (may_have_ended(*found)) take_back(call, db, *found, until);
    return *found;
}

/// An earlier attempt whose reply was lost, if it was granted.
std::optional<protocol::attempt> acquirer::find_lost_attempt(acquisition& call, sql::connection& db,
                                                             sql::deadline until) {
    call.looks_before = call.ours->news().looks;
    for (const auto& lost : call.unknown) {
        const auto token = context_.holds.find_grant(db, call.key(lost.grant_id), until);
        if (!token) continue;
        call.grant_id = lost.grant_id;
        call.sent = lost.sent;  // its deadline counts from its own sending
        std::erase_if(call.unknown, [&](const auto& it) { return it.grant_id == call.grant_id; });
        return protocol::attempt{outcome::granted, *token, {}};
    }
    return std::nullopt;
}

/// Returns why the lock cannot be taken now, or nullopt if it can, or only an attempt tells.
std::optional<protocol::attempt> acquirer::probe(acquisition& call, sql::connection& db,
                                                 sql::deadline until) {
    const auto seen = context_.holds.probe(db, call.request(), until);
    if (!seen) return std::nullopt;
    if (!seen->session_live) return protocol::attempt{outcome::session_dead, 0, *seen};
    if (seen->takeable(call.barging())) return std::nullopt;
    if (seen->holder_expired) end_expired(db, seen->session, until);
    return protocol::attempt{seen->holder_expired ? outcome::contested : outcome::held, 0, *seen};
}

protocol::attempt acquirer::send(acquisition& call, sql::connection& db, sql::deadline until) {
    auto found =
        *call.send_as_new([&] { return context_.holds.acquire(db, call.request(), until); });
    if (found.what == outcome::held && found.seen.holder_expired) {
        // The session is ended first, in its own commit; only then may the lease row change (I3).
        end_expired(db, found.seen.session, until);
        found.what = outcome::contested;
    }
    // Faster clients win once or twice; then check the floor: without it nothing is ever granted.
    if (found.what == outcome::contested && call.contention.made() >= 2) {
        context_.sessions.require_token_floor(db, until);
    }
    return found;
}

/// Takes back what clients that have vanished hold; a waiter does so itself. If there was anything,
/// the next attempt may find it free.
void acquirer::take_back(acquisition& call, sql::connection& db, protocol::attempt& found,
                         sql::deadline until) {
    const auto seen = waiting_.take_back(db, {&call.name.str(), 1}, until).front();
    if (seen.any) call.contention.forget();
    if (!call.may_repeat()) return;
    if (seen.any || may_fit(call, seen, call.permits.weight())) found.what = outcome::contested;
}

/// Whether another attempt may find room for so many permits, although this client has taken none
/// back: another may be doing so at this moment, or has done so since the attempt. A caller with
/// time left enqueues instead.
bool acquirer::may_fit(acquisition& call, const waiters::taken_back& seen, std::int64_t permits) {
    return seen.found.may_have(permits) && call.single_attempt() && call.sweeps.meet(steady::now());
}

void acquirer::end_expired(sql::connection& db, session_id session, sql::deadline until) {
    if (context_.sessions.end_expired(db, session, until)) waiting_.session_ended(session);
}

/// Counts a grant that came too late to be returned.
void acquirer::require_timely(acquisition& call) const {
    if (call.options.max_duration && call.ours->trust()->open(context_.now()))
        call.too_late.count();
}

/// After an attempt that neither won nor found a holder: pauses, at first not at all, then longer
/// each time. Returns false if a stop was requested.
bool acquirer::pause_before_retry(acquisition& call) {
    const auto time = call.contention.count();
    return time == 0ms || retries_.pause(base::shortened(nanoseconds{time}), call.stop);
}

/// Returns the grant as an object, or null if it came too late: after a pause the session may have
/// expired, and no caller may receive a lease that is not held.
std::shared_ptr<grant> acquirer::accept(acquisition& call, const protocol::attempt& granted) {
    std::optional<microseconds> max_duration;
    if (call.options.max_duration) max_duration = *call.options.max_duration;
    std::shared_ptr<grant> made;
    try {
        made = grants_.make(*call.ours, call.name.str(), call.grant_id, granted.token, call.sent,
                            max_duration, call.thread, call.permits);
    } catch (...) {
        // Out of memory: the grant cannot be held.
        grants_.leave_unresolved(*call.ours, call.key(call.grant_id),
                                 {.not_after = context_.now()});
        throw;
    }
    made->withheld = call.withheld;
    const auto find = [&](sql::connection& db, sql::deadline until) {
        return context_.holds.find_grant(db, call.key(call.grant_id), until).has_value();
    };
    if (was_ended(call, find)) {
        grants_.give_back(*made);
        return nullptr;
    }
    if (grants_.hand_out({&made, 1})) {
        report_acquired(call, *made);
        return made;
    }
    made->now = grant::state::lost;
    made->stopped = true;  // no caller received it
    grants_.leave_unresolved(*call.ours, made->key(),
                             {.not_after = context_.now() + context_.statement_bound()});
    if (!call.ours->trust()->open(context_.now())) {
        sessions_.lose(*call.ours, loss_reason::trust_window_passed);
    }
    return nullptr;
}

/// An upgrade is not counted as a grant: it gives its hold another token.
/// @param served in a queue
void acquirer::report_acquired(const acquisition& call, const grant& made, bool served) {
    if (call.permits.is_upgrade()) return;
    context_.count(counter::acquired);
    if (served) context_.count(counter::handed_over);
    context_.report(event_kind::lease_acquired, made, {}, call.waited());
}

/// For a caller outside the queue: sleeps until the lock is worth another probe. Returns false if
/// the caller's time is up or a stop was requested.
bool acquirer::sleep_until_probe(acquisition& call, const protocol::lease_probe& seen) {
    const auto now = steady::now();
    if (now >= call.until) return false;
    nanoseconds time = base::shortened(call.poll);
    if (seen.remaining > 0us) time = std::min<nanoseconds>(time, seen.remaining + 1ms);
    time = std::min<nanoseconds>(time, call.until - now);
    const auto& spin = call.options.spin;
    const auto longest =
        spin.longest > 0ms ? spin.longest : std::max(spin.first, context_.options.poll_interval);
    call.poll =
        std::min(longest, call.poll + std::max<std::chrono::milliseconds>(call.poll / 2, 1ms));
    call.next = approach::look_first;
    return retries_.pause(time, call.stop);
}

}  // namespace rowlock::detail

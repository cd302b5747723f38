#include "coordination/lease/engine.hpp"

#include "base/identity.hpp"
#include "base/jitter.hpp"
#include "coordination/lease/acquisition.hpp"
#include "coordination/lease/validation.hpp"
#include "coordination/queue/waiting_room.hpp"
#include "housekeeping/reaping.hpp"
#include "sql/too_many_connections.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>

#include <unistd.h>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

/// SQLite has one writer per file. More connections would only compete for its lock, which is not
/// fair; our threads wait for a connection instead.
std::size_t connection_budget(const client_options& options, sql::dialect speaks) {
    const int wanted = speaks == sql::dialect::sqlite ? std::min(options.max_connections, 2)
                                                      : options.max_connections;
    return static_cast<std::size_t>(wanted);
}

/// Concurrent batches per operation. One at a time forms larger batches and does more.
constexpr std::size_t calls_at_once = 1;

}  // namespace

error lost_error(const grant& lost) {
    return error{errc::lock_lost, "the lease was lost (" +
                                      std::string{to_string(lost.reason.load())} +
                                      "): what it protected may have been touched by another"};
}

error client_destroyed() {
    return error{errc::lock_lost, "the client was destroyed"};
}

engine::engine(sql::connection_source source, client_options options)
    : options_{validated(std::move(options))},
      source_{std::move(source)},
      clock_{options_.time},
      statements_{
          source_.speaks(),
          {.schema = options_.schema,
           .prefix = options_.prefix,
           .testing_clock = options_.time != nullptr && source_.speaks() == sql::dialect::sqlite}},
      protocol_owned_{strategy::make_lease_protocol(statements_)},
      protocol_{*protocol_owned_},
      queue_owned_{strategy::make_queue_protocol(statements_, protocol_,
                                                 options_.wake_ups == wakeup_mode::automatic)},
      queue_{*queue_owned_},
      batch_owned_{strategy::make_batch_protocol(statements_, protocol_)},
      batch_{*batch_owned_},
      fencing_owned_{strategy::make_fencing(statements_)},
      fencing_{*fencing_owned_},
      budget_{connection_budget(options_, source_.speaks())},
      shared_{{.connect = [this](sql::deadline until) { return connect(until); },
               .on_used =
                   [this] {
                       if (const auto room = open_room()) return room->listen_again();
                       let_heartbeat_hear();
                   }}},
      pool_{{.connect = [this](sql::deadline until) { return make_connection(until); },
             .when_full = "all connections of this client are busy: raise max_connections",
             .on_broken = [this] { connection_broke(); }}},
      acquires_{calls_at_once, strategy::batch_protocol::most,
                [this](auto asked) { acquire_for(asked); }},
      releases_{calls_at_once, strategy::batch_protocol::most,
                [this](auto asked) { release_for(asked); }},
      looks_{calls_at_once, strategy::batch_protocol::most,
             [this](auto asked) { look_for(asked); }},
      events_{options_.on_event} {
    if (options_.owner.empty()) {
        options_.owner = std::string{random_owner} + std::to_string(base::random_id());
    }
}

engine::~engine() = default;

std::shared_ptr<grant> engine::acquire(const lock_name& name, steady::time_point until,
                                       const std::stop_token& stop,
                                       const acquire_options& options) {
    fork_.require_same_process();
    validate(options);
    const auto alive = shared_from_this();  // until waiters learn of the client's destruction
    acquisition call{.self = *this,
                     .name = name,
                     .options = options,
                     .stop = stop,
                     .until = until,
                     .statement_bound = statement_bound(),
                     .clock = clock_,
                     .thread = thread_label()};
    // If the last release found a waiter, the queue most likely still exists.
    call.contended = !call.barging() && call.has_time() && is_contended(name.str());
    call.straight_to_line = call.contended;
    call.alone = call.straight_to_line;
    while (!stop.stop_requested()) {
        try {
            if (const auto answer = ask(call)) return *answer;
        } catch (const error& failure) {
            if (!outlasts(call, failure)) throw;
            if (!wait_to_ask_again(call, failure)) return nullptr;
        }
    }
    return nullptr;
}

/// One round. Returns the lease, null if the caller's time is up or a stop was requested, or
/// nullopt: ask again.
std::optional<std::shared_ptr<grant>> engine::ask(acquisition& call) {
    using outcome = strategy::attempt::outcome;
    if (std::exchange(call.straight_to_line, false)) {
        if (auto waited = wait_in_queue(call)) return waited;
        return go_on(call);
    }
    const auto attempt = repeat(limits_of(call), call.stop, [&](sql::deadline end) {
        if (!std::exchange(call.alone, true)) {
            if (const auto shared = acquire_together(call, end)) return *shared;
        }
        const auto db = take_connection(end);
        return attempt_once(call, *db, end);
    });
    if (!attempt) return std::shared_ptr<grant>{};
    switch (attempt->what) {
        case outcome::granted:
            if (auto granted = accept(call, *attempt)) return granted;
            require_timely(call);
            break;
        case outcome::session_dead:
            lose_session(*call.ours, why_over(*call.ours));
            break;
        case outcome::contested:
            call.look_first = true;
            break;
        case outcome::held:
            if (call.is_ours(attempt->seen)) break;  // the next attempt finds it
            return wait_for_holder(call, attempt->seen);
    }
    return go_on(call);
}

/// Continues after an attempt that found the lock held.
std::optional<std::shared_ptr<grant>> engine::wait_for_holder(acquisition& call,
                                                              const strategy::look& seen) {
    count(counter::busy);
    call.in_vain.forget();
    call.seen_held = true;
    if (call.barging()) {
        if (!wait_and_see(call, seen)) return std::shared_ptr<grant>{};
        return std::nullopt;
    }
    if (!call.has_time()) {
        names_.remember_held(call.name.str());
        return std::shared_ptr<grant>{};
    }
    if (auto waited = wait_in_queue(call)) return waited;
    return go_on(call);
}

/// Called before the next round of a call; no round begins after the call's deadline.
std::optional<std::shared_ptr<grant>> engine::go_on(acquisition& call) {
    if (!try_again_in_vain(call)) return std::shared_ptr<grant>{};
    if (!call.limited() || call.has_time()) return std::nullopt;
    if (call.seen_held) return std::shared_ptr<grant>{};
    throw error{errc::timed_out,
                "the time limit passed before the lock was found held or free: allow more than a "
                "round trip to the database"};
}

/// Whether the call continues after a failure. It does not while its thread holds other leases:
/// those may be lost with the session, and their holder must learn of that rather than wait.
bool engine::outlasts(const acquisition& call, const error& failure) const {
    if (options_.when_cut_off != when_cut_off::requeue || closing_) return false;
    if (call.holds_others || call.too_late.often()) return false;
    if (sql::too_many_connections(failure)) return call.until > call.began;
    if (!call.seen_held || failure.kind() == errc::deadlock) return false;
    return failure.retryable() || failure.kind() == errc::outcome_unknown ||
           failure.kind() == errc::read_only || failure.kind() == errc::lock_lost;
}

/// Returns false if a stop was requested, or the caller's time is up and another client had the
/// lock.
/// @throws failure if the time is up
bool engine::wait_to_ask_again(acquisition& call, const error& failure) {
    const bool session_over = failure.kind() == errc::lock_lost;
    const bool place_lost = std::exchange(call.had_place, false) || session_over;
    report({.kind = place_lost ? event_kind::place_lost : event_kind::waiting,
            .name = call.name.str(),
            .session = call.ours ? call.ours->id() : 0,
            .waited = call.waited(),
            .message = failure.what()});
    call.in_vain.forget();
    const auto now = steady::now();
    if (now < call.until) {
        const auto rest = base::shortened(
            nanoseconds{session_over ? options_.retry.backoff : options_.retry.max_backoff});
        const nanoseconds left = std::min(call.until, now + 24h) - now;
        if (!pause(std::clamp<nanoseconds>(rest, std::min<nanoseconds>(5ms, left), left),
                   call.stop)) {
            return false;
        }
        if (call.has_time()) return true;
    }
    if (session_over) return false;
    throw failure;
}

/// Even a caller that does not wait for the lock allows one statement its full time.
steady::time_point engine::failure_deadline(steady::time_point until) const {
    const auto now = steady::now();
    return std::min(std::max(until, now + options_.statement_timeout),
                    now + options_.retry.total + options_.statement_timeout);
}

/// For the attempts of an acquisition: one that begins in time has a statement's full time.
engine::time_limits engine::limits_of(const acquisition& call) const {
    const auto give_up = failure_deadline(call.until);
    return {give_up, call.limited() ? call.until : give_up};
}

strategy::attempt engine::attempt_once(acquisition& call, sql::connection& db,
                                       sql::deadline until) {
    using outcome = strategy::attempt::outcome;
    call.use(ensure_session(db, until));
    beat_if_late(*call.ours, db, until);
    for (const auto& lost : call.unknown) {
        const auto token =
            protocol_.find_grant(db, call.name.str(), call.ours->id(), lost.grant_id, until);
        if (!token) continue;
        call.grant_id = lost.grant_id;
        call.sent = lost.sent;  // its deadline counts from its own sending
        std::erase_if(call.unknown, [&](const auto& it) { return it.grant_id == call.grant_id; });
        return {outcome::granted, *token, {}};
    }
    if (call.look_first) {
        const auto seen = protocol_.probe(db, call.name.str(), call.ours->id(), until);
        if (!seen.session_live) return {outcome::session_dead, 0, seen};
        if (!seen.takeable(call.barging())) {
            if (seen.holder_expired) end_expired(db, seen.session, until);
            return {seen.holder_expired ? outcome::contested : outcome::held, 0, seen};
        }
    }
    return send_acquire(call, db, until);
}

strategy::attempt engine::send_acquire(acquisition& call, sql::connection& db,
                                       sql::deadline until) {
    using outcome = strategy::attempt::outcome;
    auto answer = *call.send_as_new([&] { return protocol_.acquire(db, call.request(), until); });
    if (answer.what == outcome::held && answer.seen.holder_expired) {
        // The session is ended first, in its own commit; only then may the lease row change (I3).
        end_expired(db, answer.seen.session, until);
        answer.what = outcome::contested;
    }
    // Faster clients win once or twice; then check the floor: without it nothing is ever granted.
    if (answer.what == outcome::contested && call.in_vain.made() >= 2) {
        protocol_.require_token_floor(db, until);
    }
    return answer;
}

void engine::end_expired(sql::connection& db, std::int64_t session, sql::deadline until) {
    if (protocol_.end_expired_session(db, session, until)) look_for_waiters_after(session);
}

/// Counts a grant that came too late to be returned.
void engine::require_timely(acquisition& call) const {
    if (call.options.deadline && call.ours->trust()->open(clock_.now())) call.too_late.count();
}

/// After an attempt that neither won nor found a holder: pauses, at first not at all, then longer
/// each time. Returns false if a stop was requested.
bool engine::try_again_in_vain(acquisition& call) {
    const auto time = call.in_vain.count();
    return time == 0ms || pause(base::shortened(nanoseconds{time}), call.stop);
}

/// Returns the grant as an object, or null if it came too late: after a pause the session may have
/// expired, and no caller may receive a lease that is not held.
std::shared_ptr<grant> engine::accept(acquisition& call, const strategy::attempt& granted) {
    std::optional<microseconds> deadline;
    if (call.options.deadline) deadline = *call.options.deadline;
    std::shared_ptr<grant> made;
    try {
        made = make_grant(*call.ours, call.name.str(), call.grant_id, granted.token, call.sent,
                          deadline, call.thread);
    } catch (...) {
        // Out of memory: the grant cannot be held.
        leave_unresolved(*call.ours, call.name.str(),
                         {.grant_id = call.grant_id, .not_after = clock_.now()});
        throw;
    }
    if (made->held()) {
        count(counter::acquired);
        report(event_kind::lease_acquired, *made, {}, call.waited());
        return made;
    }
    made->now = grant::state::lost;
    made->stopped = true;  // no caller received it
    leave_unresolved(*call.ours, made->name,
                     {.grant_id = made->grant_id, .not_after = clock_.now() + statement_bound()});
    if (!call.ours->trust()->open(clock_.now())) {
        lose_session(*call.ours, loss_reason::trust_window_passed);
    }
    return nullptr;
}

std::shared_ptr<grant> engine::make_grant(session& ours, std::string name, std::int64_t grant_id,
                                          std::int64_t token, nanoseconds sent,
                                          std::optional<microseconds> deadline,
                                          std::string thread) {
    auto made = std::make_shared<grant>();
    made->name = std::move(name);
    made->thread = std::move(thread);
    made->token = fencing_token{token};
    made->grant_id = grant_id;
    made->session_id = ours.id();
    made->session_trust = ours.trust();
    made->owner = weak_from_this();
    made->clock = clock_;
    if (deadline) {
        // The database counts from the grant, which is later than our sending: this deadline is
        // early. A short deadline cannot afford the whole margin.
        const nanoseconds margin = std::min<nanoseconds>(options_.margin, *deadline / 6);
        made->deadline = sent + *deadline - margin;
        made->deadline_margin = margin;
        made->deadline_over = clock_.now() + *deadline;
    }
    ours.hold(made);
    if (!deadline) return made;
    try {
        const std::lock_guard lock{state_mutex_};
        deadlines_.emplace(std::pair{made->deadline, grant_id}, own_deadline{made});
        if (watchdog_) watchdog_->poke();
    } catch (...) {
        ours.forget(grant_id);  // a grant that is not fully registered is not held
        throw;
    }
    return made;
}

/// For a caller outside the queue: sleeps until the lock is worth another probe. Returns false if
/// the caller's time is up or a stop was requested.
bool engine::wait_and_see(acquisition& call, const strategy::look& seen) {
    const auto now = steady::now();
    if (now >= call.until) return false;
    nanoseconds time = base::shortened(call.poll);
    if (seen.remaining > 0us) time = std::min<nanoseconds>(time, seen.remaining + 1ms);
    time = std::min<nanoseconds>(time, call.until - now);
    call.poll = std::min(options_.poll_interval, call.poll + call.poll / 2);
    call.look_first = true;
    return pause(time, call.stop);
}

bool engine::pause(nanoseconds time, const std::stop_token& stop) {
    std::unique_lock lock{pause_mutex_};
    pause_.wait_for(lock, stop, time, [this] { return closing_.load(); });
    return !stop.stop_requested();
}

std::shared_ptr<session> engine::ensure_session(sql::connection& db, sql::deadline until) {
    for (;;) {
        std::unique_lock lock{state_mutex_};
        if (!opened_.wait_until(lock, until, [this] { return !opening_ || closing_; })) {
            throw error{errc::timed_out, "another thread is still opening the session"};
        }
        if (closing_) throw client_destroyed();
        if (auto ours = current_) {
            lock.unlock();
            if (ours->trust()->open(clock_.now())) return ours;
            lose_session(*ours, loss_reason::trust_window_passed);
            continue;
        }
        opening_ = true;
        break;
    }
    struct opening_done {
        engine& self;
        ~opening_done() {
            const std::lock_guard lock{self.state_mutex_};
            self.opening_ = false;
            self.opened_.notify_all();
        }
    } const done{*this};
    return open_session(db, until);
}

std::shared_ptr<session> engine::open_session(sql::connection& db, sql::deadline until) {
    if (!schema_checked_) {
        require_current_schema(db, {.schema = options_.schema, .prefix = options_.prefix}, until);
        schema_checked_ = true;
    }
    auto ears = make_ears();
    const strategy::session_row row{.id = base::random_id(),
                                    .owner = options_.owner,
                                    .host = base::host_name(),
                                    .program = options_.program,
                                    .pid = getpid(),
                                    .ttl = options_.ttl,
                                    .wake = ears.address};
    const nanoseconds sent = clock_.now();
    auto server = protocol_.open_session(db, row, until);
    note_round_trip(clock_.now() - sent);
    auto opened = std::make_shared<session>(row.id, std::move(server), std::move(ears),
                                            sent + options_.ttl - options_.margin, sent);
    start_workers(opened);
    count(counter::sessions);
    events_.post({.kind = event_kind::session_opened, .session = row.id});
    return opened;
}

/// The mailbox exists before any client can read its name, so none can have taken the name. Without
/// a mailbox the session row says so, and the database notifies us.
session::ears engine::make_ears() const {
    session::ears made{.address = strategy::random_wake_address()};
    if (options_.wake_ups != wakeup_mode::automatic || !wakeup::network_namespace()) return made;
    try {
        made.mailbox = std::make_unique<wakeup::mailbox>(made.address.number);
        made.address.mailbox = wakeup::network_namespace();
    } catch (const error&) {
        // Out of descriptors.
    }
    return made;
}

/// Starts all workers or none; no session is opened without them. They are created without the
/// lock, which their first steps take; only one thread at a time opens a session.
void engine::start_workers(std::shared_ptr<session> opened) {
    std::unique_ptr<base::worker> heartbeat;
    std::unique_ptr<base::worker> watchdog;
    std::unique_ptr<base::worker> reaper;
    if (!has_workers()) {
        const auto start = [this](nanoseconds (engine::*step)() noexcept) {
            return std::make_unique<base::worker>(clock_, [this, step] { return (this->*step)(); });
        };
        try {
            heartbeat = std::make_unique<base::worker>(
                clock_, [this] { return beat(); }, heartbeat_ears());
            watchdog = start(&engine::watch);
            if (options_.reaper) reaper = start(&engine::reap_once);
        } catch (const error&) {
            throw;
        } catch (const std::system_error&) {
            throw error{
                errc::out_of_resources,
                "no thread could be started for the heartbeat: raise the limit (ulimit -u)"};
        }
    }
    {
        const std::lock_guard lock{state_mutex_};
        // Nothing depends on that session; it expires.
        if (closing_) throw client_destroyed();
        if (heartbeat) {
            heartbeat_ = std::move(heartbeat);
            watchdog_ = std::move(watchdog);
            reaper_ = std::move(reaper);
        }
        current_ = std::move(opened);
        heartbeat_->poke();
        if (second_heartbeat_) second_heartbeat_->poke();
        watchdog_->poke();
    }
    if (const auto room = open_room()) room->listen_again();
}

bool engine::has_workers() const {
    const std::lock_guard lock{state_mutex_};
    return heartbeat_ != nullptr;
}

std::vector<std::shared_ptr<grant>> engine::reclaim() {
    fork_.require_same_process();
    if (options_.owner.starts_with(random_owner)) {
        throw error{errc::invalid_options,
                    "reclaim() needs client_options::owner: a stable name of this process"};
    }
    require_no_holder_of_lost();
    const std::lock_guard reclaiming{reclaiming_};
    std::vector<std::shared_ptr<grant>> taken;
    std::shared_ptr<session> ours;
    try {
        with_retries(failure_deadline(steady::now() + options_.retry.total), {},
                     [&](sql::connection& db, sql::deadline until) {
                         for (const auto id : reclaim_rows(ours, db, until)) {
                             look_for_waiters_after(id);
                         }
                         const nanoseconds sent = clock_.now();
                         for (auto& row : protocol_.leases_of(db, ours->id(), until)) {
                             if (auto granted = adopt(*ours, row, sent, db, until)) {
                                 taken.push_back(std::move(granted));
                             }
                         }
                         return true;
                     });
    } catch (...) {
        // No caller receives these grants. Rows that the session does not know are reclaimed by the
        // next attempt, or given back with the next heartbeat.
        for (const auto& granted : taken) {
            granted->stopped = true;
            granted->now = grant::state::released;
            forget(*granted);
        }
        if (ours) {
            ours->doubt();
            compare_wanted_ = true;
        }
        throw;
    }
    for (const auto& granted : taken) {
        count(counter::acquired);
        report(event_kind::lease_acquired, *granted, "reclaimed from a predecessor");
    }
    return taken;
}

/// Reclaims into a live session of ours. Returns the sessions that it ended.
std::vector<std::int64_t> engine::reclaim_rows(std::shared_ptr<session>& ours, sql::connection& db,
                                               sql::deadline until) {
    for (;;) {
        ours = ensure_session(db, until);
        try {
            if (auto ended = protocol_.reclaim(db, options_.owner, ours->id(), until)) {
                return *std::move(ended);
            }
        } catch (const error& failure) {
            // The lost commit may take effect only after another attempt has read our rows.
            if (failure.kind() == errc::outcome_unknown) ours->doubt();
            throw;
        }
        lose_session(*ours, why_over(*ours, db, until));
    }
}

/// Makes a grant from a row of our session. Returns null if the grant is known here already.
std::shared_ptr<grant> engine::adopt(session& ours, const strategy::session_lease& row,
                                     nanoseconds sent, sql::connection& db, sql::deadline until) {
    if (ours.knows(row.grant_id) || ours.is_unresolved(row.grant_id)) return nullptr;
    // Read again, now that the grant is unknown here: another thread may have released it between
    // the read and that check.
    if (!protocol_.find_grant(db, row.name, ours.id(), row.grant_id, until)) return nullptr;
    std::optional<microseconds> deadline;
    if (row.deadline_us) deadline = microseconds{*row.deadline_us};
    auto granted = make_grant(ours, row.name, row.grant_id, row.token, sent, deadline, {});
    // A thread that declared the session lost meanwhile may not have seen this grant.
    if (!ours.trust()->open(clock_.now())) lose(*granted, loss_reason::trust_window_passed);
    return granted;
}

/// reclaim() ends its owner's sessions, including those that this client has lost.
void engine::require_no_holder_of_lost() const {
    const nanoseconds now = clock_.now();
    const std::lock_guard lock{state_mutex_};
    if (std::ranges::all_of(to_end_, [&](const auto& each) { return end_at(each, now) <= now; })) {
        return;
    }
    throw error{errc::lock_lost,
                "leases of this client were lost and may still be worked under: release or destroy "
                "them first, or call again when the margin is over"};
}

/// Declares the loss of a lease that this client relied on until now. The watchdog is about to do
/// the same; the first of them declares it.
void engine::declare_if_over(grant& held) {
    if (held.held() || held.now != grant::state::held) return;
    const bool session_lives = held.session_trust->open(clock_.now());
    lose(held, session_lives ? loss_reason::deadline_passed : loss_reason::trust_window_passed);
}

/// The holder has stopped working on what the lease protects. If the lease was lost, this client
/// need not withhold it from the next holder any longer. This function sets the flag before it
/// reads the state; a thread that declares a loss writes the state before it reads the flag: one of
/// the two sees the other.
void engine::stopped(grant& by) noexcept {
    if (by.stopped.exchange(true) || by.now != grant::state::lost) return;
    const auto ours = current();
    const bool session_lives = ours && ours->id() == by.session_id;
    const loss_reason why = by.reason;
    const bool row_alone =
        why == loss_reason::deadline_passed || why == loss_reason::release_requested;
    if (session_lives && row_alone) return clear_row(by);
    poke_heartbeat();
}

void engine::release(grant& held) {
    fork_.require_same_process();
    declare_if_over(held);
    stopped(held);
    // A transaction of the caller's may have freed it; if that was rolled back, this call frees it.
    auto expected = grant::state::released_in;
    const bool perhaps_freed = held.now.compare_exchange_strong(expected, grant::state::releasing);
    expected = grant::state::held;
    if (!perhaps_freed && !held.now.compare_exchange_strong(expected, grant::state::releasing)) {
        if (expected == grant::state::lost) throw lost_error(held);
        return;
    }
    bool unknown = false;
    try {
        const bool freed = send_release(held, unknown);
        // Not found after a lost reply: the earlier attempt freed it.
        if (freed || unknown || perhaps_freed) return confirm_release(held);
    } catch (const std::exception& failure) {
        give_up_release(held, failure.what());
        throw;
    }
    deny_release(held);
    throw lost_error(held);
}

void engine::confirm_release(grant& held) {
    forget(held);
    held.now = grant::state::released;
    count(counter::released);
    report(event_kind::lease_released, held);
}

/// The release found that the lease was no longer ours.
void engine::deny_release(grant& held) {
    forget(held);
    lose(held, loss_reason::forced_release, grant::state::releasing);
    if (const auto ours = current(); ours && ours->id() == held.session_id) give_up(*ours, held);
}

/// Returns true if this call freed the lease. A waiter then has it, or will be looked for.
bool engine::send_release(grant& held, bool& unknown) {
    const bool contended = held.queued || is_contended(held.name);
    // A release that waits for a fenced transaction must not delay other threads.
    bool together = !contended && !held.fenced;
    const auto send = [&](sql::deadline until) {
        if (std::exchange(together, false)) {
            if (const auto shared = release_together(held, until, unknown)) {
                if (shared->freed && !shared->next && !shared->unwaited) {
                    look_for_waiters(held.name);
                }
                return *shared;
            }
        }
        const auto db = take_connection(until);
        strategy::release_outcome released{true, pass_on(*db, held, until)};
        if (!released.next) {
            released =
                queue_.release(*db, held.name, held.session_id, held.grant_id, contended, until);
        }
        if (released.freed) after_release(*db, held.name, released, until);
        return released;
    };
    // The last part of the time is for a driver that cancels an unanswered statement.
    const auto cancelling = std::min<milliseconds>(250ms, options_.statement_timeout / 4);
    const auto done = repeat(steady::now() + options_.statement_timeout - cancelling,
                             std::stop_token{}, [&](sql::deadline until) {
                                 try {
                                     return send(until);
                                 } catch (const error& failure) {
                                     unknown = unknown || failure.kind() == errc::outcome_unknown;
                                     throw;
                                 }
                             });
    if (done && done->freed && !done->next) {
        names_.remember_free(held.name, held.token.value());
    }
    if (unknown) look_for_waiters(held.name, true);
    return done && done->freed;
}

/// Hands the lease to the waiter seen behind it, if any; once. After a lost reply the release finds
/// out.
std::optional<strategy::handed_over> engine::pass_on(sql::connection& db, grant& held,
                                                     sql::deadline until) {
    std::optional<strategy::next_in_line> next;
    {
        const std::lock_guard lock{held.mutex};
        next.swap(held.next);
        if (!next || clock_.now() >= held.next_until) return std::nullopt;
    }
    const bool reclaimable = !options_.owner.starts_with(random_owner);
    return queue_.pass_on(db, held.name, held.session_id, held.grant_id, *next,
                          {.may_be_asynchronous = !reclaimable, .notify = !is_near(next->to)},
                          until);
}

/// The database confirmed that the grant is over.
void engine::forget(const grant& ended) {
    if (const auto ours = current(); ours && ours->id() == ended.session_id) {
        ours->forget(ended.grant_id);
    }
    if (ended.deadline == base::alarm::never) return;
    const std::lock_guard lock{state_mutex_};
    deadlines_.erase({ended.deadline, ended.grant_id});
}

/// The lease counts as released; the heartbeat keeps trying to free its row.
void engine::give_up_release(grant& held, const char* why) noexcept {
    held.now = grant::state::released;
    const auto ours = current();
    if (!ours || ours->id() != held.session_id) return;  // an ended session holds nothing
    leave_unresolved(*ours, held.name,
                     {.grant_id = held.grant_id, .not_after = clock_.now() + statement_bound()});
    try {
        report(event_kind::outcome_unknown, held, why);
    } catch (...) {
        // Out of memory for the message.
    }
}

/// Adds the grant to those the heartbeat resolves. If there is no memory for that, the session
/// forgets it, and a comparison with the database gives back rows that are not known.
void engine::leave_unresolved(session& ours, const std::string& name,
                              unresolved_grant what) noexcept {
    const auto grant_id = what.grant_id;
    try {
        what.name = name;
        ours.remember(std::move(what));
    } catch (...) {
        ours.forget(grant_id);
        ours.doubt();
        compare_wanted_ = true;
    }
    poke_heartbeat();
}

void engine::release_quietly(const std::shared_ptr<grant>& held) noexcept {
    try {
        if (held->now == grant::state::released) return;
        stopped(*held);
        if (send_pipelined_release(held)) return;
        release(*held);
    } catch (...) {
        // release() has reported it as an event and goes on in the background.
    }
}

std::optional<lease_info> engine::inspect(const lock_name& name) {
    fork_.require_same_process();
    return *with_retries(failure_deadline(steady::now() + options_.retry.total), {},
                         [&](sql::connection& db, sql::deadline until) {
                             return protocol_.inspect(db, name.str(), until);
                         });
}

std::vector<lease_info> engine::list(std::string_view prefix, const page& page) {
    fork_.require_same_process();
    validate(prefix, page);
    return *with_retries(failure_deadline(steady::now() + options_.retry.total), {},
                         [&](sql::connection& db, sql::deadline until) {
                             return protocol_.list(db, prefix, page, until);
                         });
}

std::vector<waiter_info> engine::queue(const lock_name& name) {
    fork_.require_same_process();
    return *with_retries(failure_deadline(steady::now() + options_.retry.total), {},
                         [&](sql::connection& db, sql::deadline until) {
                             return protocol_.queue(db, name.str(), until);
                         });
}

std::optional<milliseconds> engine::request_release(const lock_name& name, fencing_token holder) {
    fork_.require_same_process();
    const auto asked = *with_retries(failure_deadline(steady::now() + options_.retry.total), {},
                                     [&](sql::connection& db, sql::deadline until) {
                                         auto done = protocol_.request_release(
                                             db, name.str(), holder.value(), until);
                                         if (done) tell_holder(db, done->session, until);
                                         return done;
                                     });
    if (!asked) return std::nullopt;
    if (asked->left <= 0us) look_for_waiters(name.str());
    return std::chrono::ceil<milliseconds>(asked->left);
}

bool engine::force_release(const lock_name& name, std::optional<fencing_token> only) {
    fork_.require_same_process();
    strategy::victim whom;
    const bool freed = *with_retries(
        failure_deadline(steady::now() + options_.retry.total), {},
        [&](sql::connection& db, sql::deadline until) {
            const bool done =
                only ? protocol_.force_release_of(db, name.str(), only->value(), whom, until)
                     : protocol_.force_release(db, name.str(), whom, until);
            if (done) tell_holder(db, whom.session, until);
            return done;
        });
    if (freed) look_for_waiters(name.str());
    return freed;
}

client_stats engine::stats() const {
    fork_.require_same_process();
    const auto read = [this](counter which) {
        return counters_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
    };
    client_stats all{.acquired = read(counter::acquired),
                     .busy = read(counter::busy),
                     .released = read(counter::released),
                     .lost = read(counter::lost),
                     .heartbeats = read(counter::heartbeats),
                     .heartbeat_failures = read(counter::heartbeat_failures),
                     .reconnects = read(counter::reconnects),
                     .retries = read(counter::retries),
                     .sessions = read(counter::sessions),
                     .unknown_outcomes = read(counter::unknown_outcomes),
                     .queued = read(counter::queued),
                     .handed_over = read(counter::handed_over),
                     .wake_ups = read(counter::wake_ups),
                     .polls = read(counter::polls),
                     .cancelled = read(counter::cancelled),
                     .deadlocks = read(counter::deadlocks)};
    all.connections = pool_.open_connections() + (heartbeat_connected_ ? 1u : 0u);
    if (const auto room = open_room()) {
        all.waiting = room->waiting();
        all.connections += room->connections();
    }
    if (shares()) all.connections = shared_.connected() ? 1u : 0u;
    if (const auto ours = current()) {
        all.held = ours->leases();
        all.unresolved = ours->unresolved_due(clock_.now());
    }
    return all;
}

std::shared_ptr<hold> engine::shared_hold(const std::string& name,
                                          const std::function<std::shared_ptr<hold>()>& make) {
    const std::lock_guard lock{state_mutex_};
    auto& slot = holds_[name];
    auto shared = slot.lock();
    if (!shared) {
        shared = make();
        slot = shared;
        std::erase_if(holds_, [](const auto& entry) { return entry.second.expired(); });
    }
    return shared;
}

void engine::close() noexcept {
    // No heartbeat may be in flight when the session ends. Each step of a worker is bounded by a
    // statement deadline, and so is all that follows.
    std::array<std::unique_ptr<base::worker>, 4> workers;
    {
        const std::lock_guard lock{state_mutex_};
        closing_ = true;
        workers = {std::move(heartbeat_), std::move(watchdog_), std::move(reaper_),
                   std::move(second_heartbeat_)};
    }
    opened_.notify_all();
    pause_.notify_all();
    std::shared_ptr<waiting_room> room;
    {
        const std::lock_guard lock{room_mutex_};
        room = room_;
    }
    reaping_.request_stop();
    for (auto& each : workers) {
        if (each) each->stop();
    }
    if (room) room->stop();
    workers[0].reset();
    workers[1].reset();
    workers[3].reset();
    const auto until = steady::now() + options_.statement_timeout;
    (void)drain_pipelined(nullptr, until);
    auto rest = room ? room->close() : waiting_room::leftovers{};
    // A client whose heartbeat never connected ends its session on an idle pooled connection.
    if (!heartbeat_db_ && !heartbeat_was_connected_) heartbeat_db_ = pool_.remove_idle();
    try {
        if (const auto ours = current()) {
            if (end_own_session(*ours, rest.places, rest.names, until)) {
                rest.sessions.push_back(ours->id());
            }
        }
        for (const auto id : end_lost_sessions(until)) rest.sessions.push_back(id);
    } catch (...) {
        // Database out of reach, or out of memory: the sessions expire, and waiters poll.
    }
    {
        const std::lock_guard lock{state_mutex_};
        current_.reset();
    }
    hand_on(std::move(rest.names), rest.sessions, until);
    heartbeat_db_.reset();
    heartbeat_connected_ = false;
    workers[2].reset();  // the reaper: no lease depends on its last statement
}

void engine::abandon(std::shared_ptr<engine> inherited) noexcept {
    // Its threads do not exist here and its sockets are the parent's: nothing may be joined, closed
    // or sent. Its memory is leaked.
    static_cast<void>(new std::shared_ptr<engine>{std::move(inherited)});
}

std::int64_t engine::next_id() {
    return ids_.next();
}

std::shared_ptr<session> engine::current() const {
    const std::lock_guard lock{state_mutex_};
    return current_;
}

void engine::poke_heartbeat() noexcept {
    const std::lock_guard lock{state_mutex_};
    if (heartbeat_) heartbeat_->poke();
}

}  // namespace rowlock::detail

#include "transaction/advisory/advisory_engine.hpp"

#include "base/jitter.hpp"
#include "base/require.hpp"
#include "base/retry_policy.hpp"
#include "transaction/advisory/advisory_key.hpp"
#include <rowlock/error.hpp>
#include <rowlock/retry.hpp>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using turn = advisory_key_state::turn;

advisory_options validated(advisory_options options) {
    validate_advisory_domain(options.domain);
    require(options.max_connections >= 1 && options.max_connections <= 1000,
            "max_connections must be from 1 to 1000");
    require(options.check_period >= 10ms && options.check_period <= 1h,
            "check_period must be from 10 ms to 1 hour");
    require(options.statement_timeout >= 10ms && options.statement_timeout <= 1min,
            "statement_timeout must be from 10 ms to one minute");
    require(options.wait_slice >= 10ms && options.wait_slice <= 1min,
            "wait_slice must be from 10 ms to one minute");
    require(options.keepalive_timeout == 0ms ||
                (options.keepalive_timeout <= 24h &&
                 options.keepalive_timeout >=
                     (options.check_period + options.statement_timeout) * 3 / 2),
            "keepalive_timeout must be 0, or at most one day and at least one and a half times "
            "check_period + statement_timeout");
    options.retry = base::validated(std::move(options.retry));
    return options;
}

/// True for failures that a new connection may avoid. The old one locked nothing that its end does
/// not free.
bool is_about_the_connection(const error& failure) {
    switch (failure.kind()) {
        case errc::database_unreachable:
        case errc::outcome_unknown:
        case errc::out_of_resources:
            return true;
        default:
            return false;
    }
}

/// True for failures that certainly locked nothing.
bool is_a_refusal(const error& failure) {
    switch (failure.kind()) {
        case errc::unsupported:
        case errc::read_only:
        case errc::access_denied:
        case errc::wrong_process:
        case errc::invalid_options:
            return true;
        default:
            return false;
    }
}

/// So that pollers that began together drift apart.
milliseconds polling_pause() {
    return base::random_between(25ms, 75ms);
}

}  // namespace

advisory_hold::advisory_hold(advisory_key of, advisory_mode how,
                             const std::shared_ptr<advisory_holding>& by,
                             std::weak_ptr<advisory_engine> engine)
    : key{std::move(of)}, mode{how}, trust{by->on->trust}, owner{std::move(engine)}, tenure{by} {}

bool advisory_hold::held() noexcept {
    if (now.load(std::memory_order_acquire) != state::held || fork.in_child()) return false;
    return trust->open(clock.now());
}

bool advisory_key_state::admits(advisory_mode mode) const noexcept {
    if (!lock) return true;
    return !lock->leaving && lock->mode == advisory_mode::shared && mode == advisory_mode::shared;
}

/// A ticket in the queue. Made and destroyed with the mutex held.
class advisory_engine::queued {
public:
    queued(advisory_engine& engine, place at, const request& wanted)
        : engine_{engine}, at_{std::move(at)}, ticket_{wanted.mode, wanted.patient()} {
        at_->queue.push_back(&ticket_);
    }
    queued(const queued&) = delete;
    queued& operator=(const queued&) = delete;
    ~queued() {
        at_->queue.remove(&ticket_);
        wake(*at_);
        if (at_->queue.empty() && !at_->lock) engine_.places_.erase(at_->identity);
    }
    [[nodiscard]] advisory_key_state::ticket& ticket() noexcept { return ticket_; }

private:
    advisory_engine& engine_;
    place at_;
    advisory_key_state::ticket ticket_;
};

class advisory_engine::in_turn {
public:
    explicit in_turn(advisory_key_state& at) : at_{at} {}
    in_turn(const in_turn&) = delete;
    in_turn& operator=(const in_turn&) = delete;
    ~in_turn() {
        at_.now = turn::free;
        wake(at_);
    }

private:
    advisory_key_state& at_;
};

/// Repeats what a new connection may avoid, within the time and until the stop of a call.
class advisory_engine::retrying : public on_steady_clock {
public:
    retrying(advisory_engine& engine, guard& lock, steady::time_point until,
             const std::stop_token& stop)
        : engine_{engine}, lock_{lock}, until_{until}, stop_{stop} {}

    [[nodiscard]] retry_step judge(const error& failure) const {
        if (!is_about_the_connection(failure)) return retry_step::give_up;
        return stop_.stop_requested() ? retry_step::stop : retry_step::repeat;
    }

    [[nodiscard]] retry_step wait(milliseconds pause) const {
        const bool tries = until_ == steady::time_point::min();
        const auto end = steady::now() + pause;
        if (!tries && end >= until_) return retry_step::give_up;
        engine_.changed_.wait_until(lock_, stop_, end, [this] { return engine_.closing_; });
        engine_.require_open();
        return retry_step::repeat;
    }

    [[nodiscard]] attempted stopped() const { return {outcome::not_ours}; }

private:
    advisory_engine& engine_;
    guard& lock_;
    const steady::time_point until_;
    const std::stop_token& stop_;
};

advisory_engine::advisory_engine(sql::connection_source source, advisory_options options)
    : source_{std::move(source)},
      options_{validated(std::move(options))},
      protocol_{detail::make_advisory_protocol(source_.speaks())},
      events_{options_.on_event} {}

std::shared_ptr<advisory_hold> advisory_engine::acquire(const advisory_key& key, advisory_mode mode,
                                                        steady::time_point until,
                                                        const std::stop_token& stop) {
    fork_.require_same_process();
    protocol_->require_mode(mode);
    const request wanted{key, resolve(key), mode, until, stop};
    guard lock{mutex_};
    const place at = place_of(wanted.server.identity());
    queued mine{*this, at, wanted};
    for (;;) {
        if (!await_turn(lock, *at, mine.ticket(), wanted)) return nullptr;
        const in_turn now{*at};
        auto got = with_retries(lock, at, wanted);
        if (got.what == outcome::ours) return got.hold;
        if (got.what == outcome::not_ours) return nullptr;
    }
}

void advisory_engine::release(advisory_hold& hold) {
    fork_.require_same_process();
    // Under the mutex, as a loss is: each is reported once, by one of the two.
    guard lock{mutex_};
    auto before = advisory_hold::state::held;
    if (hold.held()) hold.now.compare_exchange_strong(before, advisory_hold::state::releasing);
    before = hold.now;
    if (before == advisory_hold::state::released) return;
    const auto of = hold.tenure.lock();
    if (before != advisory_hold::state::releasing || !of || of->over) {
        if (of && !of->over) mark_lost(of->on, loss_reason::trust_window_passed);
        hold.now = advisory_hold::state::lost;
        throw error{errc::lock_lost, "the advisory lock was lost before it was unlocked (" +
                                         std::string{to_string(hold.reason.load())} +
                                         "): others may have held it since"};
    }
    std::erase_if(of->holds, [&](const auto& each) { return each.get() == &hold; });
    // From here on the hold is not ours, whatever happens.
    hold.now = advisory_hold::state::released;
    if (--of->users == 0) leave(lock, of);
    report(event_kind::advisory_unlocked, hold.key);
}

void advisory_engine::release_quietly(advisory_hold& hold) noexcept {
    if (hold.now == advisory_hold::state::lost) return;  // already reported
    try {
        release(hold);
    } catch (const std::exception& failure) {
        report(event_kind::unlock_failed, hold.key, loss_reason::none, failure.what());
    }
}

std::size_t advisory_engine::connections() const {
    const std::lock_guard lock{mutex_};
    return stations_.size();
}

void advisory_engine::abandon(std::shared_ptr<advisory_engine> inherited) noexcept {
    // Leaked, as in detail::engine: its threads do not exist here, and its sockets are the
    // parent's.
    static_cast<void>(new std::shared_ptr<advisory_engine>{std::move(inherited)});
}

// --- keys and turns -----------------------------------------------------------------------------

/// On MySQL a name's key depends on the connections' schema, so the first call connects.
detail::server_key advisory_engine::resolve(const advisory_key& key) {
    guard lock{mutex_};
    require_open();
    if (protocol_->depends_on_schema(key)) {
        const std::stop_token never{};
        repeat_attempts(attempt_counter{options_.retry},
                        retrying{*this, lock, steady::time_point::max(), never}, [&](int) {
                            if (schema_known_) return;
                            const use now{*this, options_.own_connection
                                                     ? own_station(lock, soon())
                                                     : shared_station(lock, soon())};
                        });
    }
    return protocol_->key_of(key, options_.domain, schema_);
}

advisory_engine::place advisory_engine::place_of(const std::string& identity) {
    auto& slot = places_[identity];
    if (!slot)
        slot = std::make_shared<advisory_key_state>(advisory_key_state{.identity = identity});
    return slot;
}

/// Returns true once the turn is ours; false if the key stayed taken or a stop was requested.
bool advisory_engine::await_turn(guard& lock, advisory_key_state& at,
                                 advisory_key_state::ticket& mine, const request& wanted) {
    // Another thread's attempt is over in a few round trips, so even a try waits for it.
    const auto patience = mine.patient ? wanted.until : soon();
    for (;;) {
        require_open();
        const auto* const first = at.queue.front();
        const bool first_goes = at.now == turn::free && at.admits(first->mode);
        if (first == &mine && first_goes) {
            at.now = turn::attempting;
            return true;
        }
        const bool moves = at.now == turn::attempting || first_goes;
        if (!mine.patient && !moves) return false;
        if (wanted.stop.stop_requested() || steady::now() >= patience) return false;
        mine.woken = false;
        mine.wake.wait_until(lock, wanted.stop, std::min(patience, steady::now() + 1h),
                             [&mine] { return mine.woken; });
    }
}

/// Wakes the first ticket, which may go, and every try, which must learn whether it is blocked.
void advisory_engine::wake(const advisory_key_state& at) {
    for (auto* each : at.queue) {
        if (each == at.queue.front() || !each->patient) each->call();
    }
}

// --- with the turn ------------------------------------------------------------------------------

advisory_engine::attempted advisory_engine::with_retries(guard& lock, const place& at,
                                                         const request& wanted) {
    // A wait that lasted long before it broke restarts the count.
    return repeat_attempts(attempt_counter{options_.retry, options_.retry.total},
                           retrying{*this, lock, wanted.until, wanted.stop}, [&](int) -> attempted {
                               if (!at->lock) return attempt(lock, at, wanted);
                               if (!at->admits(wanted.mode))
                                   return {outcome::again};  // owed, see conclude()
                               return join(lock, at, wanted);
                           });
}

/// Tries once; then waits if there is time.
advisory_engine::attempted advisory_engine::attempt(guard& lock, const place& at,
                                                    const request& wanted) {
    const bool own = options_.own_connection;
    station on = own ? own_station(lock, soon()) : shared_station(lock, soon());
    auto using_it = std::make_unique<use>(*this, on);
    if (try_on(lock, at, wanted, on)) return {outcome::ours, install(at, wanted, on)};
    if (is_over(wanted)) return {outcome::not_ours};
    at->now = turn::waiting;
    wake(*at);
    if (!own) {
        using_it.reset();
        on.reset();
    }
    return wait(lock, at, wanted, std::move(on), std::move(using_it));
}

/// Waits in the server's queue on an otherwise idle connection, which then keeps the lock. If there
/// is none, polls on the shared connection.
advisory_engine::attempted advisory_engine::wait(guard& lock, const place& at,
                                                 const request& wanted, station on,
                                                 std::unique_ptr<use> using_it) {
    while (!is_over(wanted)) {
        require_open();
        if (!on && (on = station_to_wait_on(lock))) using_it = std::make_unique<use>(*this, on);
        if (on) {
            if (wait_on(lock, at, wanted, on)) return {outcome::ours, install(at, wanted, on)};
            continue;
        }
        changed_.wait_until(lock, wanted.stop,
                            std::min(wanted.until, steady::now() + polling_pause()),
                            [this] { return closing_; });
        if (is_over(wanted)) break;
        const station polled = shared_station(lock, soon());
        const use now{*this, polled};
        if (try_on(lock, at, wanted, polled)) return {outcome::ours, install(at, wanted, polled)};
    }
    return {outcome::not_ours};
}

/// Joins a shared lock that readers of this process hold, unless another session waits for it
/// exclusively: in the database's own queue a new reader would be behind that waiter.
advisory_engine::attempted advisory_engine::join(guard& lock, const place& at,
                                                 const request& wanted) {
    const tenure of = at->lock;
    ++of->users;
    auto status = detail::advisory_protocol::holder_state::not_ours;
    try {
        if (checkout(lock, of->on, soon())) {
            const use now{*this, of->on};
            const nanoseconds sent = clock_.now();
            {
                const unlocked running{lock};
                status = protocol_->holder_status(*of->on->db, of->on->session, of->key, soon());
            }
            extend_trust(*of->on, sent);
        }
    } catch (...) {
        if (--of->users == 0 && !of->over) leave_quietly(lock, of);
        throw;
    }
    if (of->over) return {outcome::again};
    if (status == detail::advisory_protocol::holder_state::not_ours) {
        lose(of, loss_reason::forced_release);
        return {outcome::again};
    }
    if (status == detail::advisory_protocol::holder_state::contended) {
        if (--of->users == 0) leave_quietly(lock, of);
        return give_way(lock, at, wanted);
    }
    return {outcome::ours, new_hold(of, wanted)};
}

/// Another process waits for a lock that our readers share. It may give up, too, so the caller
/// checks again soon.
advisory_engine::attempted advisory_engine::give_way(guard& lock, const place& at,
                                                     const request& wanted) {
    if (is_over(wanted)) return {outcome::not_ours};
    at->now = turn::waiting;
    wake(*at);
    changed_.wait_until(lock, wanted.stop, std::min(wanted.until, steady::now() + polling_pause()),
                        [this] { return closing_; });
    require_open();
    return {outcome::again};
}

bool advisory_engine::try_on(guard& lock, const place& at, const request& wanted,
                             const station& on) {
    return ask(lock, at, wanted, on, [&] {
        return protocol_->try_lock(*on->db, on->session, wanted.server, wanted.mode, soon());
    });
}

bool advisory_engine::wait_on(guard& lock, const place& at, const request& wanted,
                              const station& on) {
    const auto left = std::chrono::ceil<milliseconds>(wanted.until - steady::now());
    const auto slice = std::clamp(left, 1ms, options_.wait_slice);
    return ask(lock, at, wanted, on, [&] {
        return protocol_->wait(*on->db, on->session, wanted.server, wanted.mode, slice,
                               soon() + slice);
    });
}

/// Runs `action`, which returns whether the lock is ours now. A wait may last longer than its
/// answer is trusted; then the server is asked again.
template <typename Action>
bool advisory_engine::ask(guard& lock, const place& at, const request& wanted, const station& on,
                          Action action) {
    const detail::advisory_protocol::wanted one{wanted.server, wanted.mode};
    nanoseconds sent = clock_.now();
    try {
        bool ours = false;
        {
            const unlocked running{lock};
            ours = action();
            if (ours && clock_.now() - sent > belief() / 4) {
                sent = clock_.now();
                ours = protocol_->held(*on->db, on->session, {&one, 1}, soon()).front();
            }
        }
        extend_trust(*on, sent);
        return ours;
    } catch (const error& failure) {
        if (is_a_refusal(failure) || !on->usable()) throw;
        if (conclude(lock, at, wanted, on)) return true;
        throw;
    }
}

/// After a failure on a connection that still works, finds out whether the lock is ours: a
/// cancelled or timed-out statement may have locked all the same. If this stays unknown, the lock
/// is given back with the connection, or, if that holds other locks, by the watch.
bool advisory_engine::conclude(guard& lock, const place& at, const request& wanted,
                               const station& on) {
    const detail::advisory_protocol::wanted one{wanted.server, wanted.mode};
    const nanoseconds sent = clock_.now();
    try {
        bool ours = false;
        {
            const unlocked running{lock};
            ours = protocol_->held(*on->db, on->session, {&one, 1}, soon()).front();
        }
        extend_trust(*on, sent);
        return ours;
    } catch (const error&) {
        if (!on->usable()) return false;
        if (on->locks == 0) {
            on->db->discard();
            return false;
        }
        const tenure doubtful = new_tenure(at, wanted, on);
        doubtful->leaving = true;
        owed_.push_back(doubtful);
        poke_watch();
        return false;
    }
}

advisory_engine::tenure advisory_engine::new_tenure(const place& at, const request& wanted,
                                                    const station& on) {
    at->lock = std::make_shared<advisory_holding>(
        advisory_holding{.key = wanted.server, .mode = wanted.mode, .on = on, .at = at});
    ++on->locks;
    return at->lock;
}

std::shared_ptr<advisory_hold> advisory_engine::install(const place& at, const request& wanted,
                                                        const station& on) {
    if (closing_) {
        on->db->discard();
        require_open();
    }
    try {
        const tenure fresh = new_tenure(at, wanted, on);
        ++fresh->users;
        return new_hold(fresh, wanted);
    } catch (...) {  // out of memory: the lock ends with its connection
        mark_lost(on, loss_reason::connection_lost);
        throw;
    }
}

std::shared_ptr<advisory_hold> advisory_engine::new_hold(const tenure& of, const request& wanted) {
    auto hold = std::make_shared<advisory_hold>(wanted.key, wanted.mode, of, weak_from_this());
    of->holds.push_back(hold);
    report(event_kind::advisory_locked, wanted.key);
    return hold;
}

bool advisory_engine::is_over(const request& wanted) {
    return wanted.stop.stop_requested() || steady::now() >= wanted.until;
}

// --- giving back --------------------------------------------------------------------------------

/// Unlocks, since the last user of the lock is gone.
void advisory_engine::leave(guard& lock, const tenure& what) {
    what->leaving = true;
    const station on = what->on;
    const auto owe = [&] {
        owed_.push_back(what);
        poke_watch();
    };
    const char* const late =
        "the server did not confirm in time that the advisory lock was unlocked; the client "
        "repeats "
        "the unlock in the background";
    const auto until = soon();
    try {
        if (!checkout(lock, on, until)) throw gone();
    } catch (const error& failure) {
        if (failure.kind() != errc::timed_out) throw;
        owe();
        throw error{errc::timed_out, late};
    }
    const use now{*this, on};
    bool ours = false;
    try {
        ours = unlock_on(lock, *what, until);
    } catch (const error& failure) {
        if (!on->usable() || on->gone) {
            mark_lost(on, loss_reason::connection_lost);
            throw gone();
        }
        if (on->locks == 1) {
            mark_lost(on, loss_reason::connection_lost);
        } else {
            owe();
        }
        throw error{errc::timed_out, late};
    }
    if (what->over) throw gone();
    finish(what);
    if (!ours) {
        throw error{errc::lock_lost,
                    "the server says that the advisory lock was no longer held: another call "
                    "unlocked it on this connection"};
    }
}

void advisory_engine::leave_quietly(guard& lock, const tenure& what) noexcept {
    try {
        leave(lock, what);
    } catch (const std::exception&) {
        // Lost, or owed: no holder is left to notify.
    }
}

error advisory_engine::gone() {
    return {errc::lock_lost,
            "the connection that held the advisory lock broke before it was unlocked: others may "
            "have held it since"};
}

/// The connection is taken. A statement that failed may have been carried out.
bool advisory_engine::unlock_on(guard& lock, const advisory_holding& what, sql::deadline until) {
    const unlocked running{lock};
    sql::connection& db = *what.on->db;
    try {
        return protocol_->unlock(db, what.on->session, what.key, what.mode, until);
    } catch (const error&) {
        if (!what.on->usable()) throw;
    }
    const auto last = soon();
    const detail::advisory_protocol::wanted one{what.key, what.mode};
    if (!protocol_->held(db, what.on->session, {&one, 1}, last).front()) return true;
    return protocol_->unlock(db, what.on->session, what.key, what.mode, last);
}

void advisory_engine::finish(const tenure& what) {
    if (what->over) return;
    what->over = true;
    --what->on->locks;
    const place at = what->at;
    at->lock.reset();
    wake(*at);
    if (at->queue.empty()) places_.erase(at->identity);
}

void advisory_engine::lose(const tenure& what, loss_reason why) noexcept {
    for (const auto& each : what->holds) lose(*each, why);
    what->holds.clear();
    std::erase(owed_, what);
    finish(what);
}

void advisory_engine::lose(advisory_hold& hold, loss_reason why) noexcept {
    auto before = advisory_hold::state::held;
    hold.reason = why;
    if (!hold.now.compare_exchange_strong(before, advisory_hold::state::lost)) return;
    if (hold.watched) signals_.deliver(hold.lost_signal);
    report(event_kind::advisory_lost, hold.key, why);
}

void advisory_engine::report(event_kind kind, const advisory_key& about, loss_reason why,
                             std::string_view message) noexcept {
    events_.post([&] {
        return event{
            .kind = kind, .name = about.str(), .reason = why, .message = std::string{message}};
    });
}

}  // namespace rowlock::detail

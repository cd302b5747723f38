#include "user_thread.hpp"

#include "wall_clock.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/transaction.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rowlock::sim {
namespace {

using std::chrono::milliseconds;

/// Weights: those of modes that exclude each other exceed the capacity. A lease has all of it.
constexpr i64 capacity_of_modes = 1'000;
i64 weight_of(lock_mode mode) {
    if (mode == lock_mode::shared) return 1;
    return mode == lock_mode::upgradeable ? 600 : capacity_of_modes;
}

milliseconds rounded(i64 time) {
    return milliseconds{time / ms};
}

void sleep(i64 time) {
    std::this_thread::sleep_for(std::chrono::nanoseconds{time});
}

class user_thread {
public:
    user_thread(scene& in, node& home, const clients& with, const process& of)
        : scene_{in},
          home_{home},
          locks_{with.locks},
          modes_{with.modes},
          quorum_{with.quorum},
          process_{&of} {}

    void run(const user& planned) {
        const auto place = &planned - process_->users.data();
        time().rename("user " + std::to_string(place + 1));
        int after_healing = 3;
        for (const auto& next : planned.operations) {
            if (scene_.healed() && after_healing-- == 0) return;
            if (next.think > 0) sleep(next.think);
            perform(next);
        }
    }

    void take_over() {
        what_ = &*process_->takes_over;
        duration_ = 0;  // their deadlines are those that the predecessor has set
        names_.clear();
        log("takes over");
        try {
            use(locks_.reclaim());
        } catch (const error& failure) {
            note("reclaim", failure);
        }
    }

private:
    [[nodiscard]] scheduler& time() { return scene_.scheduler(); }
    [[nodiscard]] oracle& judge() { return scene_.oracle(); }

    // --- one operation ---------------------------------------------------------------------------

    void perform(const operation& what) {
        what_ = &what;
        duration_ = scene_.chosen().ttl;
        if (what.how == manner::limited) duration_ = std::min(duration_, what.max_duration);
        names_ = names();
        if (names_.empty()) return;
        ++scene_.sum().operations;
        if (what.kind >= hold_kind::latch) return act();
        log("asks for");
        call_begins();
        try {
            switch (what.kind) {
                case hold_kind::lease:
                    with(acquire_lease());
                    break;
                case hold_kind::several:
                    with(acquire_several());
                    break;
                case hold_kind::shared_mutex:
                    with(acquire_mode());
                    break;
                case hold_kind::several_modes:
                    with(acquire_modes());
                    break;
                case hold_kind::permits:
                    with(acquire_permits());
                    break;
                case hold_kind::mutex:
                    with(lock_mutex<mutex>());
                    break;
                case hold_kind::recursive_mutex:
                    with(lock_again(lock_mutex<recursive_mutex>()));
                    break;
                case hold_kind::office:
                    with(campaign());
                    break;
                case hold_kind::run:
                    with(begin_run());
                    break;
                case hold_kind::offered_lease:
                    with(adopt());
                    break;
                case hold_kind::quorum:
                    with(acquire_quorum());
                    break;
                default:
                    break;
            }
        } catch (const error& failure) {
            call_ends(false);
            note("acquire", failure);
            sleep(20 * ms);
        }
        check_holds();
    }

    /// What is no acquisition of a hold.
    void act() {
        try {
            switch (what_->kind) {
                case hold_kind::latch:
                    return meet_at_latch();
                case hold_kind::barrier:
                    return meet_at_barrier();
                case hold_kind::request:
                    return ask_for_release();
                case hold_kind::force:
                    return take_away();
                case hold_kind::limit:
                    return set_limit();
                case hold_kind::watch:
                    return watch();
                default:
                    return;
            }
        } catch (const error& failure) {
            note("an act", failure);
            sleep(20 * ms);
        }
    }

    /// Empty: there is nothing to do.
    std::vector<std::string> names() {
        std::vector<std::string> modes;
        switch (acts_on_holds() ? what_->target : what_->kind) {
            case hold_kind::shared_mutex:
            case hold_kind::several_modes:
                for (const auto& name : what_->names) {
                    modes.push_back(mode_name(scene_.chosen(), name));
                }
                return modes;
            case hold_kind::permits:
                return {semaphore_name};
            case hold_kind::office:
                return {election_name};
            case hold_kind::run:
                return {run_name};
            case hold_kind::offered_lease:
                if (scene_.offers().empty()) return {};
                offer_ = scene_.offers().back().what;
                duration_ = scene_.offers().back().duration;
                scene_.offers().pop_back();
                return {offer_.name};
            case hold_kind::quorum:
                return {quorum_name(what_->names.front())};
            default:
                return what_->names;
        }
    }

    [[nodiscard]] bool acts_on_holds() const {
        return what_->kind >= hold_kind::request && what_->kind <= hold_kind::limit;
    }

    /// A client tells nothing of quorum locks.
    void check_holds() {
        if (what_->kind == hold_kind::quorum) return;
        for (const auto& name : names_) {
            judge().check_holds(home_, name, [&] { return locks_.holds(name); });
        }
    }

    /// Uses what was acquired, if anything was, and gives it back.
    template <typename Hold>
    void with(std::optional<Hold> acquired) {
        call_ends(acquired.has_value());
        if (!acquired) return got_nothing();
        ++scene_.sum().grants;
        use(*acquired);
        give_back(*acquired);
        acquired.reset();
        for (const auto& name : names_) judge().given_back(home_, name);
    }

    /// A grant may still be on its way to a call that has left.
    void got_nothing() {
        log("does not get");
        if (what_->how == manner::once) return;
        for (int i = 0; i < 5; ++i) {
            check_holds();
            sleep(600 * us);
        }
    }

    template <typename Hold>
    void give_back(Hold& held) {
        try {
            if constexpr (std::is_same_v<Hold, lease>) {
                if (what_->end == ending::on_commit) release_with_commit(held);
                if (what_->end == ending::offer) offer(held);
            }
            if constexpr (std::is_same_v<Hold, term>) {
                if (what_->chooses) choose_successor(held);
            }
            log("gives back");
            if (what_->end == ending::destructor) return;
            ++scene_.sum().operations;
            held.release();
        } catch (const error& failure) {
            if (failure.kind() == errc::lock_lost) ++scene_.sum().losses;
            note("release", failure);
        }
    }

    /// Whoever takes it may do so from here on; then it is withdrawn.
    void offer(lease& held) {
        log("offers");
        scene_.offers().push_back({held.offer(), duration_});
        const i64 end = time().now() + scene_.chosen().ttl / 2;
        while (time().now() < end && !scene_.healed()) sleep(20 * ms);
    }

    // --- the holds of others ---------------------------------------------------------------------

    /// Of the kind that is planned, that somebody has now.
    struct found_hold {
        fencing_token token{};
        session_id session{};
    };
    std::optional<found_hold> some_hold() {
        const auto one_of = [&](const auto& all) -> std::optional<found_hold> {
            if (all.empty()) return std::nullopt;
            const auto& one = all[all.size() / 2];
            return found_hold{one.token, one.who.session};
        };
        if (what_->target == hold_kind::permits) return one_of(counted().holders());
        if (what_->target == hold_kind::shared_mutex) return one_of(modes().holders());
        const auto state = locks_.inspect(names_.front());
        if (!state || !state->holder || state->token.value() == 0) return std::nullopt;
        return found_hold{state->token, state->holder->session};
    }

    /// An operator, or whoever is in a hurry.
    void ask_for_release() {
        const auto one = some_hold();
        if (!one) return;
        request_options terms;
        if (what_->stops) terms.within = rounded(what_->patience);
        log("asks the holder of token " + std::to_string(one->token.value()) + " to give up");
        if (what_->target == hold_kind::permits) {
            static_cast<void>(counted().request_release(one->token, terms));
        } else if (what_->target == hold_kind::shared_mutex) {
            static_cast<void>(modes().request_release(one->token, terms));
        } else {
            static_cast<void>(locks_.request_release(names_.front(), one->token, terms));
        }
    }

    void take_away() {
        const auto one = some_hold();
        if (!one) return;
        oracle::forced made{names_.front(), one->token.value(), 0};
        const bool is_lease = what_->target == hold_kind::lease;
        if (!is_lease) made.session = static_cast<i64>(one->session);
        judge().forces(made);
        log("takes from the holder of token " + std::to_string(made.token));
        bool done = false;
        if (is_lease) {
            done = locks_.force_release(names_.front(), one->token);
        } else if (what_->target == hold_kind::permits) {
            done = counted().force_release(one->token);
        } else {
            done = modes().force_release(one->token);
        }
        // The client with other holds of permits and modes may believe in those.
        if (!done || !is_lease) return;
        judge().took(made, scene_.chosen().ttl);
    }

    void set_limit() {
        std::optional<milliseconds> limit;
        if (what_->stops) limit = rounded(what_->max_duration);
        log("limits");
        judge().changes_limit(names_.front());
        locks_.set_max_hold(names_.front(), limit);
        judge().limited(names_.front(), limit ? what_->max_duration : 0);
    }

    /// Whoever leads next is told so by its own call.
    template <typename Term>
    void choose_successor(Term& held) {
        election office{locks_, election_name};
        const auto all = office.candidates();
        if (all.empty()) return;
        const auto heir = all.back().session;
        log("chooses session " + to_string(heir));
        const i64 next = held.token().value() + 1;
        if (held.of.step_down(heir)) judge().chosen(next, static_cast<i64>(heir));
    }

    /// A grant that lasts for a whole call is the one that the watch has shown; but a holder that
    /// is still in its row may have expired.
    void watch() {
        const auto& name = names_.front();
        struct state {
            i64 token = 0, grant = 0;
        };
        // Nothing while a transaction has the file locked.
        const auto latest = [&]() -> std::optional<state> {
            const auto rows = scene_.database().ask(
                "select coalesce(max(token), 0), coalesce(max(grant_id), 0) from rowlock_lock "
                "where name = '" +
                name + "'");
            if (rows.empty()) return std::nullopt;
            return state{rows.integer(0, 0), rows.integer(0, 1)};
        };
        auto changes = locks_.watch(name, {.poll_interval = milliseconds{50}});
        state last;
        const i64 end = time().now() + what_->work + 300 * ms;
        while (time().now() < end && !scene_.healed()) {
            const auto before = latest();
            const auto seen = changes.next_for(rounded(what_->patience));
            const auto after = latest();
            if (seen) {
                const i64 token = seen->token.value();
                log("sees token " + std::to_string(token));
                if (token < last.token || (after && token > after->token)) {
                    judge().fail(violation::outdated, name + ": a watch shows token " +
                                                          std::to_string(token) + " after " +
                                                          std::to_string(last.token));
                }
                last = {token, seen->holder ? static_cast<i64>(seen->holder->grant_id) : 0};
            } else if (before && after && before->grant == after->grant && last.grant != 0 &&
                       last.grant != after->grant && before->token == after->token) {
                judge().fail(violation::outdated, name + ": a watch does not show token " +
                                                      std::to_string(after->token));
            }
        }
    }

    // --- latches and barriers --------------------------------------------------------------------

    [[nodiscard]] meetings& meet() { return scene_.meetings(); }
    [[nodiscard]] party_loss on_loss() const {
        return scene_.chosen().losses_count ? party_loss::counts : party_loss::breaks;
    }

    void meet_at_latch() {
        latch door{locks_, latch_name};
        const i64 parties = scene_.chosen().parties;
        i64 generation = 0;
        const i64 before = meet().latest();
        if (const auto begun = door.begin(parties, {.on_loss = on_loss()})) {
            generation = *begun;
            meet().begun(generation, before);
        } else {
            generation = door.inspect()->generation;
        }
        log("comes to generation " + std::to_string(generation) + " of the latch");
        try {
            if (what_->how == manner::once) {
                meet().arrives(generation, false);
                door.count_down(generation);
                meet().arrived(generation);
            } else if (what_->how == manner::for_a_time) {
                arrive_as_party(door, generation);
            }
            log("waits at the latch");
            const i64 arrived = meet().arrived_by_now(generation);
            const bool is_open = door.wait_for(rounded(what_->patience), {}, generation);
            log(is_open ? "finds the latch open" : "finds the latch closed");
            meet().waited(generation, is_open, arrived);
        } catch (const error& failure) {
            if (failure.kind() != errc::broken) throw;
            log("finds the latch broken");
            meet().latch_broke(generation);
        }
    }

    void arrive_as_party(latch& door, i64 generation) {
        meet().joins(generation);
        auto party = door.join(generation);
        log("is a party");
        sleep(std::min(what_->work, 100 * ms));
        if (what_->end == ending::destructor) return;
        meet().arrives(generation, true);
        party.arrive();
        meet().arrived(generation);
        log("has arrived");
    }

    void meet_at_barrier() {
        double_barrier step{locks_, barrier_name, scene_.chosen().parties, {.on_loss = on_loss()}};
        log("enters the barrier");
        const auto call = meet().enters(home_);
        std::optional<barrier_party> inside;
        try {
            inside = step.enter_for(rounded(what_->patience));
        } catch (const error& failure) {
            if (failure.kind() != errc::broken) {
                meet().may_have_entered(call);
                throw;
            }
            log("finds the barrier broken");
        }
        if (!inside) return meet().did_not_enter(call);
        const i64 generation = inside->generation();
        log("is inside generation " + std::to_string(generation));
        meet().entered(call, generation);
        sleep(std::min(what_->work, 100 * ms));
        meet().departs(generation);
        if (what_->end == ending::destructor) return;
        try {
            const bool done = inside->leave_for(rounded(what_->patience));
            log(done ? "has left the barrier" : "departs from the barrier alone");
            if (done) meet().left(generation);
        } catch (const error& failure) {
            if (failure.kind() != errc::broken) throw;
            log("leaves a broken barrier");
            meet().barrier_broke(generation);
        }
    }

    // --- calls -----------------------------------------------------------------------------------

    void call_begins() {
        began_ = time().now();
        calls_.clear();
        for (const auto& name : names_) {
            calls_.push_back(judge().call_begins(home_, name));
        }
        // The order of those that wait for several locks is that of their slowest queue.
        const bool queues = what_->kind == hold_kind::lease && what_->how != manner::barging;
        if (queues) judge().asks(time().current(), names_.front());
    }

    /// Once for each call.
    void call_ends(bool given) {
        if (calls_.empty()) return;
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            judge().call_ends(home_, names_[i], calls_[i], given);
        }
        calls_.clear();
        if (!given) judge().gave_up(time().current());
        require_timely();
    }

    /// A call with a limit ends soon after it. Each of the statements before its wait has a limit
    /// too, a second for a rollback; and so have the repetitions of the one attempt that has none.
    void require_timely() {
        if (!scene_.steady(home_)) return;
        const auto& options = process_->options;
        i64 limit = 300 * ms + second + 2 * options.statement_timeout.count() * ms;
        // An offer is adopted without a wait, whatever the manner that was drawn.
        const bool adopts = what_->kind == hold_kind::offered_lease;
        switch (adopts ? manner::once : what_->how) {
            case manner::once:
                limit += what_->kind == hold_kind::quorum ? what_->patience : 0;
                limit += (options.retry.total + options.retry.max_backoff).count() * ms;
                break;
            case manner::for_a_time:
            case manner::barging:
                limit += what_->patience;
                break;
            case manner::limited:
            case manner::patient:
                return;
        }
        const i64 took = time().now() - began_;
        if (took <= limit) return;
        judge().fail(violation::wait, names_.front() + ": a call took " +
                                          std::to_string(took / us) + " us; its limit is " +
                                          std::to_string(limit / us) + " us");
    }

    // --- how it asks -----------------------------------------------------------------------------

    std::optional<lease> acquire_lease() {
        const auto& name = names_.front();
        acquire_options options;
        switch (what_->how) {
            case manner::once:
                return locks_.try_acquire(name);
            case manner::for_a_time:
                return locks_.try_acquire_for(name, rounded(what_->patience));
            case manner::barging:
                options.queueing = queueing::barging;
                return locks_.try_acquire_for(name, rounded(what_->patience), options);
            case manner::limited:
                options.max_duration = rounded(what_->max_duration);
                return locks_.acquire(name, options);
            case manner::patient:
                break;
        }
        return locks_.acquire(name);
    }

    std::optional<multi_lease> acquire_several() {
        return acquire_all({names_.begin(), names_.end()});
    }
    std::optional<multi_lease> acquire_all(const std::vector<lock_request>& wanted) {
        if (what_->how == manner::once) return locks_.try_acquire_all(wanted);
        if (what_->how == manner::for_a_time) {
            return locks_.try_acquire_all_for(wanted, rounded(what_->patience));
        }
        return locks_.acquire_all(wanted);
    }

    [[nodiscard]] shared_mutex& modes() {
        return **std::ranges::find(
            modes_, names_.front(),
            [](const auto& one) -> const std::string& { return one->name(); });
    }
    [[nodiscard]] semaphore counted() { return {locks_, semaphore_name}; }

    std::optional<mode_lease> acquire_mode() {
        auto& of = modes();
        if (what_->how == manner::once) return of.try_acquire(what_->mode);
        if (what_->how == manner::for_a_time) {
            return of.try_acquire_for(what_->mode, rounded(what_->patience));
        }
        return of.acquire(what_->mode);
    }

    std::optional<multi_lease> acquire_modes() {
        std::vector<lock_request> wanted;
        for (std::size_t i = 0; i < names_.size(); ++i) {
            wanted.emplace_back(names_[i], what_->modes[i]);
        }
        return acquire_all(wanted);
    }

    std::optional<permits> acquire_permits() {
        auto of = counted();
        permit_options options;
        if (what_->how == manner::limited) options.max_duration = rounded(what_->max_duration);
        if (what_->how == manner::once) return of.try_acquire(what_->permits);
        if (what_->how == manner::for_a_time) {
            return of.try_acquire_for(what_->permits, rounded(what_->patience));
        }
        return of.acquire(what_->permits, options);
    }

    std::optional<quorum_lease> acquire_quorum() {
        if (what_->how == manner::patient) return quorum_->acquire(names_.front());
        return quorum_->try_acquire_for(names_.front(), rounded(what_->patience));
    }

    std::optional<lease> adopt() { return locks_.adopt(offer_); }

    /// The lock of this thread, in the shape of a lease.
    template <typename Mutex>
    struct locked {
        std::unique_ptr<Mutex> of;
        std::function<bool()> is_lost{};
        [[nodiscard]] const std::string& name() const { return of->name(); }
        [[nodiscard]] fencing_token token() const { return of->token(); }
        [[nodiscard]] bool held() const { return of->held(); }
        [[nodiscard]] std::stop_token lost() const { return of->lost(); }
        void release() {
            try {
                of->release();
            } catch (const error& failure) {
                // Another thread of this client has it since.
                if (failure.kind() != errc::not_owner || !is_lost()) throw;
                throw error{errc::lock_lost, failure.what()};
            }
        }
    };

    template <typename Mutex>
    std::optional<locked<Mutex>> lock_mutex() {
        auto one = std::make_unique<Mutex>(locks_, names_.front());
        bool done = true;
        if (what_->how == manner::once) {
            done = one->try_lock();
        } else if (what_->how == manner::for_a_time) {
            done = one->try_lock_for(rounded(what_->patience));
        } else {
            one->lock();
        }
        if (!done) return std::nullopt;
        return locked<Mutex>{std::move(one)};
    }

    /// As deep as planned; no deeper once it is lost.
    std::optional<locked<recursive_mutex>> lock_again(std::optional<locked<recursive_mutex>> one) {
        try {
            for (int depth = 1; one && depth < what_->depth; ++depth) one->of->lock();
        } catch (const error& failure) {
            note("lock again", failure);
        }
        return one;
    }

    /// A term of office, in the shape of a lease.
    struct term {
        leadership of;
        [[nodiscard]] const std::string& name() const { return of.lease().name(); }
        [[nodiscard]] fencing_token token() const { return of.term(); }
        [[nodiscard]] bool held() const { return of.held(); }
        [[nodiscard]] std::stop_token lost() const { return of.lost(); }
        void release() { of.step_down(); }
    };

    std::optional<term> campaign() {
        election office{locks_, election_name, {.priority = what_->priority}};
        std::optional<leadership> won;
        if (what_->how == manner::once) {
            won = office.try_campaign();
        } else if (what_->how == manner::for_a_time) {
            won = office.try_campaign_for(rounded(what_->patience));
        } else {
            won = office.campaign();
        }
        if (!won) return std::nullopt;
        return term{std::move(*won)};
    }

    /// A run, in the shape of a lease.
    struct run_of_period {
        periodic_run of;
        std::string period;
        oracle* judge;
        [[nodiscard]] const std::string& name() const { return of.lease().name(); }
        [[nodiscard]] fencing_token token() const { return of.lease().token(); }
        [[nodiscard]] bool held() const { return of.lease().held(); }
        [[nodiscard]] std::stop_token lost() const { return of.lease().lost(); }
        void release() {
            of.finish();
            judge->run_finished(period);
        }
    };

    std::optional<run_of_period> begin_run() {
        constexpr i64 length = 300 * ms;
        constexpr i64 first =
            1'000'000;  // so that all have as many digits: they are compared as text
        periodic_options options;
        options.period = std::to_string(first + time().now() / length);
        if (what_->how == manner::for_a_time) options.wait = rounded(what_->patience);
        if (what_->how == manner::patient) options.wait.reset();
        auto attempt = periodic_run::begin(locks_, run_name, options);
        if (!attempt.run) return std::nullopt;
        return run_of_period{std::move(*attempt.run), options.period, &judge()};
    }

    // --- what it believes, and does --------------------------------------------------------------

    using beliefs = std::vector<oracle::handle>;

    template <typename Hold>
    [[nodiscard]] belief belief_in(const Hold& hold) {
        belief made;
        made.where = &home_;
        made.name = hold.name();
        made.weight = made.capacity = capacity_of_modes;
        made.token = hold.token().value();
        if constexpr (requires { hold.session_id(); }) {
            made.session = static_cast<i64>(hold.session_id());
        }
        made.held = [&hold] { return hold.held(); };
        made.since = time().now();
        made.margin = duration_ / 6;
        made.steady = scene_.steady(home_);
        return made;
    }

    [[nodiscard]] oracle::handle enter(belief made) {
        log("holds, token " + std::to_string(made.token) + ",");
        return judge().enter(std::move(made));
    }

    [[nodiscard]] oracle::handle enter(const lease& hold) {
        auto made = belief_in(hold);
        // The grant is older than its answer.
        if (!scene_.clock_was_set()) {
            const i64 acquired_at = scene_.database().ask_number(
                "select acquired_at from rowlock_lock where session is not null and name = '" +
                made.name + "'");
            if (acquired_at != 0) {
                made.since = std::min(made.since, acquired_at * us - wall_clock(0));
            }
        }
        return enter(std::move(made));
    }

    void use(lease& held) {
        const bool fair = what_->how != manner::barging;
        judge().granted(time().current(), held.token().value(), static_cast<i64>(held.grant_id()),
                        fair);
        work(
            held, {enter(held)},
            [&](sql::connection& db) {
                fence(db, held, limits());
                write(db, held.name(), held.token());
            },
            [&] { extend(held); });
    }

    /// Half way through. Nobody is granted it by the deadline from before.
    template <typename Hold>
    void extend(Hold& held) {
        if (what_->how != manner::limited || !what_->extension) return;
        try {
            log("extends");
            held.extend(rounded(*what_->extension));
        } catch (const error& failure) {
            // Another client may have asked for it.
            if (failure.kind() != errc::invalid_options) note("extend", failure);
        }
    }

    /// Of whole locks, or in modes.
    void use(const multi_lease& held) {
        const auto mode_of = [&](const lease& one) {
            if (what_->kind != hold_kind::several_modes) return lock_mode::exclusive;
            const auto at = std::ranges::find(names_, one.name()) - names_.begin();
            return what_->modes.at(static_cast<std::size_t>(at));
        };
        beliefs entered;
        for (const auto& one : held.leases()) {
            entered.push_back(mode_of(one) == lock_mode::exclusive
                                  ? enter(one)
                                  : enter(in_mode(belief_in(one), mode_of(one))));
        }
        require_all_or_none(held);
        work(held, entered, [&](sql::connection& db) {
            fence(db, held, limits());
            for (const auto& one : held.leases()) {
                if (mode_of(one) == lock_mode::exclusive) write(db, one.name(), one.token());
            }
        });
    }

    /// Of those that were granted together; but one may have been lost by itself since.
    template <typename Hold>
    void require_all_or_none(const Hold& held) {
        std::size_t believed = 0, lost = 0;
        for (const auto& one : held.leases()) {
            if (one.held()) ++believed;
            if (one.lost().stop_requested()) ++lost;
        }
        if (believed == 0 || believed + lost == held.size()) return;
        judge().fail(violation::partial, std::to_string(believed) + " of " +
                                             std::to_string(held.size()) + " locks are held");
    }

    /// A mutex answers its own thread alone, so lost() is asked; where the process is stopped or
    /// stalled, that may come late. A recursive one is unlocked half way through as often as it was
    /// locked again: it stays locked.
    template <typename Mutex>
    void use(locked<Mutex>& held) {
        auto made = belief_in(held);
        made.held = [this, lost = held.lost()] {
            return scene_.steady(home_) && !lost.stop_requested();
        };
        held.is_lost = [this, lost = held.lost(), made] {
            return lost.stop_requested() || judge().is_forced(made);
        };
        work(
            held, {enter(std::move(made))},
            [&](sql::connection& db) {
                fence(db, *held.of, limits());
                write(db, held.name(), held.token());
            },
            [&] {
                if constexpr (std::is_same_v<Mutex, recursive_mutex>) {
                    log("unlocks all but one");
                    while (held.of->depth() > 1) held.of->unlock();
                    if (held.of->depth() == 1 || held.is_lost()) return;
                    judge().fail(violation::partial, held.name() + " is not locked any more");
                }
            });
    }

    /// What is asked of a quorum lock may wait, so the oracle asks lost(), which is late only where
    /// the process was stopped or stalled. There its own thread's questions count.
    struct asked_quorum {
        const quorum_lease& of;
        user_thread& by;
        oracle::handle belief;
        [[nodiscard]] std::stop_token lost() const { return of.lost(); }
        [[nodiscard]] bool held() const {
            const i64 before = by.time().now();
            const bool answer = of.held();
            if (answer && by.time().now() == before) by.judge().affirms(belief);
            return answer;
        }
    };

    void use(const quorum_lease& held) {
        auto made = belief_in(held);
        made.held = [this, lost = held.lost()] {
            return scene_.steady(home_) && !lost.stop_requested();
        };
        const auto entered = enter(std::move(made));
        work(asked_quorum{held, *this, entered}, {entered}, {});
    }

    void use(const term& held) {
        judge().leads(held.token().value(), static_cast<i64>(held.of.lease().session_id()));
        work_under_lease(held, held.of.lease());
    }
    void use(const run_of_period& held) { work_under_lease(held, held.of.lease()); }

    template <typename Hold>
    void work_under_lease(const Hold& held, const lease& under) {
        work(held, {enter(under)}, [&](sql::connection& db) {
            fence(db, under, limits());
            write(db, under.name(), under.token());
        });
    }

    void use(permits& held) {
        const auto entered = enter(belief_in_permits(held));
        work(
            held, {entered}, [&](sql::connection& db) { fence(db, held, limits()); },
            [&] {
                extend(held);
                give_some_back(held, *entered);
            });
    }

    [[nodiscard]] belief belief_in_permits(const permits& held) {
        auto made = belief_in(held);
        made.weight = held.count();
        made.capacity = scene_.chosen().permits;
        made.rises = false;
        return made;
    }

    /// Others may have them from the moment of asking.
    void give_some_back(permits& held, belief& in) {
        if (what_->gives_back == 0) return;
        in.weight -= what_->gives_back;
        try {
            log("gives some back");
            held.release(what_->gives_back);
        } catch (const error& failure) {
            note("release of some", failure);
        }
        if (held.count() == in.weight) return;
        judge().fail(violation::partial, std::to_string(held.count()) +
                                             " permits remain instead of " +
                                             std::to_string(in.weight));
    }

    /// All that a predecessor held, at once.
    void use(reclaimed_holds all) {
        // An upgrade is a part of its hold; an operator may have ended one by force since.
        const auto rows = [&](const std::string& table, const std::string& condition = {}) {
            return scene_.database().ask_number(
                "select count(*) from " + table +
                " h join rowlock_session s on s.id = h.session where "
                "s.ended = 0 and s.owner = '" +
                process_->options.owner + "'" + condition);
        };
        require_all_taken("leases", all.leases.size(), rows("rowlock_lock"));
        require_all_taken("permits and modes",
                          all.of_semaphores.size() + all.of_shared_mutexes.size(),
                          rows("rowlock_hold", " and h.deadline is not 0"));
        beliefs entered;
        for (const auto& one : all.leases) entered.push_back(enter(one));
        for (const auto& one : all.of_semaphores) entered.push_back(enter(belief_in_permits(one)));
        for (const auto& one : all.of_shared_mutexes) entered.push_back(enter(belief_in_mode(one)));
        for (const auto& one : entered) {
            judge().call_ends(home_, one->name, judge().call_begins(home_, one->name), true);
            ++scene_.sum().grants;
        }
        sleep(scene_.healed() ? 0 : std::min(what_->work, scene_.chosen().ttl));
        for (const auto& one : entered) {
            judge().given_back(home_, one->name);
            judge().leave(one);
        }
        for (auto& one : all.leases) give_back(one);
        for (auto& one : all.of_semaphores) give_back(one);
        for (auto& one : all.of_shared_mutexes) give_back(one);
    }

    /// What the table has for its owner is in the client's hands.
    void require_all_taken(const std::string& what, std::size_t taken, i64 rows) {
        if (rows <= static_cast<i64>(taken)) return;
        judge().fail(violation::taken_over, std::to_string(taken) + " of " + std::to_string(rows) +
                                                ' ' + what + " were taken over");
    }

    void use(mode_lease& held) {
        work_in_mode(held);
        if (!what_->next_mode) return;
        // A weaker hold may have others beside it from the moment of asking: nothing is believed
        // until the answer. A stronger one is believed after it; until then the hold stays.
        try {
            if (*what_->next_mode == lock_mode::exclusive) {
                log("upgrades");
                auto before = belief_in_mode(held);
                before.rises = false;
                const auto still = enter(std::move(before));
                const bool done = upgrade(held, still);
                if (done) work_in_mode(held);
            } else {
                log("downgrades");
                held.downgrade(*what_->next_mode);
                work_in_mode(held);
            }
        } catch (const error& failure) {
            note("change of mode", failure);
        }
    }

    /// @param before what is believed until the upgrade
    bool upgrade(mode_lease& held, oracle::handle before) {
        try {
            bool done = true;
            if (what_->how == manner::patient) {
                held.upgrade();
            } else {
                done = held.try_upgrade_for(rounded(what_->patience));
            }
            judge().leave(before);
            return done;
        } catch (...) {
            judge().leave(before);
            throw;
        }
    }

    [[nodiscard]] static belief in_mode(belief made, lock_mode mode) {
        made.weight = weight_of(mode);
        made.rises = mode == lock_mode::exclusive;
        return made;
    }
    [[nodiscard]] belief belief_in_mode(const mode_lease& held) {
        return in_mode(belief_in(held), held.mode());
    }

    void work_in_mode(const mode_lease& held) {
        work(held, {enter(belief_in_mode(held))}, [&](sql::connection& db) {
            fence(db, held, limits());
            if (held.mode() == lock_mode::exclusive) write(db, held.name(), held.token());
        });
    }

    /// Stays for the planned time, or, mostly, until it knows that it has lost the lock.
    template <typename Hold>
    void work(const Hold& held, const beliefs& entered,
              const std::function<void(sql::connection&)>& fenced,
              const std::function<void()>& half_way = {}) {
        using on_loss = std::stop_callback<std::function<void()>>;
        std::optional<on_loss> listener;
        if (what_->listens) {
            listener.emplace(held.lost(), std::function<void()>{[this, entered] {
                                 for (const auto one : entered) {
                                     // Of several the first loss is told: the others stay held.
                                     if (entered.size() > 1 && one->held()) continue;
                                     one->lost_at = time().now();
                                     if (!scene_.steady(home_)) one->steady = false;
                                     log("lost() of token " + std::to_string(one->token));
                                 }
                             }});
        }
        const i64 end =
            time().now() + (scene_.healed() ? std::min(what_->work, 30 * ms) : what_->work);
        if (what_->fences) commit_under(fenced);
        const auto work_until = [&](i64 until) {
            while (time().now() < until && !scene_.healed()) {
                sleep(std::min(until - time().now(), 40 * ms));
                if (what_->stops && !held.held()) return;
            }
        };
        if (half_way) {
            work_until(time().now() + (end - time().now()) / 2);
            half_way();
        }
        work_until(end);
        listener.reset();
        for (const auto one : entered) judge().leave(one);
    }

    // --- fenced transactions ---------------------------------------------------------------------

    [[nodiscard]] sql::deadline soon() const {
        return std::chrono::steady_clock::now() + process_->options.statement_timeout;
    }

    /// A fence that waits for a lost answer keeps the only writer's lock for that long.
    [[nodiscard]] fence_options limits() const {
        return {.statement_timeout = process_->options.statement_timeout};
    }

    /// The caller's own transaction on a connection of the caller's.
    void commit_under(const std::function<void(sql::connection&)>& fenced) {
        try {
            const auto db = scene_.database().source().connect(soon());
            db->query("begin", soon());
            fenced(*db);
            db->query("commit", soon());
            log("has committed under");
            ++scene_.sum().fences;
        } catch (const error& failure) {
            note("fence", failure);
        }
    }

    /// Whatever becomes of the transaction, release() frees the lease afterwards, if it has not.
    void release_with_commit(lease& held) {
        try {
            const std::string name = held.name();
            const auto token = held.token();
            const auto db = scene_.database().source().connect(soon());
            db->query("begin", soon());
            release_on_commit(*db, held, limits());
            write(*db, name, token);
            db->query("commit", soon());
            log("has released with a commit");
        } catch (const error& failure) {
            note("release on commit", failure);
        }
    }

    void write(sql::connection& db, const std::string& name, fencing_token token) {
        static const sql::statement guarded_write{
            "insert into sim_guarded (name, token) values ($1, $2) "
            "on conflict (name) do update set token = excluded.token"};
        const std::vector<sql::value> parameters{sql::value{std::string_view{name}},
                                                 sql::value{token.value()}};
        static_cast<void>(db.execute(guarded_write, parameters, soon()));
    }

    // --- the trace -------------------------------------------------------------------------------

    void log(const std::string& what) {
        if (time().prints == nullptr) return;
        std::string line = what;
        for (const auto& name : names_) line += ' ' + name;
        time().log(line);
    }

    /// These may be thrown by any call that talks to a database. No thread asks for a lock while it
    /// holds another, so there are no deadlocks.
    void note(const std::string& call, const error& failure) {
        const std::string kind{to_string(failure.kind())};
        ++scene_.sum().errors[call + ": " + kind];
        time().log(call + " failed: " + failure.what());
        switch (failure.kind()) {
            case errc::lock_lost:
            case errc::timed_out:
            case errc::database_unreachable:
            case errc::outcome_unknown:
            case errc::out_of_resources:
            case errc::conflict:
            case errc::database_error:
                return;
            default:
                break;
        }
        judge().fail(violation::error, call + " threw " + kind + ": " + failure.what());
    }

    scene& scene_;
    node& home_;
    client& locks_;
    shared_mutexes& modes_;
    quorum_client* quorum_;
    const process* process_;
    const operation* what_ = nullptr;
    std::vector<std::string> names_{};
    lease_offer offer_{};
    std::vector<oracle::call_id> calls_{};
    i64 began_ = 0;
    i64 duration_ = 0;  ///< of a hold, at most: a sixth of it is the margin
};

}  // namespace

void work(scene& in, node& home, const clients& with, const process& of, const user& planned) {
    user_thread{in, home, with, of}.run(planned);
}

void take_over(scene& in, node& home, const clients& with, const process& of) {
    user_thread{in, home, with, of}.take_over();
}

}  // namespace rowlock::sim

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

/// Weights: those of modes that exclude each other exceed the capacity.
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
    user_thread(scene& in, node& home, client& locks, shared_mutex& modes)
        : scene_{in}, home_{home}, locks_{locks}, modes_{modes} {}

    void run(const process& of, const user& planned) {
        process_ = &of;
        const auto place = &planned - of.users.data();
        time().rename("user " + std::to_string(place + 1));
        int after_healing = 3;
        for (const auto& next : planned.operations) {
            if (scene_.healed() && after_healing-- == 0) return;
            if (next.think > 0) sleep(next.think);
            perform(next);
        }
    }

private:
    [[nodiscard]] scheduler& time() { return scene_.scheduler(); }
    [[nodiscard]] oracle& judge() { return scene_.oracle(); }

    // --- one operation ---------------------------------------------------------------------------

    void perform(const operation& what) {
        what_ = &what;
        names_ = names();
        if (names_.empty()) return;
        ++scene_.sum().operations;
        if (what.kind == hold_kind::request) return ask_for_release();
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
                case hold_kind::permits:
                    with(acquire_permits());
                    break;
                case hold_kind::mutex:
                    with(lock_mutex());
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
                case hold_kind::request:
                    break;
            }
        } catch (const error& failure) {
            call_ends(false);
            note("acquire", failure);
            sleep(20 * ms);
        }
        check_holds();
    }

    /// Empty: there is nothing to do.
    std::vector<std::string> names() {
        switch (what_->kind) {
            case hold_kind::shared_mutex:
                return {shared_mutex_name};
            case hold_kind::permits:
                return {semaphore_name};
            case hold_kind::office:
                return {election_name};
            case hold_kind::run:
                return {run_name};
            case hold_kind::offered_lease:
                if (scene_.offers().empty()) return {};
                offer_ = scene_.offers().back();
                scene_.offers().pop_back();
                return {offer_.name};
            case hold_kind::lease:
            case hold_kind::several:
            case hold_kind::mutex:
            case hold_kind::request:
                break;
        }
        return what_->names;
    }

    void check_holds() {
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
        scene_.offers().push_back(held.offer());
        const i64 end = time().now() + scene_.chosen().ttl / 2;
        while (time().now() < end && !scene_.healed()) sleep(20 * ms);
    }

    /// An operator, or whoever is in a hurry.
    void ask_for_release() {
        try {
            const auto& name = names_.front();
            const auto state = locks_.inspect(name);
            if (!state || !state->holder || state->token.value() == 0) return;
            request_options terms;
            if (what_->stops) terms.within = rounded(what_->patience);
            log("asks the holder of token " + std::to_string(state->token.value()) + " to give up");
            static_cast<void>(locks_.request_release(name, state->token, terms));
        } catch (const error& failure) {
            note("request", failure);
        }
    }

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
    /// too; and so have the repetitions of the one attempt that has none.
    void require_timely() {
        if (!scene_.steady(home_)) return;
        const auto& options = process_->options;
        i64 limit = 300 * ms + 3 * options.statement_timeout.count() * ms;
        // An offer is adopted without a wait, whatever the manner that was drawn.
        const bool adopts = what_->kind == hold_kind::offered_lease;
        switch (adopts ? manner::once : what_->how) {
            case manner::once:
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
        const std::vector<lock_name> names{names_.begin(), names_.end()};
        if (what_->how == manner::once) return locks_.try_acquire_all(names);
        if (what_->how == manner::for_a_time) {
            return locks_.try_acquire_all_for(names, rounded(what_->patience));
        }
        return locks_.acquire_all(names);
    }

    std::optional<mode_lease> acquire_mode() {
        if (what_->how == manner::once) return modes_.try_acquire(what_->mode);
        if (what_->how == manner::for_a_time) {
            return modes_.try_acquire_for(what_->mode, rounded(what_->patience));
        }
        return modes_.acquire(what_->mode);
    }

    std::optional<permits> acquire_permits() {
        semaphore counted{locks_, semaphore_name};
        if (what_->how == manner::once) return counted.try_acquire(what_->permits);
        if (what_->how == manner::for_a_time) {
            return counted.try_acquire_for(what_->permits, rounded(what_->patience));
        }
        return counted.acquire(what_->permits);
    }

    std::optional<lease> adopt() { return locks_.adopt(offer_); }

    /// The lock of this thread, in the shape of a lease.
    struct locked_mutex {
        std::unique_ptr<mutex> of;
        [[nodiscard]] const std::string& name() const { return of->name(); }
        [[nodiscard]] fencing_token token() const { return of->token(); }
        [[nodiscard]] bool held() const { return of->held(); }
        [[nodiscard]] std::stop_token lost() const { return of->lost(); }
        void release() { of->release(); }
    };

    std::optional<locked_mutex> lock_mutex() {
        auto locked = std::make_unique<mutex>(locks_, names_.front());
        bool done = true;
        if (what_->how == manner::once) {
            done = locked->try_lock();
        } else if (what_->how == manner::for_a_time) {
            done = locked->try_lock_for(rounded(what_->patience));
        } else {
            locked->lock();
        }
        if (!done) return std::nullopt;
        return locked_mutex{std::move(locked)};
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
        made.token = hold.token().value();
        made.held = [&hold] { return hold.held(); };
        made.since = time().now();
        i64 duration = scene_.chosen().ttl;
        if (what_->how == manner::limited) duration = std::min(duration, what_->max_duration);
        made.margin = duration / 6;
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
                "select acquired_at from rowlock_lease where session is not null and name = '" +
                made.name + "'");
            if (acquired_at != 0) {
                made.since = std::min(made.since, acquired_at * us - wall_clock(0));
            }
        }
        return enter(std::move(made));
    }

    void use(const lease& held) {
        const bool keeps = process_->options.retain.has_value();
        const bool fair = what_->how != manner::barging && !keeps;
        judge().granted(time().current(), held.token().value(), static_cast<i64>(held.grant_id()),
                        fair);
        work(held, {enter(held)}, [&](sql::connection& db) {
            fence(db, held, limits());
            write(db, held.name(), held.token());
        });
    }

    void use(const multi_lease& held) {
        beliefs entered;
        std::size_t believed = 0;
        for (const auto& one : held.leases()) {
            entered.push_back(enter(one));
            if (one.held()) ++believed;
        }
        if (believed != 0 && believed != entered.size()) {
            judge().fail(violation::partial, std::to_string(believed) + " of " +
                                                 std::to_string(entered.size()) +
                                                 " locks are held");
        }
        work(held, entered, [&](sql::connection& db) {
            fence(db, held, limits());
            for (const auto& one : held.leases()) write(db, one.name(), one.token());
        });
    }

    /// A mutex answers its own thread alone, so lost() is asked; where the process is stopped or
    /// stalled, that may come late.
    void use(const locked_mutex& held) {
        auto made = belief_in(held);
        made.held = [this, lost = held.lost()] {
            return scene_.steady(home_) && !lost.stop_requested();
        };
        work(held, {enter(std::move(made))}, [&](sql::connection& db) {
            fence(db, *held.of, limits());
            write(db, held.name(), held.token());
        });
    }

    void use(const term& held) { work_under_lease(held, held.of.lease()); }
    void use(const run_of_period& held) { work_under_lease(held, held.of.lease()); }

    template <typename Hold>
    void work_under_lease(const Hold& held, const lease& under) {
        work(held, {enter(under)}, [&](sql::connection& db) {
            fence(db, under, limits());
            write(db, under.name(), under.token());
        });
    }

    void use(const permits& held) {
        auto made = belief_in(held);
        made.weight = what_->permits;
        made.capacity = scene_.chosen().permits;
        made.rises = false;
        work(held, {enter(std::move(made))},
             [&](sql::connection& db) { fence(db, held, limits()); });
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

    [[nodiscard]] belief belief_in_mode(const mode_lease& held) {
        auto made = belief_in(held);
        made.weight = weight_of(held.mode());
        made.capacity = capacity_of_modes;
        made.rises = held.mode() == lock_mode::exclusive;
        return made;
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
              const std::function<void(sql::connection&)>& fenced) {
        using on_loss = std::stop_callback<std::function<void()>>;
        std::optional<on_loss> listener;
        if (what_->listens) {
            listener.emplace(held.lost(), std::function<void()>{[this, entered] {
                                 for (const auto one : entered) {
                                     one->lost_at = time().now();
                                     if (!scene_.steady(home_)) one->steady = false;
                                     log("lost() of token " + std::to_string(one->token));
                                 }
                             }});
        }
        const i64 end =
            time().now() + (scene_.healed() ? std::min(what_->work, 30 * ms) : what_->work);
        if (what_->fences) commit_under(fenced);
        while (time().now() < end && !scene_.healed()) {
            sleep(std::min(end - time().now(), 40 * ms));
            if (what_->stops && !held.held()) break;
        }
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
    shared_mutex& modes_;
    const process* process_ = nullptr;
    const operation* what_ = nullptr;
    std::vector<std::string> names_{};
    lease_offer offer_{};
    std::vector<oracle::call_id> calls_{};
    i64 began_ = 0;
};

}  // namespace

void work(scene& in, node& home, client& locks, shared_mutex& modes, const process& of,
          const user& planned) {
    user_thread{in, home, locks, modes}.run(of, planned);
}

}  // namespace rowlock::sim

#include "user_thread.hpp"

#include "wall_clock.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/transaction.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
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
        int after_healing = 3;
        for (const auto& next : planned.operations) {
            if (scene_.healed() && after_healing-- == 0) return;
            if (next.think > 0) sleep(next.think);
            perform(next);
        }
    }

private:
    [[nodiscard]] scheduler& time() { return scene_.scheduler(); }
    [[nodiscard]] oracle& oracle_of_all() { return scene_.oracle(); }

    // --- one operation ---------------------------------------------------------------------------

    void perform(const operation& what) {
        what_ = &what;
        names_ = what.names;
        if (what.kind == hold_kind::shared_mutex) names_ = {shared_mutex_name};
        if (what.kind == hold_kind::permits) names_ = {semaphore_name};
        ++scene_.sum().operations;
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
            }
        } catch (const error& failure) {
            call_ends(false);
            note("acquire", failure);
            sleep(20 * ms);
        }
        for (const auto& name : names_) {
            oracle_of_all().check_holds(home_, name, [&] { return locks_.holds(name); });
        }
    }

    /// Uses what was acquired, if anything was, and gives it back.
    template <typename Hold>
    void with(std::optional<Hold> acquired) {
        call_ends(acquired.has_value());
        if (!acquired) return log("does not get");
        ++scene_.sum().grants;
        use(*acquired);
        log("gives back");
        if (what_->releases) {
            ++scene_.sum().operations;
            try {
                acquired->release();
            } catch (const error& failure) {
                if (failure.kind() == errc::lock_lost) ++scene_.sum().losses;
                note("release", failure);
            }
        }
        acquired.reset();
        for (const auto& name : names_) oracle_of_all().given_back(home_, name);
    }

    void call_begins() {
        began_ = time().now();
        calls_.clear();
        for (const auto& name : names_) {
            calls_.push_back(oracle_of_all().call_begins(home_, name));
        }
        // The order of those that wait for several locks is that of their slowest queue.
        const bool queues = what_->kind == hold_kind::lease && what_->how != manner::barging;
        if (queues) oracle_of_all().asks(time().current(), names_.front());
    }

    /// Once for each call.
    void call_ends(bool given) {
        if (calls_.empty()) return;
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            oracle_of_all().call_ends(home_, names_[i], calls_[i], given);
        }
        calls_.clear();
        if (!given) oracle_of_all().gave_up(time().current());
        require_timely();
    }

    /// A call with a limit ends soon after it. Each of the statements before its wait has a limit
    /// too; and so have the repetitions of the one attempt that has none.
    void require_timely() {
        if (!scene_.steady(home_)) return;
        const auto& options = process_->options;
        i64 limit = 200 * ms + 3 * options.statement_timeout.count() * ms;
        switch (what_->how) {
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
        oracle_of_all().fail(violation::wait, names_.front() + ": a call took " +
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
        return oracle_of_all().enter(std::move(made));
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
        oracle_of_all().granted(time().current(), held.token().value(),
                                static_cast<i64>(held.grant_id()), fair);
        work(held, {enter(held)}, [&](sql::connection& db) {
            fence(db, held);
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
            oracle_of_all().fail(violation::partial, std::to_string(believed) + " of " +
                                                         std::to_string(entered.size()) +
                                                         " locks are held");
        }
        work(held, entered, [&](sql::connection& db) {
            fence(db, held);
            for (const auto& one : held.leases()) write(db, one.name(), one.token());
        });
    }

    void use(const permits& held) {
        auto made = belief_in(held);
        made.weight = what_->permits;
        made.capacity = scene_.chosen().permits;
        made.rises = false;
        work(held, {enter(std::move(made))}, [&](sql::connection& db) { fence(db, held); });
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
            oracle_of_all().leave(before);
            return done;
        } catch (...) {
            oracle_of_all().leave(before);
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
            fence(db, held);
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
        for (const auto one : entered) oracle_of_all().leave(one);
    }

    // --- fenced transactions ---------------------------------------------------------------------

    [[nodiscard]] sql::deadline soon() const {
        return std::chrono::steady_clock::now() + process_->options.statement_timeout;
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

    /// These may be thrown by any call that talks to a database.
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
            case errc::deadlock:
            case errc::would_deadlock:
            case errc::conflict:
            case errc::database_error:
                return;
            default:
                break;
        }
        oracle_of_all().fail(violation::error, call + " threw " + kind + ": " + failure.what());
    }

    scene& scene_;
    node& home_;
    client& locks_;
    shared_mutex& modes_;
    const process* process_ = nullptr;
    const operation* what_ = nullptr;
    std::vector<std::string> names_{};
    std::vector<oracle::call_id> calls_{};
    i64 began_ = 0;
};

}  // namespace

void work(scene& in, node& home, client& locks, shared_mutex& modes, const process& of,
          const user& planned) {
    user_thread{in, home, locks, modes}.run(of, planned);
}

}  // namespace rowlock::sim

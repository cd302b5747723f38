// A hold for a shell script: it belongs to no process, so nothing renews it, and its fixed
// deadline ends it. It belongs to a session of its own, which lives a little longer than the
// deadline.

#include "base/clock.hpp"
#include "base/jitter.hpp"
#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/link.hpp"
#include "cli/near_names.hpp"
#include "cli/nesting.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/script_lock.hpp"
#include "cli/signals.hpp"
#include "lock/client/retry_limits.hpp"
#include "lock/client/validation.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "sql/too_many_connections.hpp"
#include <rowlock/lock_name.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// One `rowlock acquire`: tries once, and if that fails enqueues.
class acquisition {
public:
    acquisition(link& to, const acquire_options& options, blocked_signals& signals)
        : link_{to}, options_{options}, signals_{signals}, lock_{make_script_lock(to, options)} {}

    /// Returns nullopt if the wait ended without a grant.
    /// @throws failure when a signal ended the wait
    std::optional<grant_of_script> wait() {
        if (auto got = take_if_free()) return got;
        if (options_.wait && *options_.wait <= 0ms) return {};
        if (runs_under_a_hold()) require_another_holder();
        const auto got = stand_in_line();
        if (got && options_.kind.limit) require_same_limit(*got);
        return got;
    }

    /// Gives a grant back that was not reported to the caller.
    void undo(const grant_of_script& got) noexcept {
        try {
            link_.run([&](sql::connection& db, sql::deadline until) {
                return lock_->give_back(db, got.hold, until);
            });
        } catch (...) {
            // The deadline frees it.
        }
    }

private:
    using outcome = protocol::attempt::outcome;

    std::optional<grant_of_script> take_if_free() {
        detail::contention_limit contention;
        detail::late_grant_limit too_late;
        for (;;) {
            const auto attempt = try_when_there_is_room();
            milliseconds pause = 0ms;
            if (attempt.what == outcome::held) break;
            if (attempt.what == outcome::granted) {
                const grant_of_script got{attempt.token, hold_, time_left()};
                if (got.expires_in > 0ms) return got;
                undo(got);
                hold_.session = session_id{};
                sent_ = false;
                too_late.count();
            } else {
                pause = next_pause(contention);
            }
            if (const int number = signals_.wait(pause); number != 0) {
                drop_session();
                throw failure{signal_base + number, ""};
            }
        }
        drop_session();
        return {};
    }

    /// The database counts from the grant, which comes after our sending: the result errs on the
    /// early side.
    [[nodiscard]] milliseconds time_left() const {
        return options_.duration - std::chrono::ceil<milliseconds>(clock_.now() - sent_at_);
    }

    milliseconds next_pause(detail::contention_limit& contention) {
        constexpr int suspicious = 3;
        try {
            if (contention.made() == suspicious) {
                link_.run([&](sql::connection& db, sql::deadline until) {
                    link_.protocol().sessions().require_token_floor(db, until);
                    return true;
                });
            }
            return base::shortened(contention.count());
        } catch (...) {
            drop_session();
            throw;
        }
    }

    /// An operator may have changed it while this waited.
    void require_same_limit(const grant_of_script& got) {
        try {
            link_.run([&](sql::connection& db, sql::deadline until) {
                lock_->require_kind(db, until);
                return true;
            });
        } catch (...) {
            undo(got);
            throw;
        }
    }

    void require_another_holder() {
        link_.run([&](sql::connection& db, sql::deadline until) {
            lock_->require_another_holder(db, until);
            return true;
        });
    }

    std::optional<grant_of_script> stand_in_line() {
        queue_waiter place{link_, *lock_, options_.duration};
        try {
            for (;;) {
                if (auto got = poll(place)) return got;
                milliseconds pause = place.pause();
                if (options_.wait) {
                    const auto left = *options_.wait - since_start();
                    if (left <= 0ms) return place.leave();
                    pause = std::min(pause, std::chrono::ceil<milliseconds>(left));
                }
                int number = signals_.wait(pause, link_.descriptor());
                if (number == 0) number = signals_.wait(place.rest());
                if (number == 0) continue;
                if (const auto got = place.leave()) undo(*got);
                throw failure{signal_base + number, ""};
            }
        } catch (const error& failed) {
            if (!place.stands()) throw;
            const auto grant_id = place.perhaps_granted();
            if (grant_id != rowlock::grant_id{}) throw not_known(failed, grant_id);
            throw failure{exit_code_of(failed.kind()),
                          fmt::format("{}; the queue entry ends within 30s", message_of(failed))};
        }
    }

    /// Whether there is time for another round after a failure; reports the failure, and pauses. A
    /// signal that arrives meanwhile is the next signal.
    bool wait_on(const error& failed) {
        constexpr auto between_rounds = 1s;
        if (options_.wait && since_start() + between_rounds >= *options_.wait) return false;
        if (last_report_ != failed.what()) complain(message_of(failed) + "; waiting on");
        last_report_ = failed.what();
        if (const int number = signals_.wait(between_rounds); number != 0) {
            signals_.put_back(number);
        }
        return true;
    }

    /// Polls the queue entry. Returns nullopt also after a transient failure with time left.
    std::optional<grant_of_script> poll(queue_waiter& place) {
        try {
            return place.poll();
        } catch (const error& failed) {
            const bool passes = !place.comes_too_late() &&
                                (failed.retryable() || failed.kind() == errc::outcome_unknown ||
                                 failed.kind() == errc::read_only);
            if (!passes || place.perhaps_granted() != grant_id{} || !wait_on(failed)) throw;
            return {};
        }
    }

    [[nodiscard]] steady_clock::duration since_start() const {
        return steady_clock::now() - start_;
    }

    [[nodiscard]] failure not_known(const error& failed, grant_id grant_id) const {
        return {exit_code_of(failed.kind()),
                fmt::format("{}; whether the lock was taken is not known: `rowlock release {} {}` "
                            "frees it, or else it frees itself within {}",
                            message_of(failed), options_.name, to_string(grant_id),
                            to_text(options_.duration))};
    }

    /// Waits for a server that has no free connection.
    protocol::attempt try_when_there_is_room() {
        for (;;) {
            try {
                return try_once();
            } catch (const error& failed) {
                if (!sql::too_many_connections(failed) || !wait_on(failed)) throw;
            }
            if (const int number = signals_.next(); number != 0) {
                throw failure{signal_base + number, ""};
            }
        }
    }

    protocol::attempt try_once() {
        try {
            return link_.run(
                [&](sql::connection& db, sql::deadline until) { return attempt(db, until); });
        } catch (const error& failed) {
            if (failed.kind() == errc::invalid_options && !unsure_) {
                drop_session();  // it was refused
                throw;
            }
            if (!sent_ && !unsure_) throw;
            throw not_known(failed, hold_.grant_id);
        }
    }

    protocol::attempt attempt(sql::connection& db, sql::deadline until) {
        if (!kind_checked_) lock_->require_kind(db, until);
        kind_checked_ = true;
        if (sent_) {
            // The reply to an earlier attempt was lost; that attempt may still be under way.
            unsure_ = true;
            if (const auto token = lock_->find_grant(db, hold_, until)) {
                return {outcome::granted, *token, {}};
            }
        } else if (auto blocked = lock_->look(db, until)) {
            return *blocked;
        }
        keep_session(db, until);
        if (!std::exchange(sent_, true)) sent_at_ = clock_.now();
        auto answer = lock_->take(db, hold_, until);
        if (answer.what == outcome::granted) return answer;
        sent_ = false;
        if (answer.what == outcome::session_dead) hold_.session = session_id{};
        return answer;
    }

    void keep_session(sql::connection& db, sql::deadline until) {
        const auto now = steady_clock::now();
        const bool opened = hold_.session != session_id{};
        if (opened && now - beaten_ < session_slack / 2) return;
        if (!opened || !link_.protocol().sessions().heartbeat(db, hold_.session, 0, until)) {
            hold_.grant_id = grant_id{random_id()};
            unsure_ = false;  // holds of the previous session are free, or were given back
            hold_.session = open_session_for(db, link_.protocol(), hold_.grant_id,
                                             wakeup::random_wake_address(),
                                             options_.duration + session_slack, until);
        }
        beaten_ = now;
    }

    void drop_session() noexcept {
        if (hold_.session == session_id{}) return;
        try {
            link_.run([&](sql::connection& db, sql::deadline until) {
                link_.protocol().sessions().end(db, hold_.session, until);
                link_.protocol().sessions().remove(db, hold_.session, until);
                return true;
            });
        } catch (...) {
            // The session expires by itself.
        }
    }

    link& link_;
    const acquire_options& options_;
    blocked_signals& signals_;
    const std::unique_ptr<script_lock> lock_;
    const steady_clock::time_point start_ = steady_clock::now();
    std::string last_report_;  ///< the last report of why we wait
    script_hold hold_{};
    steady_clock::time_point beaten_{};
    bool kind_checked_ = false;
    bool sent_ = false;
    bool unsure_ = false;  ///< about an earlier attempt, whose reply was lost
    std::chrono::nanoseconds sent_at_{};
    base::clock clock_;
};

void report(const std::string& name, const grant_of_script& got, bool as_json) {
    if (as_json) {
        print_json(json{{"name", name},
                        {"token", as_text(got.token)},
                        {"grant_id", as_text(got.hold.grant_id)},
                        {"expires_in_ms", got.expires_in.count()}});
    } else {
        print(fmt::format("{} {}\n", got.token, to_string(got.hold.grant_id)));
    }
}

/// The holder with this grant id, if it is a script.
/// @throws failure if a running process holds it
std::optional<holder_info> script_holder(sql::connection& db, script_lock& lock,
                                         const std::string& name, rowlock::grant_id grant_id,
                                         sql::deadline until) {
    auto holder = lock.holder(db, grant_id, until);
    if (holder && holder->owner != owner_of(grant_id)) {
        throw failure{usage, fmt::format("{} is held by a running process, not by `rowlock "
                                         "acquire`: stop it, or use `rowlock break`",
                                         name)};
    }
    return holder;
}

/// Whether the hold was this grant, and is over now.
bool release_grant(link& to, script_lock& lock, const release_options& options) {
    bool sent = false;
    return to.run([&](sql::connection& db, sql::deadline until) {
        const auto holder = script_holder(db, lock, options.name, options.grant_id, until);
        if (!holder) {
            // Our release, whose reply was lost: a waiter that enqueued too late for it is not
            // served yet.
            if (sent) static_cast<void>(lock.serve_next(db, until));
            return sent;
        }
        sent = true;
        return lock.give_back(db, {holder->session, options.grant_id}, until);
    });
}

/// The hold now lasts so long from now.
std::optional<grant_of_script> renew_grant(link& to, script_lock& lock,
                                           const renew_options& options) {
    const base::clock clock;
    return to.run([&](sql::connection& db, sql::deadline until) -> std::optional<grant_of_script> {
        const auto holder = script_holder(db, lock, options.name, options.grant_id, until);
        if (!holder) return std::nullopt;
        if (holder->asked) {
            throw failure{
                answer_is_no,
                fmt::format("{} is not renewed: {}{}", options.name,
                            holder->asked->asked_by.empty()
                                ? "its release was asked for at once"
                                : holder->asked->asked_by + " has asked for it",
                            holder->asked->reason.empty() ? "" : ": " + holder->asked->reason)};
        }
        const auto sent = clock.now();
        const script_hold hold{holder->session, options.grant_id};
        // Never shorter: a renewal is asked for by one who needs the lock for at least so long.
        const auto duration = std::max(options.duration, holder->remaining + milliseconds{1});
        const auto token = lock.renew(db, hold, duration, until);
        if (!token) return std::nullopt;
        const auto passed = std::chrono::ceil<milliseconds>(clock.now() - sent);
        return grant_of_script{*token, hold, duration - passed};
    });
}

/// What `act` returns of the lock of this name that has the grant. A grant id says of no kind of
/// lock: it is looked for among leases first.
template <typename Act>
auto on_any_kind(link& to, const std::string& name, Act act) {
    acquire_options of{.database = {}, .name = name, .wait = {}, .note = {}, .kind = {}};
    auto done = act(*make_script_lock(to, of));
    if (done) return done;
    of.kind.limit = 1;
    try {
        return act(*make_script_lock(to, of));
    } catch (const error& failed) {
        if (failed.kind() != errc::access_denied) throw;
        return done;  // a user of leases alone
    }
}

}  // namespace

int acquire(const acquire_options& options) {
    static_cast<void>(lock_name{options.name});
    detail::validate(
        rowlock::acquire_options{.note = options.note, .max_duration = options.duration});
    validate(options.kind);
    const database in = find_database(options.database);
    // No SIGPIPE: a lease that cannot be reported is given back.
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP, SIGQUIT}, {SIGPIPE}};
    link to{in, signals};
    acquisition mine{to, options, signals};
    const auto got = mine.wait();
    if (!got && options.quiet) return options.busy_exit_code;
    if (!got) throw busy_failure(options.name, options.busy_exit_code);
    try {
        // A signal that came while the grant was under way.
        if (const int number = signals.next(); number != 0) throw failure{signal_base + number, ""};
        report(options.name, *got, options.json);
    } catch (...) {
        mine.undo(*got);  // the grant id was not reported
        throw;
    }
    // The grant is reported: an exit code that denies it would leave the lease without an owner.
    signals.disregard();
    return success;
}

int release(const release_options& options) {
    static_cast<void>(lock_name{options.name});
    const database in = find_database(options.database);
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP, SIGQUIT}};
    link to{in, signals};
    const bool freed = on_any_kind(
        to, options.name, [&](script_lock& lock) { return release_grant(to, lock, options); });
    if (options.json) print_json(json{{"name", options.name}, {"released", freed}});
    if (!freed) {
        throw not_held(in, options.name,
                       fmt::format("{} is not held by this grant (any more)", options.name));
    }
    return success;
}

int renew(const renew_options& options) {
    static_cast<void>(lock_name{options.name});
    detail::validate(rowlock::acquire_options{.max_duration = options.duration});
    const database in = find_database(options.database);
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP, SIGQUIT}};
    link to{in, signals};
    const auto got = on_any_kind(to, options.name,
                                 [&](script_lock& lock) { return renew_grant(to, lock, options); });
    if (got && got->expires_in <= 0ms) {
        throw failure{unreachable, fmt::format("{} was renewed, but the answer came so late that "
                                               "the lease is over: give it longer",
                                               options.name)};
    }
    if (!got) {
        throw not_held(in, options.name,
                       fmt::format("{} is not held by this grant (any more), or its release was "
                                   "asked for: stop",
                                   options.name));
    }
    report(options.name, *got, options.json);
    return success;
}

}  // namespace rowlock::cli

#include "base/utf8.hpp"
#include "cli/command_hold.hpp"
#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/hidden_url.hpp"
#include "cli/link.hpp"
#include "cli/nesting.hpp"
#include "cli/process_group.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/script_lock.hpp"
#include "cli/signals.hpp"
#include "cli/supervisor.hpp"
#include "cli/text.hpp"
#include "cli/waiting_report.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/client.hpp>
#include <rowlock/election.hpp>
#include <rowlock/reclaim.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// Shares of the ttl. trust | grace | reserve: when trust in the lease ends the command is asked to
/// stop, after the grace it is killed; the reserve covers clocks and the time to die.
struct schedule {
    milliseconds grace, reserve;

    explicit schedule(const run_options& options)
        : grace{std::min<milliseconds>(5s, options.ttl / 6)},
          reserve{std::max<milliseconds>(1ms, std::min<milliseconds>(1s, options.ttl / 10))} {
        if (!options.grace) return;
        if (*options.grace > options.ttl / 6) {
            throw failure{usage,
                          fmt::format("--grace may be at most a sixth of --ttl, here {}: "
                                      "the command must be gone before another gets the lock",
                                      to_text(options.ttl / 6))};
        }
        grace = *options.grace;
    }
    [[nodiscard]] milliseconds margin() const { return grace + reserve; }
    /// After the end of trust: for what must do the supervisor's work.
    [[nodiscard]] milliseconds last_allowance() const { return grace + reserve / 2; }
};

class wake_up {
public:
    wake_up() : event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
        if (!event_) throw system_call_failed("eventfd", errno);
    }
    void set() const noexcept {
        const std::uint64_t one = 1;
        static_cast<void>(!write(event_.get(), &one, sizeof one));
    }
    [[nodiscard]] int descriptor() const noexcept { return event_.get(); }

private:
    cli::descriptor event_;
};

bool ends_a_wait(int number) {
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT ||
           number == SIGUSR1 || number == SIGUSR2;
}

/// A command may live on after the others, and use them for its own ends.
bool asks_to_end(int number) {
    return number == SIGINT || number == SIGTERM || number == SIGQUIT;
}

bool is_periodic(const run_options& options) {
    return !options.once.empty() || options.at_least > 0ms || options.skip_if_within;
}

void require_one_kind(const run_options& options) {
    validate(options.kind);
    if (is_periodic(options) &&
        (options.locks.size() > 1 || options.reclaim || !options.kind.is_lease())) {
        throw failure{usage,
                      "--once, --at-least and --skip-if-within go with one lease: without a second "
                      "--lock, --shared, --limit or --reclaim"};
    }
    const bool several = options.locks.size() > 1;
    if (several && (options.reclaim || !options.kind.is_lease())) {
        throw failure{usage,
                      "several locks at once are leases: without --shared, --limit or --reclaim"};
    }
    if (options.reclaim && !options.kind.is_lease()) {
        throw failure{usage, "--reclaim goes with leases alone, not with --shared or --limit"};
    }
}

template <typename Hold>
std::optional<command_hold> held_by(std::optional<Hold> got) {
    if (!got) return std::nullopt;
    return command_hold{*std::move(got)};
}

/// Whether we might wait for a hold that we run under.
bool may_wait_for_ourselves(const run_options& options) {
    return (!options.wait || *options.wait > 0ms) && runs_under_a_hold();
}

/// @throws failure if one of the locks is held by the `rowlock run` that we run under
void refuse_holds_above_us(client& locks, const run_options& options) {
    if (!may_wait_for_ourselves(options)) return;
    for (const auto& name : options.locks) {
        if (const auto row = locks.inspect(name)) refuse_to_wait_for_ourselves(*row);
        for (const auto& each : shared_mutex{locks, name}.holders(most_holders)) {
            refuse_to_wait_for_ourselves(name, each.who, each.token);
        }
    }
}

std::optional<command_hold> take_lease(client& locks, const run_options& options,
                                       std::stop_token stop) {
    const rowlock::acquire_options how{.note = options.note, .max_duration = options.at_most};
    if (options.reclaim) {
        auto all = locks.reclaim();
        for (auto& taken : all.leases) {
            if (taken.name() == options.name) return command_hold{std::move(taken)};
        }
    }
    refuse_holds_above_us(locks, options);
    auto got = options.wait
                   ? locks.try_acquire_for(options.name, *options.wait, std::move(stop), how)
                   : locks.acquire(options.name, std::move(stop), how);
    return held_by(std::move(got));
}

/// Why a periodic command does not run now.
failure not_now(const run_options& options, const periodic_attempt& seen) {
    std::string why;
    switch (seen.outcome) {
        case periodic_outcome::done:
            why = fmt::format("{} is done: a run of {} or a later period has finished",
                              options.name, escaped(options.once));
            break;
        case periodic_outcome::recent:
            why =
                fmt::format("{} has run within {}", options.name, to_text(*options.skip_if_within));
            break;
        default:
            why = fmt::format("{} rests for another {}", options.name, to_text(seen.rest));
    }
    return {options.busy_exit_code, why, kind_of(busy)};
}

std::optional<command_hold> take_periodic(client& locks, const run_options& options,
                                          const std::stop_token& stop) {
    refuse_holds_above_us(locks, options);
    auto attempt =
        periodic_run::begin(locks, options.name,
                            {.period = options.once,
                             .at_least = options.at_least,
                             .skip_if_within = options.skip_if_within,
                             .wait = options.wait,
                             .lease = {.note = options.note, .max_duration = options.at_most}},
                            stop);
    if (!attempt.run) {
        if (attempt.outcome == periodic_outcome::busy) return std::nullopt;
        throw not_now(options, attempt);
    }
    return command_hold{*std::move(attempt.run)};
}

std::optional<command_hold> take_office(client& locks, const run_options& options,
                                        const std::stop_token& stop) {
    refuse_holds_above_us(locks, options);
    election office{locks, options.name, {.value = options.note, .priority = *options.priority}};
    auto got = office.campaign(stop);
    return held_by(std::move(got));
}

/// All of them or none.
std::optional<command_hold> take_several(client& locks, const run_options& options,
                                         std::stop_token stop) {
    const std::vector<lock_request> wanted{options.locks.begin(), options.locks.end()};
    refuse_holds_above_us(locks, options);
    const rowlock::acquire_options how{.note = options.note, .max_duration = options.at_most};
    auto got = options.wait ? locks.try_acquire_all_for(wanted, *options.wait, std::move(stop), how)
                            : locks.acquire_all(wanted, std::move(stop), how);
    return held_by(std::move(got));
}

std::optional<command_hold> take_shared(client& locks, const run_options& options,
                                        std::stop_token stop) {
    refuse_holds_above_us(locks, options);
    shared_mutex lock{locks, options.name};
    const mode_options how{.note = options.note, .max_duration = options.at_most};
    constexpr auto shared = lock_mode::shared;
    if (!options.wait) return held_by(lock.acquire(shared, std::move(stop), how));
    return held_by(lock.try_acquire_for(shared, *options.wait, std::move(stop), how));
}

/// Whether a candidacy, or a wait, goes on after a failure that no command ran under.
bool passes(const error& failed) {
    return failed.retryable() || failed.kind() == errc::read_only ||
           failed.kind() == errc::outcome_unknown || exit_code_of(failed.kind()) == unreachable;
}

/// The first of the programs that use a limit makes it; later only an operator changes it.
void require_limit(rowlock::semaphore& limit, const run_options& options) {
    auto seen = limit.inspect();
    if (!seen) {
        static_cast<void>(limit.create(*options.kind.limit));
        seen = limit.inspect();  // another command may have made it, with another capacity
    }
    if (seen) require_capacity(options.name, seen->capacity, *options.kind.limit);
}

std::optional<command_hold> take_permits(client& locks, const run_options& options,
                                         std::stop_token stop) {
    rowlock::semaphore limit{locks, options.name};
    try {
        require_limit(limit, options);
    } catch (const error& failure) {
        // A wait survives an outage, and what it gets is checked.
        if (!passes(failure)) throw;
    }
    // A waiter before us may wait for those, and we for it: so there is one attempt.
    const bool nested =
        may_wait_for_ourselves(options) && permits_above(limit.holders(most_holders)) > 0;
    const permit_options how{.note = options.note, .max_duration = options.at_most};
    const auto weight = options.kind.weight.value_or(1);
    const auto acquire = [&] {
        if (nested) return limit.try_acquire(weight, how);
        return options.wait ? limit.try_acquire_for(weight, *options.wait, stop, how)
                            : limit.acquire(weight, stop, how);
    };
    std::optional<permits> got;
    try {
        got = acquire();
    } catch (const error& failure) {
        // It is not there after an outage, or an operator has made it too small: then this fails.
        if (failure.kind() != errc::invalid_options) throw;
        require_limit(limit, options);
        got = acquire();
    }
    if (!got && nested) throw would_wait_for_itself(options.name);
    if (got) require_limit(limit, options);  // an operator may have changed it in the wait
    return held_by(std::move(got));
}

std::optional<command_hold> take(client& locks, const run_options& options, std::stop_token stop) {
    if (is_periodic(options)) return take_periodic(locks, options, stop);
    if (options.priority) return take_office(locks, options, stop);
    if (options.locks.size() > 1) return take_several(locks, options, std::move(stop));
    if (options.kind.shared) return take_shared(locks, options, std::move(stop));
    if (options.kind.limit) return take_permits(locks, options, std::move(stop));
    return take_lease(locks, options, std::move(stop));
}

/// No command ran: a lost session is one more way to lose the database.
[[noreturn]] void rethrow(const std::exception_ptr& problem) {
    try {
        std::rethrow_exception(problem);
    } catch (const error& failed) {
        if (failed.kind() != errc::lock_lost) throw;
        throw failure{unreachable, message_of(failed)};
    }
}

/// Waits on another thread, so that this one handles signals.
/// @param position in the queue
std::optional<command_hold> wait_for_hold(client& locks, const database& in,
                                          const run_options& options, blocked_signals& signals,
                                          const std::function<std::int64_t()>& position) {
    std::optional<waiting_report> report;
    if (!options.quiet && (options.verbose || isatty(STDERR_FILENO) != 0)) {
        report.emplace(locks, options.locks, position);
    }
    std::optional<command_hold> held;
    std::exception_ptr problem;
    const wake_up done;
    std::jthread waiting{[&](std::stop_token stop) {
        try {
            held = with_tables(in, [&] { return take(locks, options, stop); });
        } catch (...) {
            problem = std::current_exception();
        }
        done.set();
    }};
    pollfd watched[] = {{done.descriptor(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
    while (watched[0].revents == 0) {
        poll(watched, 2, -1);
        const int number = signals.next();
        if (number == SIGTSTP) raise(SIGSTOP);  // nothing is held yet
        if (!ends_a_wait(number)) continue;
        waiting.request_stop();
        waiting.join();
        throw failure{signal_base + number, ""};
    }
    waiting.join();
    if (problem) rethrow(problem);
    return held;
}

/// The outcome of the command.
struct command_outcome {
    int code = 0;
    bool lost = false;
    bool interrupted = false;  ///< by a signal to us
};

/// The command was stopped, as its lock was lost.
class lock_was_lost : public failure {
public:
    lock_was_lost(std::string message, bool interrupted)
        : failure{lease_lost, std::move(message)}, interrupted_{interrupted} {}
    [[nodiscard]] bool interrupted() const noexcept { return interrupted_; }

private:
    bool interrupted_;
};

/// Failing heartbeats while the command runs. Recorded by the client's event thread, printed by
/// ours.
class outage {
public:
    explicit outage(milliseconds ttl, milliseconds margin) : ttl_{ttl}, window_{ttl - margin} {}

    void failed(std::string why) {
        const std::lock_guard lock{mutex_};
        why_ = std::move(why);
    }
    /// A heartbeat was confirmed.
    void end() {
        const std::lock_guard lock{mutex_};
        why_.reset();
        if (std::exchange(reported_at_, std::nullopt)) complain("the database answers again");
    }
    /// At most once in five seconds, once a heartbeat is overdue. @param left until the command
    /// must be stopped
    void say(nanoseconds left) {
        const nanoseconds now = boot_time();
        const nanoseconds unanswered = window_ - left;
        const std::lock_guard lock{mutex_};
        if (!why_ || left <= 0ns || unanswered < ttl_ / 3) return;
        if (reported_at_ && now - *reported_at_ < 5s) return;
        reported_at_ = now;
        complain(fmt::format("database unreachable for {} ({}); the command will be stopped in {}",
                             to_text(std::chrono::floor<milliseconds>(unanswered)), *why_,
                             to_text(std::chrono::floor<milliseconds>(left))));
    }

private:
    const nanoseconds ttl_, window_;
    std::mutex mutex_;
    std::optional<std::string> why_;
    std::optional<nanoseconds> reported_at_;
};

/// Main's side while the command runs.
class watch {
public:
    watch(supervisor& helper, const command_hold& held, blocked_signals& signals,
          const schedule& times, outage& unreachable, const run_options& options)
        : helper_{helper},
          held_{held},
          signals_{signals},
          times_{times},
          unreachable_{unreachable},
          campaigns_{options.priority.has_value()},
          number_for_requests_{options.ask_signal} {}
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;
    /// The command has ended: a signal that arrives now would only replace its exit code. But it
    /// ends a candidate that campaigns again.
    ~watch() {
        if (!campaigns_ || !lost_ || interrupted_) signals_.disregard();
    }

    command_outcome run() {
        vouch();
        helper_.tell(notice::about(held_.session_id()));
        for (const auto token : held_.tokens())
            helper_.tell({notice::kind::token, 0, token.value()});
        helper_.tell({notice::kind::start});
        while (!finished_) {
            pollfd watched[] = {{helper_.socket(), POLLIN, 0},
                                {signals_.descriptor(), POLLIN, 0},
                                {asked_ ? -1 : ask_signal_.descriptor(), POLLIN, 0},
                                {lost_signal_.descriptor(), POLLIN, 0}};
            poll(watched, lost_ ? 3 : 4, static_cast<int>(until_next_look().count()));
            if (watched[1].revents != 0) pass_signals_on();
            if (watched[2].revents != 0 && !asked_) ask_command();
            if (watched[3].revents != 0 && !lost_) lose();
            if (watched[0].revents != 0) read();
            vouch();
            if (!lost_ && !finished_) unreachable_.say(held_.remaining());
        }
        helper_.take_terminal_back(group_);
        return {code_, lost_, interrupted_};
    }

private:
    /// Tells the supervisor how long the lease can be trusted, or takes over if the supervisor
    /// should have stopped the group and has not (it may be stopped itself).
    void vouch() noexcept {
        // Reads the clock first: a pause between the two reads must shorten the promised time, not
        // lengthen it.
        const nanoseconds now = boot_time();
        const nanoseconds left = held_.remaining();
        if (left > 0ns) {
            const bool confirmed = now + left > trusted_until_ + 1ms;
            if (confirmed) unreachable_.end();
            trusted_until_ = std::max(trusted_until_, now + left);
            if (reported_trust_ != trusted_until_) {
                reported_trust_ = trusted_until_;
                helper_.tell({notice::kind::trust, 0, reported_trust_.count()});
            }
            if (confirmed) continue_supervisor();
        } else if (group_ != 0 && !finished_ && now >= latest_kill() &&
                   has_living_members(group_)) {
            kill(-group_, SIGKILL);
            continue_supervisor();
        }
    }

    /// It may be stopped, and so not hear us; a command whose supervisor hears nothing is killed.
    void continue_supervisor() const noexcept { kill(helper_.process(), SIGCONT); }

    [[nodiscard]] nanoseconds latest_kill() const noexcept {
        return trusted_until_ + times_.last_allowance();
    }

    /// Often enough that the supervisor never misses a heartbeat that came at the last moment.
    [[nodiscard]] milliseconds until_next_look() const noexcept {
        if (lost_) return 10ms;
        return std::clamp<milliseconds>(held_.remaining() / 8, 5ms, 5s);
    }

    void pass_signals_on() noexcept {
        for (int number = signals_.next(); number != 0; number = signals_.next()) {
            // A sleeping holder would keep all waiters waiting: Ctrl-Z does nothing.
            if (number == SIGTSTP) continue;
            interrupted_ = interrupted_ || asks_to_end(number);
            helper_.tell({notice::kind::forward, number});
        }
    }

    /// Another client has asked for the lock: the narrator says who. The command may finish.
    void ask_command() noexcept {
        asked_ = true;
        if (number_for_requests_ != 0) helper_.tell({notice::kind::forward, number_for_requests_});
    }

    void lose() noexcept {
        lost_ = true;
        helper_.tell({notice::kind::stop});
        continue_supervisor();
    }

    void read() {
        const auto news = helper_.read();
        if (!news) return supervisor_died();
        switch (news->what) {
            case notice::kind::started:
                group_ = news->number;
                break;
            case notice::kind::not_started:
                refuse_start(*news);
            case notice::kind::ended:
                finished_ = true;
                lost_ = lost_ || news->value != 0;
                code_ = WIFSIGNALED(news->number) ? signal_base + WTERMSIG(news->number)
                                                  : WEXITSTATUS(news->number);
                break;
            default:
                break;
        }
    }

    [[noreturn]] void refuse_start(const notice& news) {
        const char* reason = std::strerror(news.number);
        helper_.take_terminal_back(group_);
        if (news.value != 0) throw system_call_failed("no process for the command", news.number);
        if (news.number == ENOENT) throw failure{not_found, "the command was not found"};
        throw failure{not_executable, fmt::format("the command cannot be executed: {}", reason)};
    }

    /// The kernel has killed the group with the supervisor; the orphans became our children. It
    /// does so too if we were both stopped for too long.
    void supervisor_died() {
        while (group_ != 0 && has_living_members(group_)) {
            kill(-group_, SIGKILL);
            collect_children();
            poll(nullptr, 0, 5);
        }
        collect_children();
        helper_.take_terminal_back(group_);
        lost_ = lost_ || boot_time() >= trusted_until_;
        finished_ = lost_;
        if (lost_) return;
        throw failure{system_failure, "the supervisor process was killed, and the command with it"};
    }

    supervisor& helper_;
    const command_hold& held_;
    blocked_signals& signals_;
    const schedule& times_;
    outage& unreachable_;
    const bool campaigns_;  ///< after a loss
    const int number_for_requests_;
    wake_up ask_signal_;
    wake_up lost_signal_;
    std::stop_callback<std::function<void()>> on_lost_{held_.lost(),
                                                       [this] { lost_signal_.set(); }};
    std::stop_callback<std::function<void()>> on_request_{held_.release_requested(),
                                                          [this] { ask_signal_.set(); }};
    nanoseconds trusted_until_{0};
    nanoseconds reported_trust_{0};
    pid_t group_ = 0;
    int code_ = 0;
    bool asked_ = false;
    bool lost_ = false;
    bool interrupted_ = false;
    bool finished_ = false;
};

std::string program_name(const run_options& options) {
    const std::string ours = options.priority ? "rowlock elect" : "rowlock run";
    const std::string& command = options.command.front();
    const std::string name = ours + ' ' + command.substr(command.rfind('/') + 1);
    const bool clean = name.size() <= 255 && utf8::check(name) == utf8::verdict::clean;
    return clean ? name : ours;
}

/// How long a hand-over from another machine may stay unnoticed on a database that cannot notify: a
/// single connection leaves none to sleep with.
constexpr auto unnotified_poll = 250ms;

/// Reports the client's events while it waits and while it holds. Called on a separate thread.
class narrator {
public:
    narrator(supervisor& helper, milliseconds ttl, milliseconds margin)
        : helper_{helper}, unreachable_{ttl, margin} {}
    narrator(const narrator&) = delete;
    narrator& operator=(const narrator&) = delete;

    void operator()(const event& what) {
        if (what.kind == event_kind::lease_lost) {
            const std::lock_guard lock{reason_mutex_};
            reason_ = what.reason;
            reason_known_.notify_all();
        }
        if (what.kind == event_kind::heartbeat_failed) unreachable_.failed(what.message);
        // Also the session of a waiter: its queue entry must go if we are killed.
        if (what.kind == event_kind::session_opened) {
            helper_.tell(notice::about(what.session));
        }
        if (what.kind == event_kind::release_requested) {
            complain(fmt::format("{} is asked for: {}", what.name, what.message));
        }
        if (what.kind == event_kind::waiting && what.position > 0) position_ = what.position;
        if (what.kind == event_kind::queue_entry_lost) {
            complain("the queue entry was lost in an outage; waiting on at the end of the queue");
        }
        if (what.kind == event_kind::waiting && !what.message.empty() &&
            what.message != last_report_) {
            last_report_ = what.message;
            complain(what.message + "; waiting on");
        }
    }
    /// Why the lease was lost. The event may come after lost() has fired; none if it does not come
    /// soon.
    [[nodiscard]] loss_reason reason() const {
        std::unique_lock lock{reason_mutex_};
        reason_known_.wait_for(lock, 1s, [this] { return reason_ != loss_reason::none; });
        return reason_;
    }
    /// In the queue, as last known; 0: not known.
    [[nodiscard]] std::int64_t position() const noexcept { return position_; }
    [[nodiscard]] outage& unreachable() noexcept { return unreachable_; }

private:
    supervisor& helper_;
    outage unreachable_;
    mutable std::mutex reason_mutex_;
    mutable std::condition_variable reason_known_;
    loss_reason reason_ = loss_reason::none;
    std::atomic<std::int64_t> position_{0};
    std::string last_report_;  ///< the last of the messages printed once
};

client_options options_for_run(const run_options& options, const database& in,
                               const schedule& times, narrator& events) {
    client_options all = tool_options();
    // Many of us may wait and hold at once: one connection each. Nothing else uses it while the
    // lease is held.
    all.single_connection = true;
    all.when_cut_off = when_cut_off::requeue;
    if (in.source.speaks() == sql::dialect::mysql) all.poll_interval = unnotified_poll;
    all.retry = {};
    all.ttl = options.ttl;
    all.margin = times.margin();
    all.owner = options.owner;
    all.program = program_name(options);
    all.on_event = [&events](const event& what) { events(what); };
    return all;
}

std::string lost_message(const run_options& options, loss_reason reason) {
    const std::string why =
        reason == loss_reason::none ? "" : fmt::format(" ({})", to_string(reason));
    return fmt::format("the lease on {} was lost{}: the command was stopped", options.name, why);
}

/// All locks that the command line names, checked and in byte order, in which they are granted.
void name_locks(run_options& options) {
    auto& all = options.locks;
    if (all.empty()) throw failure{usage, "no lock: rowlock run NAME -- COMMAND [ARGUMENT…]"};
    for (const auto& each : all) static_cast<void>(lock_name{each});
    std::ranges::sort(all);
    options.name = fmt::format("{}", fmt::join(all, ", "));
}

/// For the command's environment: a name has no line break.
std::string names_of(const run_options& options) {
    return fmt::format("{}", fmt::join(options.locks, "\n"));
}

/// Runs in the supervisor. Ends sessions by id: another process's newer sessions stay. If the
/// database is unreachable they expire.
void end_sessions(const database_url& at, const std::vector<session_id>& sessions) {
    const database in = open_database(at);
    blocked_signals none{{}};
    link to{in, none};
    for (const auto id : sessions) {
        to.run([&](sql::connection& db, sql::deadline until) {
            to.protocol().sessions().end(db, id, until);
            serve_after(db, to, id, until);
            return true;
        });
    }
}

int finish(command_hold& held, const command_outcome& result, const run_options& options,
           const narrator& events) {
    if (result.lost) {
        throw lock_was_lost{lost_message(options, events.reason()), result.interrupted};
    }
    try {
        held.release(result.code == 0);
    } catch (const error& failed) {
        if (failed.kind() == errc::lock_lost) {
            // It has ended by itself: a leader does not run it again.
            throw failure{lease_lost,
                          fmt::format("the lease on {} was lost before the command ended: what it "
                                      "protects may have been touched by another",
                                      options.name)};
        }
        if (is_periodic(options) && result.code == 0) {
            throw failure{
                exit_code_of(failed.kind()),
                fmt::format("the command succeeded, but that could not be recorded; it may "
                            "run again: {}",
                            message_of(failed))};
        }
        complain(fmt::format("{} could not be freed and frees itself within {}: {}", options.name,
                             to_text(options.ttl), message_of(failed)));
    }
    return result.code;
}

/// @param options with the names of the locks in order (name_locks)
int run_under(const run_options& options, const database_url& at) {
    const schedule times{options};
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT},
                            {SIGTTOU}};
    const supervised_command command{
        .arguments = options.command,
        .name = names_of(options),
        .holder = getpid(),
        .url = options.pass_url ? std::optional{at.text} : std::nullopt,
        .grace = times.grace,
        .allowance = times.grace,
        .last_allowance = times.last_allowance(),
        .signal_mask = signals.before(),
        .end_sessions = [&](const auto& sessions) { end_sessions(at, sessions); }};
    hide_memory();  // before the command, which is of the same user
    // Before any thread, and while small: without the driver's libraries, the supervisor and the
    // command's process start sooner.
    supervisor helper{command};
    const database in = open_database(at);

    narrator events{helper, options.ttl, times.margin()};
    client locks{in.source, options_for_run(options, in, times, events)};
    auto held = wait_for_hold(locks, in, options, signals, [&events] { return events.position(); });
    if (!held) {
        throw busy_failure(options.name, options.busy_exit_code,
                           holder_of_any(locks, options.locks));
    }
    const command_outcome result =
        watch{helper, *held, signals, times, events.unreachable(), options}.run();
    return finish(*held, result, options, events);
}

/// For the next supervisor, which is forked: a thread that the child does not have might have
/// something locked. The threads of the client that is gone end within moments; one that cancels a
/// statement, or connects, while the network is gone ends with that attempt.
void wait_for_one_thread() {
    namespace files = std::filesystem;
    for (int tries = 0;; ++tries) {
        const files::directory_iterator threads{"/proc/self/task"};
        if (std::distance(begin(threads), end(threads)) == 1) return;
        if (tries == 500) complain("an attempt of the last term has not ended yet; waiting for it");
        poll(nullptr, 0, 10);
    }
}

/// Between two terms no command is there for these signals: they are dropped.
class dropped_signals {
public:
    dropped_signals() {
        sigemptyset(&set_);
        sigaddset(&set_, SIGUSR1);
        sigaddset(&set_, SIGUSR2);
        pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    dropped_signals(const dropped_signals&) = delete;
    dropped_signals& operator=(const dropped_signals&) = delete;
    ~dropped_signals() {
        const timespec now{};
        while (sigtimedwait(&set_, nullptr, &now) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

private:
    sigset_t set_{}, before_{};
};

/// Leads once more after a term that was lost. Waits for a database that is out of reach, or is no
/// primary yet: that may be what ended the term.
int lead_again(const run_options& options, const database_url& at) {
    for (std::string said;;) {
        {
            const dropped_signals between;
            wait_for_one_thread();
        }
        collect_children();
        std::string why;
        try {
            return run_under(options, at);
        } catch (const failure& failed) {
            if (failed.code() != unreachable) throw;
            why = failed.what();
        } catch (const error& failed) {
            if (!passes(failed)) throw;
            why = message_of(failed);
        }
        if (std::exchange(said, why) != why) complain(why + "; campaigning on");
        const dropped_signals between;
        poll(nullptr, 0, 1000);
    }
}

}  // namespace

int run(const run_options& options) {
    run_options named = options;
    name_locks(named);
    require_one_kind(named);
    try {
        return run_under(named, find_url(named.database));
    } catch (const failure& failed) {
        // The command did not run, as its options allow.
        if (!options.quiet || failed.kind() != std::string_view{kind_of(busy)}) throw;
        return failed.code();
    }
}

int elect(const run_options& options) {
    run_options named = options;
    named.priority = options.priority.value_or(0);
    name_locks(named);
    const database_url at = find_url(named.database);
    for (bool led_before = false;; led_before = true) {
        try {
            return led_before ? lead_again(named, at) : run_under(named, at);
        } catch (const lock_was_lost& lost) {
            if (lost.interrupted()) throw;
            complain(fmt::format("{}; campaigning again", lost.what()));
        }
    }
}

}  // namespace rowlock::cli

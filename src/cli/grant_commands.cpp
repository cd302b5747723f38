// A lease for a shell script: it belongs to no process, so nothing renews it, and its fixed
// deadline ends it. It hangs on a session of its own, which lives a little longer than the
// deadline.

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/signals.hpp"
#include "client/validation.hpp"
#include "strategy/lease_protocol.hpp"
#include <rowlock/lock_name.hpp>

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds statement_deadline = 5s;
// The session outlives the deadline by this, so a grant may come so long after it was opened.
constexpr milliseconds slack = 2min;

std::int64_t random_id() {
    std::uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
        throw system_call_failed("no random numbers", errno);
    }
    // 53 bits: what reads our JSON may keep numbers as doubles, as jq does.
    return static_cast<std::int64_t>(bits >> 11) + 1;
}

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? std::string{name} : std::string{"unknown"};
}

std::string owner_of(std::int64_t grant_id) {
    return "rowlock-acquire:" + std::to_string(grant_id);
}

/// One connection at a time, made anew when it breaks.
class link {
public:
    link(const database& in, blocked_signals& signals)
        : in_{in},
          signals_{signals},
          protocol_{dialect::statements{
              in.source.speaks(), {.schema = in.tables.schema, .prefix = in.tables.prefix}}} {}

    /// Runs `action(connection, deadline)`, and again after failures that allow it. An unknown
    /// outcome is repeated too: every action here finds out what became of the earlier attempt.
    template <typename Action>
    auto run(Action action) {
        const auto start = steady_clock::now();
        for (int made = 1;; ++made) {
            try {
                const auto until = steady_clock::now() + statement_deadline;
                return action(connected(until), until);
            } catch (const error& failure) {
                if (!failure.retryable() && failure.kind() != errc::outcome_unknown) throw;
                const auto elapsed =
                    std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
                const auto pause = retry_.next(failure, made, elapsed);
                if (!pause || signals_.wait(*pause) != 0) throw;
            }
        }
    }
    [[nodiscard]] const strategy::lease_protocol& protocol() const noexcept { return protocol_; }

private:
    sql::connection& connected(sql::deadline until) {
        if (!db_ || !db_->alive()) {
            db_ = in_.source.connect(until);
            protocol_.set_up(*db_, statement_deadline, until);
            with_tables(in_, [&] { require_current_schema(*db_, in_.tables, until); });
        }
        return *db_;
    }

    const database& in_;
    blocked_signals& signals_;
    strategy::lease_protocol protocol_;
    std::unique_ptr<sql::connection> db_;
    retry_policy retry_;
};

/// One `rowlock acquire`.
class acquisition {
public:
    acquisition(link& to, const acquire_options& options) : link_{to}, options_{options} {}

    struct granted {
        std::int64_t token;
        std::int64_t grant_id;
    };

    /// Nothing if the wait was over first.
    /// @throws failure when a signal ended the wait
    std::optional<granted> wait(blocked_signals& signals) {
        const auto start = steady_clock::now();
        for (;;) {
            const auto attempt = try_once();
            if (attempt.what == strategy::attempt::outcome::granted) {
                return granted{attempt.token, grant_id_};
            }
            milliseconds pause{0};
            if (attempt.what == strategy::attempt::outcome::held) {
                const auto waited = steady_clock::now() - start;
                if (options_.wait && waited >= *options_.wait) return give_up();
                pause = next_pause(attempt.seen);
                if (options_.wait) {
                    pause =
                        std::min(pause, std::chrono::ceil<milliseconds>(*options_.wait - waited));
                }
            }
            if (const int number = signals.wait(pause); number != 0) {
                give_up();
                throw failure{signal_base + number, ""};
            }
        }
    }

    void undo() noexcept {
        try {
            link_.run([&](sql::connection& db, sql::deadline until) {
                link_.protocol().release(db, options_.name, session_, grant_id_, until);
                link_.protocol().delete_session(db, session_, until);
                return true;
            });
        } catch (...) {
            // The deadline frees it.
        }
    }

private:
    using outcome = strategy::attempt::outcome;

    strategy::attempt try_once() {
        try {
            return link_.run(
                [&](sql::connection& db, sql::deadline until) { return attempt(db, until); });
        } catch (const error& failed) {
            if (!sent_) throw;
            throw failure{exit_code_of(failed.kind()),
                          fmt::format("{}; whether the lock was taken is not known: `rowlock "
                                      "release {} {}` frees it, or else it frees itself within {}",
                                      message_of(failed), options_.name, grant_id_,
                                      to_text(options_.duration))};
        }
    }

    strategy::attempt attempt(sql::connection& db, sql::deadline until) {
        const auto& protocol = link_.protocol();
        if (sent_) {
            // The reply to an earlier attempt was lost.
            if (const auto token =
                    protocol.find_grant(db, options_.name, session_, grant_id_, until)) {
                return {outcome::granted, *token, {}};
            }
        } else {
            const auto seen = protocol.probe(db, options_.name, 0, until);
            if (!seen.free) return in_the_way(db, seen, until);
        }
        keep_session(db, until);
        sent_ = true;
        auto answer = protocol.acquire(db,
                                       {.name = options_.name,
                                        .session = session_,
                                        .grant_id = grant_id_,
                                        .thread = {},
                                        .note = options_.note,
                                        .deadline_us = microseconds{options_.duration}.count()},
                                       until);
        if (answer.what == outcome::granted) return answer;
        sent_ = false;
        if (answer.what == outcome::held) return in_the_way(db, answer.seen, until);
        if (answer.what == outcome::session_dead) session_ = 0;
        return answer;
    }

    /// A holder that has expired is ended first, in a commit of its own; only then may the lease
    /// change.
    strategy::attempt in_the_way(sql::connection& db, const strategy::look& seen,
                                 sql::deadline until) {
        if (session_ != 0 && seen.session == session_ && seen.grant_id == grant_id_) {
            // An earlier attempt, whose reply was lost, has been committed since.
            return {outcome::granted, seen.token, seen};
        }
        if (!seen.holder_expired) return {outcome::held, 0, seen};
        link_.protocol().end_expired_session(db, seen.session, until);
        return {outcome::contested, 0, seen};
    }

    void keep_session(sql::connection& db, sql::deadline until) {
        const auto now = steady_clock::now();
        if (session_ != 0 && now - beaten_ < slack / 2) return;
        const bool alive = session_ != 0 && link_.protocol().heartbeat(db, session_, 0, until);
        if (!alive) {
            grant_id_ = random_id();
            const strategy::session_row row{.id = random_id(),
                                            .owner = owner_of(grant_id_),
                                            .host = host_name(),
                                            .program = "rowlock acquire",
                                            .pid = getpid(),
                                            .ttl = options_.duration + slack};
            link_.protocol().open_session(db, row, until);
            session_ = row.id;
        }
        beaten_ = now;
    }

    milliseconds next_pause(const strategy::look& seen) {
        static thread_local std::minstd_rand generator{std::random_device{}()};
        const double part = std::uniform_real_distribution<double>{0.5, 1.0}(generator);
        milliseconds pause{static_cast<std::int64_t>(static_cast<double>(poll_.count()) * part)};
        poll_ = std::min<milliseconds>(1s, poll_ * 3 / 2);
        if (seen.remaining > 0us) {
            pause = std::min(pause, std::chrono::ceil<milliseconds>(seen.remaining) + 1ms);
        }
        return pause;
    }

    std::nullopt_t give_up() noexcept {
        if (session_ != 0) undo();
        return std::nullopt;
    }

    link& link_;
    const acquire_options& options_;
    std::int64_t session_ = 0;
    std::int64_t grant_id_ = 0;
    steady_clock::time_point beaten_{};
    milliseconds poll_{20};
    bool sent_ = false;
};

void report(const acquire_options& options, const acquisition::granted& got) {
    if (options.json) {
        print_json(json{{"name", options.name},
                        {"token", got.token},
                        {"grant_id", got.grant_id},
                        {"expires_in_ms", options.duration.count()}});
    } else {
        print(fmt::format("{} {}\n", got.token, got.grant_id));
    }
}

/// True if the lease was this grant and is free now.
bool release_grant(link& to, const release_options& options) {
    bool sent = false;
    return to.run([&](sql::connection& db, sql::deadline until) {
        const auto row = to.protocol().inspect(db, options.name, until);
        if (!row || !row->holder || row->holder->grant_id != options.grant_id) return sent;
        if (row->holder->owner != owner_of(options.grant_id)) {
            throw failure{usage, fmt::format("{} is held by a running process, not by `rowlock "
                                             "acquire`: stop it, or use `rowlock break`",
                                             options.name)};
        }
        sent = true;
        const std::int64_t session = row->holder->session;
        const bool freed =
            to.protocol().release(db, options.name, session, options.grant_id, until);
        to.protocol().delete_session(db, session, until);
        return freed;
    });
}

}  // namespace

int acquire(const acquire_options& options) {
    static_cast<void>(lock_name{options.name});
    detail::validate(rowlock::acquire_options{.note = options.note, .deadline = options.duration});
    const database in = find_database(options.database);
    // No SIGPIPE: a lease that nobody can be told of is given back.
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP, SIGQUIT}, {SIGPIPE}};
    link to{in, signals};
    acquisition mine{to, options};
    const auto got = mine.wait(signals);
    if (!got) {
        throw failure{
            options.busy_exit_code,
            fmt::format("{} is held by another; `rowlock show` tells by whom", options.name)};
    }
    try {
        report(options, *got);
    } catch (...) {
        mine.undo();  // nobody knows the grant id
        throw;
    }
    return success;
}

int release(const release_options& options) {
    static_cast<void>(lock_name{options.name});
    const database in = find_database(options.database);
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP, SIGQUIT}};
    link to{in, signals};
    const bool freed = release_grant(to, options);
    if (options.json) print_json(json{{"name", options.name}, {"released", freed}});
    if (!freed) {
        throw failure{answer_is_no,
                      fmt::format("{} is not held by this grant (any more)", options.name)};
    }
    return success;
}

}  // namespace rowlock::cli

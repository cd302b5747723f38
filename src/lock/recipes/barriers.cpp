#include "lock/recipes/barriers.hpp"

#include "base/jitter.hpp"
#include "lock/session/grant.hpp"
#include "sql/brief_wait.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <list>
#include <utility>

namespace rowlock::detail {

using namespace std::chrono_literals;
using protocol::answer;
using protocol::barrier_event;
using protocol::barrier_kind;
using protocol::barrier_round;
using protocol::joining;
using protocol::party_id;
using protocol::round_state;
using steady = std::chrono::steady_clock;

namespace {

/// Parties often come within milliseconds of each other; one that waits for long looks seldom.
constexpr nanoseconds first_pause = 4ms;
constexpr nanoseconds longest_pause = 250ms;
/// Of parties that were given up.
constexpr nanoseconds between_tries = 1s;

}  // namespace

error no_such_generation() {
    return {errc::broken, "this generation is there no more: it was over long ago"};
}

error of_the_other_kind(barrier_kind wanted) {
    return {errc::invalid_options, wanted == barrier_kind::latch
                                       ? "this name is that of a double_barrier: use another"
                                       : "this name is that of a latch: use another"};
}

joining barriers::begin(protocol::admission what) {
    context_.fork.require_same_process();
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) -> joining {
        auto seen = look_and_sweep({.name = what.name}, db, until);
        // A read answers those that come second.
        const bool pending =
            seen && seen->round.kind == what.terms.kind && seen->round.opened == answer::pending;
        if (pending && what.begun == 0) return {.seen = *std::move(seen)};
        return change([&] { return protocol_.admit(db, what, until); });
    });
}

joining barriers::join(protocol::admission what, time_point until, const std::stop_token& stop) {
    context_.fork.require_same_process();
    const auto attempt = [&](sql::connection& db, sql::deadline end, auto& change) {
        static_cast<void>(look_and_sweep({what.name, what.generation}, db, end));
        for (;;) {
            const auto ours = sessions_.ensure(db, end);
            what.by = ours->id();
            auto done = change([&] { return protocol_.admit(db, what, end); });
            if (done.what != joining::outcome::session_dead) return done;
            sessions_.lose(*ours, sessions_.why_over(*ours, db, end));
        }
    };
    return retries_.change(retries_.failure_deadline(until), stop, attempt).value_or(joining{});
}

std::optional<round_state> barriers::change(const party_id& of, barrier_event what,
                                            time_point until, const std::stop_token& stop) {
    context_.fork.require_same_process();
    const auto attempt = [&](sql::connection& db, sql::deadline end, auto& change) {
        return change([&] { return protocol_.change(db, of, what, end); });
    };
    return retries_.change(retries_.failure_deadline(until), stop, attempt).value_or(std::nullopt);
}

/// The generation is fixed before the first attempt: one whose reply was lost does not break the
/// next.
bool barriers::reset(const std::string& name, barrier_kind kind) {
    const auto seen = look(name, 0, kind);
    if (!seen || seen->round.opened != answer::pending) return false;
    const auto after = change({name, seen->generation}, barrier_event::reset);
    return after && after->round.opened == answer::broken;
}

std::optional<round_state> barriers::look(const std::string& name, std::int64_t generation,
                                          barrier_kind kind) {
    context_.fork.require_same_process();
    auto seen = retries_.on_connection([&](sql::connection& db, sql::deadline until) {
        return protocol_.look(db, {name, generation}, until);
    });
    if (seen && seen->round.kind != kind) throw of_the_other_kind(kind);
    return seen;
}

/// A session that has expired is ended first, in a commit of its own: only then is its loss final.
std::optional<round_state> barriers::look_and_sweep(const party_id& of, sql::connection& db,
                                                    sql::deadline until) {
    auto seen = protocol_.look(db, of, until);
    if (!seen || seen->parties.empty() || !seen->round.suffers_from_losses()) return seen;
    for (const auto& each : seen->parties) {
        if (each.holder != protocol::round_party::fate::expired) continue;
        if (context_.sessions.end_expired(db, each.session, until)) {
            waiting_.session_ended(each.session);
        }
    }
    auto after = protocol_.change(db, {of.name, seen->generation}, barrier_event::none, until);
    return after ? std::move(after) : std::move(seen);
}

std::optional<barrier_round> barriers::wait(const std::string& name, std::int64_t generation,
                                            answer_of which, time_point until,
                                            const std::stop_token& stop) {
    context_.fork.require_same_process();
    nanoseconds pause = first_pause;
    for (;;) {
        const auto seen = retries_.on_connection(
            retries_.failure_deadline(until), stop, [&](sql::connection& db, sql::deadline end) {
                auto found = look_and_sweep({name, generation}, db, end);
                if (!found && generation != 0 && protocol_.is_past(db, {name, generation}, end)) {
                    throw no_such_generation();
                }
                return found;
            });
        if (!seen) return std::nullopt;  // a stop was requested
        if (*seen) {
            generation = (*seen)->generation;
            const auto& round = (*seen)->round;
            // One that broke before it opened is never closed.
            const bool decided = round.*which != answer::pending || round.opened == answer::broken;
            if (decided) return round;
        }
        const auto now = steady::now();
        if (now >= until) return std::nullopt;
        const nanoseconds left = until - now;
        if (!retries_.pause(std::min(base::shortened(pause), left), stop)) return std::nullopt;
        if (retries_.closed()) throw client_destroyed();
        pause = std::min(longest_pause, pause + pause / 2);
    }
}

void barriers::give_up(party_id mine, barrier_event what) noexcept {
    if (context_.fork.in_child()) return;
    try {
        const auto done = retries_.on_connection(context_.statement_deadline(), {},
                                                 [&](sql::connection& db, sql::deadline until) {
                                                     protocol_.change(db, mine, what, until);
                                                     return true;
                                                 });
        if (done) return;
    } catch (...) {
        // Later, then.
    }
    try {
        keep_for_later(std::list{given_up{std::move(mine), what}});
    } catch (...) {
        return;  // no memory: it ends with this session
    }
    engine_.poke();
}

void barriers::keep_for_later(std::list<given_up> all) noexcept {
    const std::lock_guard lock{mutex_};
    given_up_.splice(given_up_.end(), all);
    due_ = context_.now() + between_tries;
}

nanoseconds barriers::due() const {
    const std::lock_guard lock{mutex_};
    return given_up_.empty() ? base::alarm::never : due_;
}

/// A locked row ends this turn, so that the heartbeats are not late, and comes last the next time.
void barriers::work(sql::connection& db, sql::deadline until, bool at_once) noexcept {
    std::list<given_up> rest;
    {
        const std::lock_guard lock{mutex_};
        if (given_up_.empty() || (!at_once && context_.now() < due_)) return;
        rest.swap(given_up_);
    }
    try {
        const auto brief = sql::row_lock_deadline(db, until);
        for (; !rest.empty() && db.alive(); rest.pop_front()) {
            protocol_.change(db, rest.front().first, rest.front().second, brief);
        }
    } catch (...) {
        rest.splice(rest.end(), rest, rest.begin());
    }
    keep_for_later(std::move(rest));
}

}  // namespace rowlock::detail

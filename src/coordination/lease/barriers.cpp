#include "coordination/lease/barriers.hpp"

#include "base/jitter.hpp"
#include "coordination/session/grant.hpp"
#include "sql/brief_wait.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace rowlock::detail {

using namespace std::chrono_literals;
using protocol::barrier_kind;
using protocol::barrier_round;
using protocol::joining;
using steady = std::chrono::steady_clock;

namespace {

/// Parties often come within milliseconds of each other; one that waits for long looks seldom.
constexpr nanoseconds first_pause = 4ms;
constexpr nanoseconds longest_pause = 250ms;
/// Of parties that were given up.
constexpr nanoseconds between_tries = 1s;

}  // namespace

/// Runs an attempt in a live session of this client.
template <typename Attempt>
joining barriers::in_session(Attempt attempt, sql::connection& db, sql::deadline until) {
    for (;;) {
        const auto ours = sessions_.ensure(db, until);
        auto done = attempt(ours->id());
        if (done.what != joining::outcome::session_dead) return done;
        sessions_.lose(*ours, sessions_.why_over(*ours, db, until));
    }
}

joining barriers::begin(const std::string& name, const protocol::round_terms& terms) {
    context_.fork.require_same_process();
    const auto id = next_id();
    bool again = false;
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        static_cast<void>(look_and_sweep(name, 0, db, until));
        return change([&] {
            return protocol_.begin(db, name, terms, id, std::exchange(again, true), until);
        });
    });
}

joining barriers::join(const party& mine, protocol::party_stage stage) {
    context_.fork.require_same_process();
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        static_cast<void>(look_and_sweep(mine.name, mine.generation, db, until));
        return in_session(
            [&](session_id ours) {
                return change([&] { return protocol_.join(db, mine.view(), ours, stage, until); });
            },
            db, until);
    });
}

joining barriers::enter(const party& mine, const protocol::round_terms& terms, time_point until,
                        const std::stop_token& stop) {
    context_.fork.require_same_process();
    const auto entered = retries_.change(
        retries_.failure_deadline(until), stop,
        [&](sql::connection& db, sql::deadline end, auto& change) {
            static_cast<void>(look_and_sweep(mine.name, 0, db, end));
            return in_session(
                [&](session_id ours) {
                    return change(
                        [&] { return protocol_.enter(db, mine.name, terms, mine.id, ours, end); });
                },
                db, end);
        });
    return entered.value_or(joining{});
}

std::optional<protocol::round_state> barriers::arrive(const party& mine) {
    context_.fork.require_same_process();
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        return change([&] { return protocol_.arrive(db, mine.view(), until); });
    });
}

std::optional<protocol::round_state> barriers::depart(const party& mine, time_point until,
                                                      const std::stop_token& stop) {
    context_.fork.require_same_process();
    const auto done =
        retries_.change(retries_.failure_deadline(until), stop,
                        [&](sql::connection& db, sql::deadline end, auto& change) {
                            return change([&] { return protocol_.depart(db, mine.view(), end); });
                        });
    return done.value_or(std::nullopt);
}

std::optional<protocol::round_state> barriers::withdraw(const party& mine, time_point until) {
    return *retries_.change(
        retries_.failure_deadline(until), {},
        [&](sql::connection& db, sql::deadline end, auto& change) {
            return change([&] { return protocol_.withdraw(db, mine.view(), end); });
        });
}

bool barriers::reset(const std::string& name, std::int64_t generation) {
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        return change([&] { return protocol_.reset(db, name, generation, until); });
    });
}

std::optional<protocol::round_state> barriers::look(const std::string& name,
                                                    std::int64_t generation) {
    context_.fork.require_same_process();
    return retries_.on_connection([&](sql::connection& db, sql::deadline until) {
        return protocol_.look(db, name, generation, until);
    });
}

/// A session that has expired is ended first, in a commit of its own: only then is its loss final.
std::optional<protocol::round_state> barriers::look_and_sweep(const std::string& name,
                                                              std::int64_t generation,
                                                              sql::connection& db,
                                                              sql::deadline until) {
    auto seen = protocol_.look(db, name, generation, until);
    if (!seen || seen->absent == 0 || !seen->round.suffers_from_losses()) return seen;
    for (const auto id :
         protocol_.expired_parties(db, name, seen->generation, seen->round.harmless(), until)) {
        if (context_.leases.end_expired_session(db, id, until)) waiting_.session_ended(id);
    }
    if (const auto after = protocol_.sweep(db, name, seen->generation, until)) {
        seen->round = *after;
    }
    return seen;
}

std::optional<barrier_round> barriers::wait(const std::string& name, std::int64_t generation,
                                            answer_of which, time_point until,
                                            const std::stop_token& stop) {
    context_.fork.require_same_process();
    nanoseconds pause = first_pause;
    for (;;) {
        const auto seen = retries_.on_connection(
            retries_.failure_deadline(until), stop, [&](sql::connection& db, sql::deadline end) {
                return look_and_sweep(name, generation, db, end);
            });
        if (!seen) return std::nullopt;  // a stop was requested
        if (*seen) {
            generation = (*seen)->generation;
            if ((*seen)->round.*which != protocol::answer::pending) return (*seen)->round;
            // Broken before it opened: it is never closed.
            if ((*seen)->round.opened == protocol::answer::broken) return (*seen)->round;
        } else if (generation != 0 && is_past(name, generation, until, stop)) {
            throw error{errc::broken, "this generation is there no more: it was over long ago"};
        }
        const auto now = steady::now();
        if (now >= until) return std::nullopt;
        const nanoseconds left = until - now;
        if (!retries_.pause(std::min(base::shortened(pause), left), stop)) return std::nullopt;
        if (retries_.closed()) throw client_destroyed();
        pause = std::min(longest_pause, pause + pause / 2);
    }
}

bool barriers::is_past(const std::string& name, std::int64_t generation, time_point until,
                       const std::stop_token& stop) {
    const auto past = retries_.on_connection(
        retries_.failure_deadline(until), stop, [&](sql::connection& db, sql::deadline end) {
            return protocol_.is_past(db, name, generation, end);
        });
    return past && *past;
}

/// What it finds is final: the row that it locks first is one that an attempt has locked from
/// before it adds the party until its commit is seen, however late that is.
void barriers::end(const given_up& one, sql::connection& db, sql::deadline until) {
    if (one.kind == barrier_kind::latch && !one.unsure) {
        static_cast<void>(protocol_.lose(db, one.of.view(), until));
        return;
    }
    // A party that its caller never had has done nothing, and is not lost.
    const auto in = protocol_.withdraw(db, one.of.view(), until);
    if (in && one.kind == barrier_kind::double_barrier && !in->round.is_over()) {
        static_cast<void>(protocol_.depart(db, one.of.view(), until));
    }
}

void barriers::give_up(party mine, barrier_kind kind, bool unsure) noexcept {
    if (context_.fork.in_child()) return;
    given_up one{std::move(mine), kind, unsure};
    try {
        const auto done = retries_.on_connection(context_.statement_deadline(), {},
                                                 [&](sql::connection& db, sql::deadline until) {
                                                     end(one, db, until);
                                                     return true;
                                                 });
        if (done) return;
    } catch (...) {
        // Later, then.
    }
    try {
        const std::lock_guard lock{mutex_};
        given_up_.push_back(std::move(one));
        due_ = context_.now() + between_tries;
    } catch (...) {
        return;  // no memory: it ends with this session
    }
    on_work_();
}

nanoseconds barriers::due() const {
    const std::lock_guard lock{mutex_};
    return given_up_.empty() ? base::alarm::never : due_;
}

void barriers::settle(sql::connection& db, sql::deadline until, bool at_once) noexcept {
    std::vector<given_up> all;
    {
        const std::lock_guard lock{mutex_};
        if (given_up_.empty() || (!at_once && context_.now() < due_)) return;
        all.swap(given_up_);
    }
    // A locked row ends this turn, so that the heartbeats are not late; it comes last the next
    // time.
    const auto brief = sql::row_lock_deadline(db, until);
    auto rest = all.begin();
    try {
        while (rest != all.end() && db.alive()) {
            end(*rest, db, brief);
            ++rest;
        }
    } catch (...) {
        // The next time.
    }
    if (rest != all.end()) std::rotate(rest, std::next(rest), all.end());
    all.erase(all.begin(), rest);
    const std::lock_guard lock{mutex_};
    due_ = context_.now() + between_tries;
    try {
        given_up_.insert(given_up_.end(), std::make_move_iterator(all.begin()),
                         std::make_move_iterator(all.end()));
    } catch (...) {
        // No memory: they end with this session.
    }
}

}  // namespace rowlock::detail

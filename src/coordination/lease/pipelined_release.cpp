#include "coordination/lease/engine.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>

namespace rowlock::detail {

using namespace std::chrono_literals;

/// Sends the release of a lease that has no known waiter, and leaves its answer to the next call on
/// that connection. Returns false, and does nothing, if this lease or this time does not allow it.
///
/// Statements of later calls, on any connection of the pool, come after it (take_connection). If
/// the client, the server or the network fails before the answer, it is a release whose reply was
/// lost: on_pipelined_answer learns so, and the lease is freed in the background or by the end of
/// the session.
bool engine::send_pipelined_release(const std::shared_ptr<grant>& held) {
    if (options_.releasing != releasing::pipelined || held->queued || held->fenced) return false;
    if (source_.speaks() != sql::dialect::postgresql || is_contended(held->name)) return false;
    if (!acquires_.alone() || !releases_.alone() || !held->held()) return false;
    const auto db = pool_.take_idle();
    if (!db || !posted_.begin(**db)) return false;
    auto expected = grant::state::held;
    if (!held->now.compare_exchange_strong(expected, grant::state::releasing)) {
        posted_.end();
        return false;
    }
    const auto told = [self = weak_from_this(), held](const sql::result* done,
                                                      const error* failure) {
        if (const auto alive = self.lock()) alive->on_pipelined_answer(*held, done, failure);
    };
    try {
        names_.remember_free(held->name, held->token.value());
        protocol_.post_release(**db, held->name, held->session_id, held->grant_id,
                               steady::now() + options_.statement_timeout, told);
    } catch (const error& failure) {
        told(nullptr, &failure);
    } catch (...) {
        told(nullptr, nullptr);
    }
    look_for_waiters(held->name);
    return true;
}

/// Runs inside a call of the connection that carried the release.
void engine::on_pipelined_answer(grant& held, const sql::result* done,
                                 const error* failure) noexcept {
    try {
        if (done == nullptr) {
            count(counter::unknown_outcomes);
            give_up_release(held, failure != nullptr ? failure->what() : "there was no memory");
        } else if (done->affected() == 1) {
            confirm_release(held);
        } else {
            deny_release(held);
        }
    } catch (...) {
        compare_wanted_ = true;  // no memory to remember the lease: the comparison finds it
    }
    posted_.end();
}

/// Returns a connection of the pool, after the unanswered releases on any other one were drained.
sql::connection_pool::borrowed engine::take_connection(sql::deadline until, std::size_t spare) {
    auto db = pool_.take(budget_ + spare, until, until);
    (void)drain_pipelined(&*db, until);
    return db;
}

/// Reads the answers to releases posted on any connection except `but`. Returns false if some are
/// left.
bool engine::drain_pipelined(const sql::connection* but, sql::deadline until) noexcept {
    // The user of that connection is about to read them.
    constexpr auto moment = 1ms;
    for (auto on = posted_.on(); on != nullptr && on != but; on = posted_.on()) {
        try {
            if (const auto its = pool_.take_idle(on)) {
                (*its)->settle(until);
            } else {
                posted_.wait(std::min(until, steady::now() + moment));
            }
        } catch (...) {
            // Broken: on_pipelined_answer ran when the connection was destroyed.
        }
        if (posted_.on() == on && steady::now() >= until) return false;
    }
    return true;
}

}  // namespace rowlock::detail

#include "coordination/lease/engine.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>

namespace rowlock::detail {

using namespace std::chrono_literals;

/// Sends the release of a lease that nobody is known to wait for, and leaves the answer to whoever
/// uses that connection next. False: not this one, or not now; nothing was done.
///
/// What is sent here on any connection comes after it (take_connection). If the client, the server
/// or the network dies before the answer, the release is one whose reply was lost: released_behind
/// hears of it, and what it was to free is freed in the background or by the end of the session.
bool engine::release_behind(const std::shared_ptr<grant>& held) {
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
        if (const auto alive = self.lock()) alive->released_behind(*held, done, failure);
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

/// Under a call of the connection that carried it.
void engine::released_behind(grant& held, const sql::result* done, const error* failure) noexcept {
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
        compare_wanted_ = true;  // no memory to remember it: the rows tell
    }
    posted_.end();
}

/// One of the pool, and nothing that was released before is still on its way on another.
sql::connection_pool::borrowed engine::take_connection(sql::deadline until, std::size_t spare) {
    auto db = pool_.take(budget_ + spare, until, until);
    (void)settle_posted(&*db, until);
    return db;
}

/// Reads the answers to what was posted on any connection `but` this. False if there are some left.
bool engine::settle_posted(const sql::connection* but, sql::deadline until) noexcept {
    // Who has that connection is about to read them.
    constexpr auto moment = 1ms;
    for (auto on = posted_.on(); on != nullptr && on != but; on = posted_.on()) {
        try {
            if (const auto its = pool_.take_idle(on)) {
                (*its)->settle(until);
            } else {
                posted_.wait(std::min(until, steady::now() + moment));
            }
        } catch (...) {
            // Broken: whoever released was told when it was destroyed.
        }
        if (posted_.on() == on && steady::now() >= until) return false;
    }
    return true;
}

}  // namespace rowlock::detail

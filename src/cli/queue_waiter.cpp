#include "cli/queue_waiter.hpp"

#include "base/identity.hpp"
#include "base/jitter.hpp"
#include "sql/brief_wait.hpp"
#include <rowlock/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The session's ttl while it waits, as for a client; every timely poll is a heartbeat.
constexpr milliseconds waiting_ttl = 30s;
constexpr milliseconds first_pause = 20ms;
// Between two polls: where the database cannot notify us, and where it does.
constexpr milliseconds longest_blind_pause = 250ms;
constexpr milliseconds longest_pause = 1s;

}  // namespace

session_id open_session_for(sql::connection& db, const protocol::lease_protocol& protocol,
                            grant_id grant_id, const wakeup::wake_address& wake, milliseconds ttl,
                            sql::deadline until) {
    const protocol::session_row row{.id = session_id{random_id()},
                                    .owner = owner_of(grant_id),
                                    .host = base::host_name(),
                                    .program = "rowlock acquire",
                                    .pid = getpid(),
                                    .ttl = ttl,
                                    .wake = wake};
    protocol.sessions().open(db, row, until);
    return row.id;
}

std::string owner_of(grant_id grant_id) {
    return std::string{owner_of_scripts} + to_string(grant_id);
}

std::optional<grant_of_script> queue_waiter::poll() {
    looked_at_ = steady_clock::now();
    auto served = link_.run([&](sql::connection& db, sql::deadline until) {
        std::optional<grant_of_script> got;
        for (bool again = true; again && !got && steady_clock::now() < until;) {
            got = step(db, until, again);
        }
        if (!got && link_.was_notified(address_.secret)) wait_ = 0ms;
        return got;
    });
    if (std::exchange(late_, false) && !served) too_late_.count();
    return served;
}

milliseconds queue_waiter::rest() const {
    if (link_.was_notified(address_.secret)) return 0ms;
    const auto rest = looked_at_ + first_pause - steady_clock::now();
    return std::max(std::chrono::ceil<milliseconds>(rest), 0ms);
}

std::optional<grant_of_script> queue_waiter::leave() {
    return link_.run([&](sql::connection& db, sql::deadline until) {
        std::optional<grant_of_script> got;
        if (!stands()) return got;
        if (!lock_.cancel(db, hold_, until)) got = accept(db, until);
        if (got) return got;
        // If neither the ticket nor a grant was found, the ticket may still arrive: it must find
        // its session ended. Another waiter may have found our entry, now gone, first in the queue:
        // serve the queue again.
        end_session(db, until);
        keeping_ = false;
        serve_others(db, until);
        hold_.session = session_id{};
        return got;
    });
}

void queue_waiter::keep_session(sql::connection& db, sql::deadline until) {
    const auto now = steady_clock::now();
    if (stands()) {
        if (now - beaten_ < waiting_ttl / 3) return;
        if (link_.protocol().sessions().heartbeat(db, hold_.session, 0, until)) {
            beaten_ = now;
            return;
        }
        start_anew(db, until);
    }
    hold_.grant_id = grant_id{random_id()};
    address_ = wakeup::random_wake_address();
    hold_.session =
        open_session_for(db, link_.protocol(), hold_.grant_id, address_, waiting_ttl, until);
    beaten_ = now;
}

/// Frees everything that the session holds, including what is still under way.
void queue_waiter::end_session(sql::connection& db, sql::deadline until) {
    link_.protocol().sessions().end(db, hold_.session, until);
    link_.protocol().sessions().remove(db, hold_.session, until);
}

/// If the row is locked, the waiters poll themselves.
void queue_waiter::serve_others(sql::connection& db, sql::deadline until) {
    try {
        static_cast<void>(lock_.serve_next(db, sql::row_lock_deadline(db, until)));
    } catch (const error& failure) {
        if (!sql::is_locked(db, failure)) throw;
    }
}

/// Ends this session; a new identity takes the next queue entry.
void queue_waiter::start_anew(sql::connection& db, sql::deadline until) {
    end_session(db, until);
    hold_.session = session_id{};
    asked_ = false;
    keeping_ = false;
    position_ = 0;
}

/// True if a waiter may have received the lease. If its row is locked the next poll tries again.
bool queue_waiter::see_to_the_first(sql::connection& db, const place_in_line& seen,
                                    sql::deadline until) {
    try {
        return lock_.serve_first(db, seen, sql::row_lock_deadline(db, until));
    } catch (const error& failure) {
        if (!sql::is_locked(db, failure)) throw;
        return false;
    }
}

std::optional<grant_of_script> queue_waiter::step(sql::connection& db, sql::deadline until,
                                                  bool& again) {
    link_.do_not_wait_for_rows(db, until);
    keep_session(db, until);
    link_.listen(db, wakeup::notification_channel(address_), until);
    if (!asked_) {
        asked_ = true;
        lock_.enqueue(db, hold_, until);
    }
    const auto seen = lock_.find_place(db, hold_, until);
    if (seen.session_live && seen.there) {
        in_vain_.forget();
        again = see_to_the_first(db, seen, until);
        next_pause(seen);
        return {};
    }
    if (auto got = accept(db, until)) return got;
    // Served too late: another may have the lease by now, and its row no longer shows our grant. Or
    // the session died, or the ticket did not arrive. Enqueue again, under a new identity.
    if (seen.session_live && position_ > 0) late_ = true;
    start_anew(db, until);
    serve_others(db, until);
    wait_ = late_ ? 0ms : base::shortened(in_vain_.count());
    again = !late_ && wait_ == 0ms;
    return {};
}

/// The grant, if the queue entry was served and the lease has not ended since.
std::optional<grant_of_script> queue_waiter::accept(sql::connection& db, sql::deadline until) {
    const auto asked = clock_.now();
    const auto served = lock_.served(db, hold_, until);
    if (!served) return {};
    keeping_ = true;
    // This commit also makes the grant before it durable.
    if (!link_.protocol().sessions().extend(db, hold_.session, duration_ + session_slack, until)) {
        return {};
    }
    // The database read the time after we asked: the result errs on the early side.
    const auto left = std::chrono::floor<milliseconds>(
        microseconds{served->deadline_us.value_or(0)} - (clock_.now() - asked));
    late_ = left <= 0ms;
    if (late_) return {};
    return grant_of_script{served->token, hold_, left};
}

void queue_waiter::next_pause(const place_in_line& seen) {
    const bool moved = seen.position != position_;
    position_ = seen.position;
    const bool notified = link_.descriptor() >= 0;
    pause_ = moved || pause_ == 0ms
                 ? first_pause
                 : std::min(notified ? longest_pause : longest_blind_pause, pause_ * 3 / 2);
    wait_ = base::shortened(pause_);
    if (seen.remaining != 0us) {  // less: it expired while it was read
        const auto left = std::max(std::chrono::ceil<milliseconds>(seen.remaining), 0ms);
        wait_ = std::min(wait_, left + 1ms);
    }
}

}  // namespace rowlock::cli

// What wakes a holder: another client has changed rows of its session, and says so past the tables.
// It moves the next heartbeat forward, which asks the database. Mail is read by the waiting room
// once there is one, and by the heartbeat's thread before that. PostgreSQL's notifications are
// heard by the one of the two whose connection listens.

#include "coordination/lease/engine.hpp"
#include "coordination/queue/waiting_room.hpp"
#include "sql/pooler.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <new>
#include <utility>

namespace rowlock::detail {
namespace {

using base::alarm;
using wakeup::mailbox;

/// So often in a row what was said is taken; the rest is there the next time.
constexpr int most_takes = 16;

}  // namespace

/// The session whose mailbox is polled is kept meanwhile, so that its descriptor is no other's.
base::worker::ears engine::heartbeat_ears() {
    return {.open =
                [this, polled = std::shared_ptr<session>{}](std::span<pollfd> on) mutable {
                    polled = current();
                    return polled ? open_ears(*polled, on) : alarm::never;
                },
            .hear =
                [this] {
                    const auto ours = current();
                    return ours && hear(*ours);
                }};
}

/// On the heartbeat's thread. Returns when to open them again.
nanoseconds engine::open_ears(const session& ours, std::span<pollfd> on) noexcept {
    if (clock_.now() < deaf_until_) return deaf_until_;
    if (unheard_.exchange(false)) return clock_.now();
    if (heartbeat_db_ && hears_notifications()) {
        on[0].fd = heartbeat_db_->notifications()->descriptor();
    }
    const auto* const box = ours.mailbox();
    if (box != nullptr && !open_room()) on[1].fd = box->descriptor();
    return alarm::never;
}

/// On the heartbeat's thread. True if there is something to find out. After words without use it is
/// deaf for a moment: a stranger that goes on talking costs a few hundred wake-ups a second.
bool engine::hear(session& ours) noexcept {
    if (clock_.now() < deaf_until_) return false;
    bool news = false;
    try {
        std::vector<std::string> said;
        bool closed = false;
        try {
            read_what_was_said(ours, said);
        } catch (const error&) {
            closed = true;  // another connection is opened
        }
        for (const auto& each : said) news = hear_of_change(ours, each) || news;
        if (!news && !said.empty()) deaf_until_ = clock_.now() + mailbox::rest_from_flood;
        return news || closed;
    } catch (const std::exception&) {
        return news;  // no memory
    }
}

/// A turn on the connection for all is over, and may have read what was said.
void engine::let_heartbeat_hear() noexcept {
    unheard_ = true;
    const std::lock_guard lock{state_mutex_};
    if (heartbeat_) heartbeat_->poke_ears();
}

/// With the room's mutex held: from its first moment on, mail is the room's, and on a connection
/// for all so is what the database says. Nothing that was said to a waiter is taken by another.
/// Neither waits.
/// @throws error if the heartbeat's connection turned out to be closed
void engine::read_what_was_said(const session& ours, std::vector<std::string>& into) {
    const std::lock_guard lock{room_mutex_};
    if (ours.mailbox() != nullptr && !room_) into = ours.mailbox()->take();
    if (!heartbeat_db_ || heartbeat_listens_for_ == 0 || (shares() && room_)) return;
    for (int some = 0; some < most_takes; ++some) {
        auto said = heartbeat_db_->notifications()->take();
        if (said.empty()) return;
        for (auto& each : said) into.push_back(std::move(each.payload));
    }
}

/// True if it moves the next heartbeat forward. Every local user may write to our mailbox, and
/// every role of the database to our channel: what they say is dropped. So is what we know, such as
/// what was overheard and is said again.
bool engine::hear_of_change(session& ours, std::string_view said) {
    const auto revision = strategy::told_to_look(said);
    if (!revision || !ours.is_news(*revision)) return false;
    if (!strategy::is_proved(said, ours.address().secret)) return false;
    return ours.tell(*revision, clock_.now());
}

/// Whether the heartbeat's connection is the one that hears.
bool engine::hears_notifications() const noexcept {
    return heartbeat_listens_for_ != 0 && !(shares() && open_room());
}

/// PostgreSQL: while the waiting room's connection does not listen, the heartbeat's does, once for
/// each session and connection. A listening connection costs the server a moment with each
/// notification in the database, so a client has one of them.
void engine::listen_with_heartbeat(const session& ours, sql::connection& db, sql::deadline until) {
    if (source_.speaks() != sql::dialect::postgresql) return;
    if (options_.wake_ups == wakeup_mode::polling || !heartbeat_may_listen_) return;
    const auto room = open_room();
    if (room && shares()) return;  // one connection: it listens there
    const bool wanted = !room || !room->listens_for(ours.id());
    if (heartbeat_listens_for_ == (wanted ? ours.id() : 0)) return;
    try {
        auto* const capability = db.notifications();
        if (capability == nullptr || !db.keeps_session_state()) {
            heartbeat_may_listen_ = false;
            return;
        }
        // On a connection for all, a room that was opened meanwhile may listen. A notification to
        // a session that is over has no proof for this one, and is dropped.
        if (std::exchange(heartbeat_listens_for_, 0) != 0 && !shares()) {
            db.query("unlisten *", until);
        }
        if (!wanted) return;
        // A pooler that nobody has declared: others would hear what is said to us.
        if (!heartbeat_is_direct_) heartbeat_is_direct_ = sql::is_direct(db, until);
        heartbeat_may_listen_ = *heartbeat_is_direct_;
        if (!heartbeat_may_listen_) return;
        capability->listen(strategy::notification_channel(ours.address()), until);
        heartbeat_listens_for_ = ours.id();
    } catch (const error& failure) {
        if (!db.alive()) throw;
        if (failure.retryable()) return;  // with the next heartbeat
        heartbeat_may_listen_ = false;    // its heartbeats hear of all changes, later
    }
}

/// That we have changed its rows. A hint, after the commit: if it does not arrive, or the database
/// does not let us read how that session is woken, the holder's next heartbeat finds out. One round
/// trip, and one more to notify.
void engine::tell_holder(sql::connection& db, std::int64_t session, sql::deadline until) noexcept {
    if (options_.wake_ups == wakeup_mode::polling) return;
    queue_.tell_to_look(db, session, until);
}

}  // namespace rowlock::detail

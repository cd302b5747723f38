// Wakes a holder when another client has changed rows of its session and notifies it outside the
// tables. A notification moves the next heartbeat forward, which asks the database. The waiting
// room reads the mailbox once it exists; before that the heartbeat thread does. PostgreSQL's
// notifications are received by the one of the two whose connection listens.

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

/// Most batches of notifications taken in a row; the rest is taken the next time.
constexpr int most_takes = 16;

}  // namespace

/// Keeps the session alive while its mailbox is polled, so that its descriptor is not reused.
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

/// On the heartbeat thread. Returns when to call it again.
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

/// On the heartbeat thread. True if the next step is due now. After useless messages the thread
/// ignores its descriptors for mailbox::rest_from_flood: a process that keeps sending costs a few
/// hundred wake-ups a second.
bool engine::hear(session& ours) noexcept {
    if (clock_.now() < deaf_until_) return false;
    bool news = false;
    try {
        std::vector<std::string> said;
        bool closed = false;
        try {
            read_what_was_said(ours, said);
        } catch (const error&) {
            closed = true;  // the next step opens another connection
        }
        for (const auto& each : said) news = hear_of_change(ours, each) || news;
        if (!news && !said.empty()) deaf_until_ = clock_.now() + mailbox::rest_from_flood;
        return news || closed;
    } catch (const std::exception&) {
        return news;  // no memory
    }
}

/// A turn on the shared connection is over and may have read a notification.
void engine::let_heartbeat_hear() noexcept {
    unheard_ = true;
    const std::lock_guard lock{state_mutex_};
    if (heartbeat_) heartbeat_->poke_ears();
}

/// Reads under the room's mutex: once the room exists, the mailbox is the room's, and on a shared
/// connection so are the notifications. No message for a waiter is taken elsewhere. Neither read
/// blocks.
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

/// True if the message moves the next heartbeat forward. Any local user may write to our mailbox
/// and any role of the database to our channel: a message without proof is dropped. So is one that
/// is no news, such as a replay of an overheard message.
bool engine::hear_of_change(session& ours, std::string_view said) {
    const auto revision = strategy::told_to_look(said);
    if (!revision || !ours.is_news(*revision)) return false;
    if (!strategy::is_proved(said, ours.address().secret)) return false;
    return ours.tell(*revision, clock_.now());
}

/// Whether the heartbeat's connection is the one that receives notifications.
bool engine::hears_notifications() const noexcept {
    return heartbeat_listens_for_ != 0 && !(shares() && open_room());
}

/// PostgreSQL: the heartbeat's connection listens while the waiting room's does not; LISTEN is sent
/// once per session and connection. A listening connection costs the server time on every
/// notification in the database, so a client has only one.
void engine::listen_with_heartbeat(const session& ours, sql::connection& db, sql::deadline until) {
    if (source_.speaks() != sql::dialect::postgresql) return;
    if (options_.wake_ups == wakeup_mode::polling || !heartbeat_may_listen_) return;
    const auto room = open_room();
    if (room && shares()) return;  // the room listens on the shared connection
    const bool wanted = !room || !room->listens_for(ours.id());
    if (heartbeat_listens_for_ == (wanted ? ours.id() : 0)) return;
    try {
        auto* const capability = db.notifications();
        if (capability == nullptr || !db.keeps_session_state()) {
            heartbeat_may_listen_ = false;
            return;
        }
        // On a shared connection a room that was opened meanwhile may listen. A notification to an
        // ended session has no valid proof for this one and is dropped.
        if (std::exchange(heartbeat_listens_for_, 0) != 0 && !shares()) {
            db.query("unlisten *", until);
        }
        if (!wanted) return;
        // Behind an undeclared pooler other clients would receive our notifications.
        if (!heartbeat_is_direct_) heartbeat_is_direct_ = sql::is_direct(db, until);
        heartbeat_may_listen_ = *heartbeat_is_direct_;
        if (!heartbeat_may_listen_) return;
        capability->listen(strategy::notification_channel(ours.address()), until);
        heartbeat_listens_for_ = ours.id();
    } catch (const error& failure) {
        if (!db.alive()) throw;
        if (failure.retryable()) return;  // retried with the next heartbeat
        heartbeat_may_listen_ = false;    // its heartbeats find all changes, later
    }
}

/// Notifies a holder that we have changed its rows. A hint, sent after the commit: if it is lost,
/// or we may not read that session's wake-up address, the holder's next heartbeat finds the change.
/// One round trip, and one more to notify.
void engine::tell_holder(sql::connection& db, std::int64_t session, sql::deadline until) noexcept {
    if (options_.wake_ups == wakeup_mode::polling) return;
    queue_.tell_to_look(db, session, until);
}

}  // namespace rowlock::detail

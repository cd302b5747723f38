#include "coordination/session/change_listener.hpp"

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

nanoseconds change_listener::open(const session& ours, sql::connection* db,
                                  std::span<pollfd> on) noexcept {
    if (context_.now() < deaf_until_) return deaf_until_;
    if (unheard_.exchange(false)) return context_.now();
    if (db != nullptr && hears_notifications()) on[0].fd = db->notifications()->descriptor();
    const auto* const box = ours.mailbox();
    if (box != nullptr && !waiting_.is_running()) on[1].fd = box->descriptor();
    return alarm::never;
}

bool change_listener::read_wakeups(session& ours, sql::connection* db) noexcept {
    if (context_.now() < deaf_until_) return false;
    bool news = false;
    try {
        std::vector<std::string> messages;
        bool closed = false;
        try {
            read_messages(ours, db, messages);
        } catch (const error&) {
            closed = true;  // the next step opens another connection
        }
        bool useful = false;
        for (const auto& each : messages) {
            const auto found = accept(ours, each);
            useful = useful || found != use::none;
            news = news || found == use::change;
        }
        if (!useful && !messages.empty()) deaf_until_ = context_.now() + mailbox::rest_from_flood;
        return news || closed;
    } catch (const std::exception&) {
        return news;  // no memory
    }
}

/// Once the waiters' thread runs, the mailbox is its own, and on a shared connection so are the
/// notifications: no message for a waiter is taken here. Neither read blocks.
/// @throws error if the heartbeat's connection turned out to be closed
void change_listener::read_messages(const session& ours, sql::connection* db,
                                    std::vector<std::string>& into) {
    waiting_.while_unchanged([&](bool running) {
        if (ours.mailbox() != nullptr && !running) into = ours.mailbox()->take();
        if (db == nullptr || listens_for_ == session_id{}) return;
        if (context_.shares_connection() && running) return;
        for (int some = 0; some < most_takes; ++some) {
            auto received = db->notifications()->take();
            if (received.empty()) return;
            for (auto& each : received) into.push_back(std::move(each.payload));
        }
    });
}

change_listener::use change_listener::accept(session& ours, std::string_view message) const {
    if (const auto recalled = wakeup::decode_recall(message)) {
        if (!context_.retained.keeps(*recalled)) return use::none;
        if (!wakeup::is_proved(message, ours.address().secret)) return use::none;
        return context_.retained.recall(*recalled) ? use::recall : use::none;
    }
    const auto revision = wakeup::decode_look(message);
    if (!revision || !ours.news().is_news(*revision)) return use::none;
    if (!wakeup::is_proved(message, ours.address().secret)) return use::none;
    return ours.news().tell(*revision, context_.now()) ? use::change : use::none;
}

/// Whether the heartbeat's connection is the one that receives notifications.
bool change_listener::hears_notifications() const noexcept {
    return listens_for_ != session_id{} && !(context_.shares_connection() && waiting_.is_running());
}

void change_listener::connection_opened() noexcept {
    listens_for_ = session_id{};
    may_listen_ = true;
}

void change_listener::listen(const session& ours, sql::connection& db, sql::deadline until) {
    if (!context_.traits().notifies) return;
    if (context_.options.wake_ups == wakeup_mode::polling || !may_listen_) return;
    const bool shares = context_.shares_connection();
    if (shares && waiting_.is_running()) return;  // it listens on the shared connection
    const bool wanted = !waiting_.listens_for(ours.id());
    if (listens_for_ == (wanted ? ours.id() : session_id{})) return;
    try {
        auto* const capability = db.notifications();
        if (capability == nullptr || !db.keeps_session_state()) {
            may_listen_ = false;
            return;
        }
        // On a shared connection waiters that came meanwhile may listen. A notification to an
        // ended session has no valid proof for this one and is dropped.
        if (std::exchange(listens_for_, session_id{}) != session_id{} && !shares)
            db.query("unlisten *", until);
        if (!wanted || !may_listen_on(db, until)) return;
        capability->listen(wakeup::notification_channel(ours.address()), until);
        listens_for_ = ours.id();
    } catch (const error& failure) {
        if (!db.alive()) throw;
        if (failure.retryable()) return;  // retried with the next heartbeat
        may_listen_ = false;              // its heartbeats find all changes, later
    }
}

/// Behind an undeclared pooler other clients would receive our notifications.
bool change_listener::may_listen_on(sql::connection& db, sql::deadline until) {
    if (!is_direct_) is_direct_ = sql::is_direct(db, until);
    may_listen_ = *is_direct_;
    return may_listen_;
}

}  // namespace rowlock::detail

#include "lock/wakeup/notification_source.hpp"

#include <rowlock/error.hpp>

#include <chrono>
#include <thread>
#include <utility>

namespace rowlock::wakeup {
namespace {

using namespace std::chrono_literals;

/// Limits the reads of notifications in a row; each takes all that have arrived.
constexpr int most_takes = 16;

}  // namespace

bool file_watch_source::listen(sql::connection& db, const recipient& current, session_id,
                               sql::deadline until) {
    if (impossible_ || current.session == session_id{} || listening_for_ == current.session)
        return false;
    auto* const capability = db.notifications();
    if (capability == nullptr) {
        impossible_ = true;
        return false;
    }
    try {
        capability->listen(wakeup::notification_channel(*current.address), until);
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        impossible_ = true;
        return false;
    }
    db_ = &db;
    notifications_ = capability;
    listening_for_ = current.session;
    return true;
}

void file_watch_source::detach() noexcept {
    db_ = nullptr;
    notifications_ = nullptr;
    listening_for_ = session_id{};
}

/// Others may send faster than we read: the rest is read the next time.
void file_watch_source::read(listener& to) {
    if (notifications_ == nullptr || !db_->alive()) return;
    for (int some = 0; some < most_takes; ++some) {
        if (notifications_->take().empty()) return;
        to.on_commit();
    }
}

int file_watch_source::descriptor() const noexcept {
    return notifications_ == nullptr ? -1 : notifications_->descriptor();
}

wakeup_source::kind file_watch_source::wakes(session_id) const noexcept {
    return listening_for_ == session_id{} ? kind::none : kind::notification;
}

bool file_watch_source::watches_commits() const noexcept {
    return notifications_ != nullptr;
}

bool file_watch_source::want_commits(bool wanted) {
    try {
        notifications_->want_changes(wanted);
        return wanted;
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        return false;  // this machine has no watches left
    }
}

bool listen_source::listen(sql::connection& db, const recipient& current, session_id,
                           sql::deadline) {
    if (current.session == session_id{}) return false;
    on_.want(current.session, notification_channel(*current.address), db);
    await_first(current.session);
    const auto heard = on_.listening_for();
    return known_for_.exchange(heard) != heard && heard == current.session;
}

/// Once for a session: most often it listens within some milliseconds, and then the first poll
/// misses nothing and needs no other after it. Else the caller polls without.
void listen_source::await_first(session_id session) {
    constexpr auto longest = 250ms;
    if (std::exchange(awaited_, session) == session) return;
    const auto end = std::chrono::steady_clock::now() + longest;
    while (on_.is_attempting() && on_.listening_for() != session &&
           std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(1ms);
    }
}

void listen_source::read(listener& to) {
    for (int some = 0; some < most_takes; ++some) {
        const auto all = on_.take();
        for (const auto& each : all) to.on_message(each.payload, true);
        if (all.empty()) break;
    }
    if (known_for_ == session_id{} || known_for_ == on_.listening_for()) return;
    known_for_ = session_id{};
    to.on_doubt();  // the connection has broken
}

wakeup_source::kind listen_source::wakes(session_id) const noexcept {
    return listening_for() == session_id{} ? kind::none : kind::notification;
}

bool listen_source::must_listen_for(session_id waiting) const noexcept {
    return on_.listening_for() == waiting && known_for_ != waiting;
}

}  // namespace rowlock::wakeup

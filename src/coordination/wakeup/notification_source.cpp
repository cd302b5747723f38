#include "coordination/wakeup/notification_source.hpp"

#include <rowlock/error.hpp>

namespace rowlock::wakeup {
namespace {

/// Limits the reads of notifications in a row; each takes all that have arrived.
constexpr int most_takes = 16;

}  // namespace

bool notification_source::listen(sql::connection& db, const recipient& current, session_id,
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

void notification_source::detach() noexcept {
    db_ = nullptr;
    notifications_ = nullptr;
    listening_for_ = session_id{};
}

/// Others may send faster than we read: the rest is read the next time.
void notification_source::read(listener& to) {
    if (notifications_ == nullptr || !db_->alive()) return;
    for (int some = 0; some < most_takes; ++some) {
        const auto all = notifications_->take();
        if (all.empty()) return;
        for (const auto& each : all) report(each, to);
    }
}

int notification_source::descriptor() const noexcept {
    return notifications_ == nullptr ? -1 : notifications_->descriptor();
}

wakeup_source::kind notification_source::wakes(session_id) const noexcept {
    return listening_for_ == session_id{} ? kind::none : kind::notification;
}

void listen_source::report(const sql::notification& what, listener& to) {
    to.on_message(what.payload, true);
}

void file_watch_source::report(const sql::notification&, listener& to) {
    to.on_commit();
}

bool file_watch_source::watches_commits() const noexcept {
    return capability() != nullptr;
}

bool file_watch_source::want_commits(bool wanted) {
    try {
        capability()->want_changes(wanted);
        return wanted;
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        return false;  // this machine has no watches left
    }
}

}  // namespace rowlock::wakeup

#include "lock/wakeup/mysql_wait_source.hpp"

#include "lock/wakeup/mysql_wait.hpp"

#include <system_error>
#include <utility>

namespace rowlock::wakeup {

mysql_wait_source::mysql_wait_source(source_parts with)
    : parts_{std::move(with)},
      // The sleep would block the heartbeat on a shared connection, and the KILL might hit it.
      may_sleep_{!parts_.shares_connection} {}

mysql_wait_source::~mysql_wait_source() = default;

bool mysql_wait_source::listen(sql::connection& db, const recipient&, session_id waiting,
                               sql::deadline until) {
    if (!may_sleep_ || waiting == session_id{}) return false;
    if (!take_wait_lock_for(waiting, db, until)) {
        may_sleep_ = false;
        return false;
    }
    try {
        start();
    } catch (const std::system_error&) {
        may_sleep_ = false;  // no thread: frequent polls replace it
        return false;
    }
    thread_->sleep_for(waiting, wait_lock_);
    return false;  // the thread reports when the sleep begins
}

bool mysql_wait_source::take_wait_lock_for(session_id session, sql::connection& db,
                                           sql::deadline until) {
    if (wait_lock_ != 0 && lock_session_ == session) return true;
    if (wait_lock_ != 0) mysql_wait::release_wait_lock(db, std::exchange(wait_lock_, 0), until);
    const auto next = parts_.next_id();
    if (!mysql_wait::take_wait_lock(db, next, until)) return false;
    wait_lock_ = next;
    lock_session_ = session;
    return true;
}

void mysql_wait_source::start() {
    if (thread_) return;
    auto& to = parts_.reports_to;
    auto made = std::make_unique<detail::mysql_wait_thread>(detail::mysql_wait_thread::surroundings{
        .connect = parts_.connect,
        .on_sleep = [&to](bool again) { to.on_sleep(again); },
        .on_woken = [&to] { to.on_woken(); },
        .on_doubt = [&to] { to.on_doubt(); },
        .on_broken = [&to] { to.on_broken(); },
        .statement_timeout = parts_.statement_timeout});
    const std::lock_guard lock{mutex_};
    thread_ = std::move(made);
}

void mysql_wait_source::rest() noexcept {
    if (thread_) thread_->pause();
}

void mysql_wait_source::stop() noexcept {
    if (thread_) thread_->stop();
}

wakeup_source::kind mysql_wait_source::wakes(session_id session) const noexcept {
    return session != session_id{} && thread_ && thread_->asleep_for() == session
               ? kind::interruption
               : kind::none;
}

bool mysql_wait_source::must_listen_for(session_id waiting) const noexcept {
    if (!may_sleep_) return false;
    const std::lock_guard lock{mutex_};
    return !thread_ || thread_->sleeps_for() != waiting;
}

std::size_t mysql_wait_source::connections() const noexcept {
    const std::lock_guard lock{mutex_};
    return thread_ && thread_->connected() ? 1u : 0u;
}

}  // namespace rowlock::wakeup

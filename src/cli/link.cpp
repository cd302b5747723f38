#include "cli/link.hpp"

#include "lock/wakeup/before_listen.hpp"
#include "lock/wakeup/hint.hpp"
#include "sql/brief_wait.hpp"
#include "sql/database_traits.hpp"
#include "sql/listening.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>

#include <algorithm>

namespace rowlock::cli {

namespace {

/// Whether LISTEN, behind which this process's heartbeats stand, does not read a long queue.
bool is_answered_soon(sql::connection& db, sql::deadline until) {
    if (!sql::traits_of(db.speaks()).notifies) return true;
    return !wakeup::ask_before_listen(db, {}, until).queue_is_long;
}

}  // namespace

link::link(const database& in, blocked_signals& signals)
    : in_{in},
      signals_{signals},
      statements_{in.source.speaks(), {.tables = in.source.tables()}},
      protocol_{protocol::make_lease_protocol(statements_)},
      queue_{protocol::make_queue_protocol(statements_, *protocol_)},
      semaphores_{protocol::make_semaphore_protocol(statements_)} {}

detail::retry_step link::retry_until_signal::judge(const error& failure) const noexcept {
    const bool again = failure.retryable() || failure.kind() == errc::outcome_unknown;
    return again ? detail::retry_step::repeat : detail::retry_step::give_up;
}

detail::retry_step link::retry_until_signal::wait(std::chrono::milliseconds pause) const {
    const int number = signals_.wait(pause);
    if (number == 0) return detail::retry_step::repeat;
    signals_.put_back(number);
    return detail::retry_step::give_up;
}

void link::listen(sql::connection& db, std::string_view channel, sql::deadline until) {
    if (silent_) return;
    if (channel_ == channel) {
        static_cast<void>(notifications_->take());
        return;
    }
    try {
        if (notifications_ == nullptr)
            notifications_ = sql::usable_notifications(db, in_.source, until);
        if (notifications_ != nullptr && is_answered_soon(db, until)) {
            silent_ = true;  // one that is not answered is not sent again
            notifications_->listen(
                channel, std::min<sql::deadline>(
                             until, std::chrono::steady_clock::now() + wakeup::listen_patience));
            silent_ = false;
            channel_ = channel;
            return;
        }
    } catch (const error& failure) {
        // What is asked before a LISTEN may be forbidden to this role.
        if (failure.kind() != errc::unsupported && failure.kind() != errc::access_denied) throw;
    }
    silent_ = true;
}

bool link::was_notified(std::string_view secret) {
    if (channel_.empty()) return false;
    const bool by_anybody = db_->speaks() == sql::dialect::postgresql;
    return std::ranges::any_of(notifications_->take(), [&](const auto& message) {
        return !by_anybody || wakeup::is_proved(message.payload, secret);
    });
}

void link::do_not_wait_for_rows(sql::connection& db, sql::deadline until) {
    if (impatient_) return;
    sql::set_short_lock_timeout(db, until);
    impatient_ = true;
}

int link::descriptor() const noexcept {
    return channel_.empty() ? -1 : notifications_->descriptor();
}

sql::connection& link::connected(sql::deadline until) {
    if (!db_ || !db_->alive() || db_->discarded()) {
        channel_.clear();
        notifications_ = nullptr;
        impatient_ = false;
        db_.reset();
        // Kept only when it is set up: a connection without its settings would judge by another
        // clock.
        auto made = in_.source.connect(until);
        protocol_->sessions().set_up(*made, statement_timeout, until);
        with_tables(in_, [&] { require_current_schema(*made, in_.source.tables(), until); });
        db_ = std::move(made);
    }
    return *db_;
}

}  // namespace rowlock::cli

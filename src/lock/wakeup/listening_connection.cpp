#include "lock/wakeup/listening_connection.hpp"

#include "base/jitter.hpp"
#include "base/signal_blocked_thread.hpp"
#include "sql/listening.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::wakeup {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// After a LISTEN that was not answered, or while the queue is long.
nanoseconds long_pause() {
    return base::shortened<nanoseconds>(5min, 0.2);
}

}  // namespace

void listening_connection::want(session_id session, const std::string& channel,
                                sql::connection& like) noexcept {
    if (impossible_ || session == session_id{} || session == listening_for_) return;
    const std::lock_guard lock{mutex_};
    if (closed_ || attempting_ || with_.now() < next_) return;
    if (like.notifications() == nullptr || !like.keeps_session_state()) {
        impossible_ = true;
        return;
    }
    try {
        if (thread_.joinable()) thread_.join();  // it has ended
        drop(0ns);
        thread_ =
            base::signal_blocked_thread([this, session, channel] { attempt(session, channel); });
        attempting_ = true;
    } catch (const std::exception&) {
        next_ = with_.now() + pause_after_failure();  // no thread, no memory
    }
}

void listening_connection::attempt(session_id session, const std::string& channel) noexcept {
    nanoseconds pause{0};
    std::unique_ptr<sql::connection> made;
    const auto end = steady::now() + with_.statement_timeout;
    try {
        made = listen(channel, pause);
    } catch (const error& failure) {
        // What is asked before a LISTEN may be forbidden to this role: it polls. One that could not
        // connect tries again soon.
        const bool asked = connected_;
        if (asked && failure.kind() == errc::access_denied) impossible_ = true;
        if (asked && steady::now() >= end) pause = long_pause();
    } catch (const std::exception&) {
        // No memory: tried again soon.
    }
    connected_ = made != nullptr;
    {
        const std::lock_guard lock{mutex_};
        next_ = with_.now() + (pause > 0ns || made ? pause : pause_after_failure());
        since_ = with_.now();
        db_ = std::move(made);
        listening_for_ = db_ ? session : session_id{};
    }
    if (connected_) with_.on_listening();
    const std::lock_guard lock{mutex_};
    attempting_ = false;
}

/// Returns a connection that listens, or null, and then perhaps how long to pause.
std::unique_ptr<sql::connection> listening_connection::listen(const std::string& channel,
                                                              nanoseconds& pause) {
    const auto until = steady::now() + with_.statement_timeout;
    auto db = with_.connect(until);
    connected_ = true;
    auto* const capability = sql::usable_notifications(*db, with_.source, until);
    if (capability == nullptr) {
        impossible_ = true;
        return nullptr;
    }
    const auto answer = ask_before_listen(*db, abandoned_, until);
    if (answer.queue_is_long || answer.abandoned_runs) {
        pause = long_pause();
        return nullptr;
    }
    abandoned_.reset();
    const auto end = std::min<sql::deadline>(until, steady::now() + listen_patience);
    try {
        capability->listen(channel, end);
        return db;
    } catch (const error& failure) {
        constexpr std::string_view cancelled = "57014";
        if (failure.kind() == errc::unsupported) impossible_ = true;
        const bool unanswered = failure.kind() == errc::outcome_unknown && steady::now() >= end;
        if (!unanswered && failure.sqlstate() != cancelled) throw;
        if (unanswered) abandoned_ = answer.own;
        pause = long_pause();
        return nullptr;
    }
}

bool listening_connection::is_attempting() const noexcept {
    const std::lock_guard lock{mutex_};
    return attempting_ && !closed_;
}

int listening_connection::descriptor() const noexcept {
    const std::lock_guard lock{mutex_};
    return db_ ? db_->notifications()->descriptor() : -1;
}

std::vector<sql::notification> listening_connection::take() noexcept {
    if (auto received = take_or_drop()) return std::move(*received);
    with_.on_broken();
    return {};
}

/// Returns nothing if the connection turned out to be broken.
std::optional<std::vector<sql::notification>> listening_connection::take_or_drop() noexcept {
    const std::lock_guard lock{mutex_};
    if (!db_) return std::vector<sql::notification>{};
    try {
        if (db_->alive()) return db_->notifications()->take();
    } catch (const std::exception&) {
        // It is closed, or out of memory: the client polls until it listens again.
    }
    // One that breaks as soon as it listens is not made anew each time at once. One that lasted is,
    // however often a server restarts: it costs a connection a second at most.
    constexpr auto lasted = 1s;
    if (with_.now() - since_ >= lasted) failures_ = 0;
    drop(pause_after_failure());
    return std::nullopt;
}

void listening_connection::close() noexcept {
    {
        const std::lock_guard lock{mutex_};
        closed_ = true;
    }
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock{mutex_};
    drop(0ns);
}

void listening_connection::drop(nanoseconds pause) noexcept {
    listening_for_ = session_id{};
    connected_ = false;
    db_.reset();
    next_ = with_.now() + pause;
}

nanoseconds listening_connection::pause_after_failure() noexcept {
    if (failures_++ == 0) return 0ns;
    constexpr nanoseconds first = 100ms;
    const nanoseconds pause = first * (1 << std::min(failures_ - 2, 11));
    return base::shortened(std::min<nanoseconds>(pause, 2min), 0.2);
}

}  // namespace rowlock::wakeup

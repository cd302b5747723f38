#include "lock/wakeup/mysql_wait_thread.hpp"

#include "base/signal_blocked_thread.hpp"
#include "lock/wakeup/mysql_wait.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// If its wait lock cannot be released, as the server is away, nothing on this side ends a sleep:
/// the end of a client may have to wait for that long.
constexpr auto longest = 2s;

}  // namespace

mysql_wait_thread::mysql_wait_thread(surroundings around) : around_{std::move(around)} {
    thread_ = base::signal_blocked_thread([this] { run(); });
}

mysql_wait_thread::~mysql_wait_thread() {
    stop();
    thread_.join();
}

void mysql_wait_thread::sleep_for(session_id session, std::int64_t wait_lock) noexcept {
    const std::lock_guard lock{mutex_};
    const place before = std::exchange(wanted_, {session, wait_lock});
    if (wanted_ != before) changed_.notify_all();
}

void mysql_wait_thread::pause() noexcept {
    const std::lock_guard lock{mutex_};
    wanted_ = {};
}

session_id mysql_wait_thread::sleeps_for() const noexcept {
    const std::lock_guard lock{mutex_};
    return wanted_.session;
}

void mysql_wait_thread::stop() noexcept {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
    changed_.notify_all();
}

void mysql_wait_thread::run() noexcept {
    constexpr auto first_pause = 100ms;
    constexpr auto longest_pause = 2s;
    std::chrono::milliseconds pause = first_pause;
    std::unique_lock lock{mutex_};
    while (!stopping_) {
        // A released wait lock is not taken again; the next one has another number.
        if (wanted_.session == session_id{} || wanted_.wait_lock == opened_) {
            asleep_for_ = session_id{};
            slept_to_its_end_ = false;
            changed_.wait(lock);
            continue;
        }
        const auto where = wanted_;
        lock.unlock();
        const bool slept = sleep(where);
        lock.lock();
        if (slept) {
            pause = first_pause;
            continue;
        }
        changed_.wait_for(lock, pause, [this] { return stopping_; });
        pause = std::min<std::chrono::milliseconds>(2 * pause, longest_pause);
    }
    disconnect();
}

/// Returns false if the connection failed: waiters poll for themselves.
bool mysql_wait_thread::sleep(const place& where) noexcept {
    using mysql_wait::ending;
    try {
        connect(where);
        asleep_for_ = where.session;
        around_.on_sleep(std::exchange(slept_to_its_end_, false));
        const auto until = steady::now() + longest + around_.statement_timeout;
        switch (
            mysql_wait::sleep_until_woken(*db_, where.session, where.wait_lock, longest, until)) {
            case ending::woken:
                around_.on_woken();
                break;
            case ending::lock_free:
                // The connection that held it is gone, or we are about to end. Ours has the lock
                // now.
                opened_ = where.wait_lock;
                disconnect();
                around_.on_doubt();
                break;
            case ending::slept:
                slept_to_its_end_ = true;
                break;
        }
        return true;
    } catch (...) {
        doubt();
        disconnect();
        return false;
    }
}

/// Called in an error handler.
void mysql_wait_thread::doubt() noexcept {
    if (db_ && !db_->alive()) around_.on_broken();
    around_.on_doubt();
}

/// One connection is for one session and one wait lock.
void mysql_wait_thread::connect(const place& where) {
    if (db_ && db_->alive() && connected_for_ == where) return;
    disconnect();
    const auto until = steady::now() + around_.statement_timeout;
    auto made = around_.connect(until);
    mysql_wait::prepare_to_sleep(*made, where.session, until);
    db_ = std::move(made);
    connected_for_ = where;
    connected_ = true;
}

void mysql_wait_thread::disconnect() noexcept {
    asleep_for_ = session_id{};
    slept_to_its_end_ = false;
    db_.reset();
    connected_ = false;
}

}  // namespace rowlock::detail

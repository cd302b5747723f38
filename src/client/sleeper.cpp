#include "client/sleeper.hpp"

#include "service/quiet_thread.hpp"
#include "strategy/wake_up.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// Nothing on this side ends a sleep: so long a client's end may have to wait for it.
constexpr auto longest = 2s;

}  // namespace

sleeper::sleeper(surroundings around) : around_{std::move(around)} {
    thread_ = service::quiet_thread([this] { run(); });
}

sleeper::~sleeper() {
    stop(nullptr, steady::now());
    thread_.join();
}

void sleeper::sleep_for(std::int64_t session) noexcept {
    const std::lock_guard lock{mutex_};
    session_ = session;
    changed_.notify_all();
}

void sleeper::stop(sql::connection* db, sql::deadline until) noexcept {
    constexpr auto next_try = 5ms;  // it may be between its last look and its sleep
    std::unique_lock lock{mutex_};
    stopping_ = true;
    changed_.notify_all();
    try {
        while (db != nullptr && db->alive() && !over_ && steady::now() < until) {
            const auto session = sleeping_for_;
            lock.unlock();
            strategy::wake_up::wake(*db, session, until);
            lock.lock();
            changed_.wait_for(lock, next_try, [this] { return over_; });
        }
    } catch (...) {
        // It ends by itself.
    }
}

void sleeper::run() noexcept {
    constexpr auto first_pause = 100ms;
    constexpr auto longest_pause = 2s;
    std::chrono::milliseconds pause = first_pause;
    std::unique_lock lock{mutex_};
    while (!stopping_) {
        if (session_ == 0) {
            changed_.wait(lock);
            continue;
        }
        const auto session = sleeping_for_ = session_;
        lock.unlock();
        const bool slept = sleep(session);
        lock.lock();
        if (slept) {
            pause = first_pause;
            continue;
        }
        changed_.wait_for(lock, pause, [this] { return stopping_; });
        pause = std::min<std::chrono::milliseconds>(2 * pause, longest_pause);
    }
    db_.reset();
    connected_ = false;
    over_ = true;
    changed_.notify_all();
}

/// False if the connection failed: those who wait look for themselves.
bool sleeper::sleep(std::int64_t session) noexcept {
    namespace wake_up = strategy::wake_up;
    try {
        if (db_ && !db_->alive()) db_.reset();
        if (!db_) {
            const auto until = steady::now() + around_.statement_deadline;
            auto made = around_.connect(until);
            wake_up::prepare_to_sleep(*made, until);
            db_ = std::move(made);
            connected_ = true;
        }
        asleep_ = true;
        around_.on_sleep();
        const auto until = steady::now() + longest + around_.statement_deadline;
        if (wake_up::sleep_until_woken(*db_, session, longest, until) == wake_up::ending::woken) {
            around_.on_woken();
        }
        return true;
    } catch (...) {
        asleep_ = false;
        db_.reset();
        connected_ = false;
        return false;
    }
}

}  // namespace rowlock::detail

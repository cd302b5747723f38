#include "cli/serve/live_overview.hpp"

#include "cli/exit_code.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;

/// For a request that wants the latest.
constexpr auto patience = 5s;

}  // namespace

live_overview::live_overview(const database& in, std::chrono::milliseconds every)
    : every_{every}, db_{in}, reader_{[this](const std::stop_token& ended) { run(ended); }} {}

live_overview::~live_overview() {
    stop();
}

void live_overview::stop() {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    reader_.request_stop();
    changed_.notify_all();
}

bool live_overview::is_stopped() {
    const std::lock_guard lock{mutex_};
    return stopped_;
}

std::shared_ptr<const seen> live_overview::latest() {
    std::unique_lock lock{mutex_};
    if (latest_->version > 0 && clock::now() - read_at_ <= every_) return latest_;
    const auto before = latest_->version;
    ++wanted_;
    changed_.notify_all();
    changed_.wait_for(lock, patience, [&] { return stopped_ || latest_->version != before; });
    --wanted_;
    if (latest_->version == 0) throw failure{unreachable, "the database has not answered yet"};
    return latest_;
}

std::shared_ptr<const seen> live_overview::after(std::uint64_t version,
                                                 std::chrono::milliseconds limit) {
    std::unique_lock lock{mutex_};
    ++wanted_;
    changed_.notify_all();
    const bool came =
        changed_.wait_for(lock, limit, [&] { return stopped_ || latest_->version > version; });
    --wanted_;
    return came && !stopped_ ? latest_ : nullptr;
}

void live_overview::run(const std::stop_token& ended) {
    constexpr int share = 4;  // of the time in which it does not read
    constexpr clock::duration longest_pause = 10s;
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, ended, [&] { return wanted_ > 0; });
        changed_.wait_until(lock, ended, next_, [&] { return clock::now() >= next_; });
        if (ended.stop_requested()) return;
        const auto before = latest_;
        lock.unlock();
        const auto began = clock::now();
        auto found = read(*before);
        lock.lock();
        latest_ = std::move(found);
        read_at_ = clock::now();
        next_ = std::max(began + every_,
                         read_at_ + std::min(share * (read_at_ - began), longest_pause));
        changed_.notify_all();
    }
}

std::shared_ptr<const seen> live_overview::read(const seen& before) {
    const auto version = before.version + 1;
    try {
        return std::make_shared<seen>(seen_now(version, db_.locks()));
    } catch (const error& failed) {
        return std::make_shared<seen>(seen_before(version, before, message_of(failed)));
    } catch (const std::exception& failed) {
        return std::make_shared<seen>(seen_before(version, before, failed.what()));
    }
}

}  // namespace rowlock::cli::serving

#include "cli/serve/live_overview.hpp"

#include "cli/exit_code.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;

/// For one statement: tables of tens of millions of rows.
constexpr auto statement_timeout = 30s;
constexpr auto connect_timeout = 5s;

}  // namespace

template <typename Action>
auto live_overview::on_connection(Action action) {
    const std::lock_guard lock{connection_lock_};
    try {
        if (connection_ == nullptr) {
            auto opened = in_.source.connect(clock::now() + connect_timeout);
            protocol_->set_up(*opened, statement_timeout, clock::now() + connect_timeout);
            connection_ = std::move(opened);
        }
        return action(*connection_);
    } catch (...) {
        connection_ = nullptr;
        throw;
    }
}

live_overview::live_overview(const database& in, std::chrono::milliseconds every)
    : in_{in},
      every_{every},
      statements_{in.source.speaks(), sql::statement_options{.tables = in.source.tables()}},
      protocol_{protocol::make_lease_protocol(statements_)},
      reader_{[this](const std::stop_token& ended) { run(ended); }} {}

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
    changed_.wait(lock, [&] { return stopped_ || latest_->version != before; });
    --wanted_;
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
        next_ = began + std::max<clock::duration>(every_, (share + 1) * (read_at_ - began));
        changed_.notify_all();
    }
}

std::shared_ptr<const seen> live_overview::read(const seen& before) {
    const auto version = before.version + 1;
    try {
        return std::make_shared<seen>(seen_now(
            version, on_connection([&](sql::connection& db) {
                return overview::read(db, statements_, most, clock::now() + statement_timeout);
            })));
    } catch (const error& failed) {
        return std::make_shared<seen>(seen_before(version, before, message_of(failed)));
    }
}

overview::sessions_seen live_overview::sessions() {
    return on_connection([&](sql::connection& db) {
        return overview::read_sessions(db, statements_, most, clock::now() + statement_timeout);
    });
}

}  // namespace rowlock::cli::serving

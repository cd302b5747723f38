#include "sql/connection_pool.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::sql {
namespace {

/// Longer than a statement that reads takes.
constexpr std::chrono::milliseconds brief_turn{5};

}  // namespace

connection_pool::borrowed::~borrowed() {
    if (!db_) return;
    pool_->give_back(std::move(db_), std::move(mark_), generation_, keep_, brief_);
}

void connection_pool::borrowed::reconnect(deadline until) {
    {
        // What broke this one has probably broken the others that were idle as long.
        const std::lock_guard lock{pool_->mutex_};
        pool_->idle_.clear();
        generation_ = pool_->generation_;
    }
    db_ = pool_->make(until);
    mark_.clear();
    reused_ = false;
}

connection_pool::borrowed connection_pool::take(std::size_t budget, deadline place_until,
                                                deadline until) {
    const auto start = std::chrono::steady_clock::now();
    std::chrono::steady_clock::duration waited{};
    std::vector<idle> expired;
    std::uint64_t generation = 0;
    {
        std::unique_lock lock{mutex_};
        if (idle_.empty() && lent_briefly_ > 0) {
            // A connection that was lent briefly is back sooner than a new one is connected, and it
            // knows our statements. Done before waiting for the budget: others may use it up during
            // this wait.
            freed_.wait_until(lock, std::min(place_until, start + brief_turn),
                              [&] { return !idle_.empty() || lent_briefly_ == 0; });
        }
        if (!freed_.wait_until(lock, place_until, [&] { return in_use_ < budget; })) {
            throw error{errc::timed_out, how_.when_full};
        }
        waited = std::chrono::steady_clock::now() - start;
        idle_.reserve(in_use_ + idle_.size() + 1);  // so that give_back() cannot fail
        expired = stale();
        ++in_use_;
        generation = generation_;
        if (!idle_.empty()) {
            idle found = std::move(idle_.back());
            idle_.pop_back();
            return {*this, std::move(found.db), std::move(found.mark), true, generation, waited};
        }
    }
    try {
        return {*this, make(until), {}, false, generation, waited};
    } catch (...) {
        const std::lock_guard lock{mutex_};
        --in_use_;
        freed_.notify_all();
        throw;
    }
}

std::optional<connection_pool::borrowed> connection_pool::take_idle() {
    const std::lock_guard lock{mutex_};
    if (idle_.empty()) return std::nullopt;
    idle found = std::move(idle_.back());
    idle_.pop_back();
    ++in_use_;
    ++lent_briefly_;
    return borrowed{*this, std::move(found.db), std::move(found.mark), true, generation_, {}, true};
}

std::unique_ptr<connection> connection_pool::remove_idle() {
    const std::lock_guard lock{mutex_};
    if (idle_.empty()) return nullptr;
    auto found = std::move(idle_.back().db);
    idle_.pop_back();
    return found;
}

std::unique_ptr<connection> connection_pool::make(deadline until) const {
    return how_.connect(until);
}

void connection_pool::renew() noexcept {
    std::vector<idle> old;  // destroyed when the mutex is free again
    const std::lock_guard lock{mutex_};
    ++generation_;
    old.swap(idle_);
}

std::size_t connection_pool::open_connections() const {
    const std::lock_guard lock{mutex_};
    return idle_.size() + in_use_;
}

void connection_pool::abandon() noexcept {
    for (auto& one : idle_) static_cast<void>(one.db.release());
    idle_.clear();
}

void connection_pool::give_back(std::unique_ptr<connection> db, std::string mark,
                                std::uint64_t generation, bool keep, bool briefly_lent) noexcept {
    const bool broken = !db->alive() || db->discarded();
    if (broken || !keep) db.reset();
    {
        const std::lock_guard lock{mutex_};
        --in_use_;
        if (briefly_lent) --lent_briefly_;
        if (db && generation == generation_) {
            idle_.push_back({std::move(db), std::move(mark), std::chrono::steady_clock::now()});
        }
        // What broke one has probably broken the others: better to reconnect than to send into a
        // dead socket and not know the outcome.
        if (broken) idle_.clear();
        // Budgets differ between callers: a woken thread may not be let in.
        freed_.notify_all();
    }
    if (broken && how_.on_broken) how_.on_broken();
}

std::vector<connection_pool::idle> connection_pool::stale() {
    const auto oldest = std::chrono::steady_clock::now() - how_.keep_idle;
    const auto first_kept =
        std::ranges::find_if(idle_, [&](const idle& one) { return one.since > oldest; });
    std::vector<idle> expired{std::make_move_iterator(idle_.begin()),
                              std::make_move_iterator(first_kept)};
    idle_.erase(idle_.begin(), first_kept);
    return expired;
}

}  // namespace rowlock::sql

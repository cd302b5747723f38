#include "client/connection_pool.hpp"

#include <rowlock/error.hpp>

namespace rowlock::detail {

connection_pool::connection_pool(sql::connection_source source,
                                 const strategy::lease_protocol& protocol, int budget,
                                 std::chrono::milliseconds statement_deadline,
                                 std::function<void()> on_broken)
    : source_{std::move(source)},
      protocol_{protocol},
      budget_{static_cast<std::size_t>(budget)},
      statement_deadline_{statement_deadline},
      on_broken_{std::move(on_broken)} {
    idle_.reserve(budget_);  // so that give_back() cannot fail
}

connection_pool::borrowed::~borrowed() {
    if (db_) pool_->give_back(std::move(db_));
}

connection_pool::borrowed connection_pool::take(sql::deadline until) {
    {
        std::unique_lock lock{mutex_};
        if (!freed_.wait_until(lock, until, [this] { return in_use_ < budget_; })) {
            throw error{errc::timed_out,
                        "all connections of this client are busy: raise max_connections"};
        }
        ++in_use_;
        if (!idle_.empty()) {
            auto db = std::move(idle_.back());
            idle_.pop_back();
            return {*this, std::move(db)};
        }
    }
    try {
        return {*this, make(until)};
    } catch (...) {
        const std::lock_guard lock{mutex_};
        --in_use_;
        freed_.notify_one();
        throw;
    }
}

std::unique_ptr<sql::connection> connection_pool::make(sql::deadline until) const {
    auto db = source_.connect(until);
    protocol_.set_up(*db, statement_deadline_, until);
    return db;
}

std::size_t connection_pool::open_connections() const {
    const std::lock_guard lock{mutex_};
    return idle_.size() + in_use_;
}

void connection_pool::abandon() noexcept {
    for (auto& db : idle_) static_cast<void>(db.release());
    idle_.clear();
}

void connection_pool::give_back(std::unique_ptr<sql::connection> db) noexcept {
    const bool broken = !db->alive() || db->discarded();
    if (broken) db.reset();
    {
        const std::lock_guard lock{mutex_};
        --in_use_;
        if (db) idle_.push_back(std::move(db));
        // What broke one has probably broken the others: better to reconnect than to send into a
        // dead socket and not know the outcome.
        if (broken) idle_.clear();
        freed_.notify_one();
    }
    if (broken) on_broken_();
}

}  // namespace rowlock::detail

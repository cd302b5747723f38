// The engine's connections: opening, sharing, trust windows and closing.

#include "sql/database_traits.hpp"
#include "sql/pooler.hpp"
#include "transaction/advisory/advisory_engine.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::detail {

sql::deadline advisory_engine::soon() const {
    return steady::now() + options_.statement_timeout;
}

/// Returns, taken, the connection that all calls share which need not wait.
advisory_engine::station advisory_engine::shared_station(guard& lock, sql::deadline until) {
    for (;;) {
        require_open();
        if (!shared_) {
            return make_station(lock, until, true);
        }
        station which = shared_;
        if (checkout(lock, which, until)) return which;
    }
}

advisory_engine::station advisory_engine::own_station(guard& lock, sql::deadline until) {
    for (;;) {
        require_open();
        if (auto found = idle_or_new_station(lock, until)) return found;
        if (changed_.wait_until(lock, until) == std::cv_status::timeout) {
            throw error{
                errc::timed_out,
                "all connections of these advisory locks are in use: raise max_connections"};
        }
    }
}

/// Returns null if no connection is available now; then the caller polls.
advisory_engine::station advisory_engine::station_to_wait_on(guard& lock) {
    try {
        return idle_or_new_station(lock, soon());
    } catch (const error& failure) {
        if (failure.kind() != errc::out_of_resources) throw;
        return nullptr;
    }
}

advisory_engine::station advisory_engine::idle_or_new_station(guard& lock, sql::deadline until) {
    const auto idle = std::ranges::find_if(stations_, [this](const station& each) {
        return each != shared_ && !each->taken && !each->wanted_by_watch && each->locks == 0;
    });
    if (idle != stations_.end()) {
        (*idle)->taken = true;
        return *idle;
    }
    // One connection is reserved for sharing, unless each lock has its own.
    const auto others = stations_.size() - (shared_ ? 1 : 0);
    const auto most =
        static_cast<std::size_t>(options_.max_connections) - (options_.own_connection ? 0 : 1);
    return others < most ? make_station(lock, until, false) : nullptr;
}

/// Returns a new connection, taken. It is listed from the start, so that the budget counts it.
advisory_engine::station advisory_engine::make_station(guard& lock, sql::deadline until,
                                                       bool shared) {
    start_watch();
    auto fresh = std::make_shared<advisory_connection>();
    fresh->trust = std::make_shared<trust_window>(clock_.now() + options_.statement_timeout);
    stations_.push_back(fresh);
    if (shared) shared_ = fresh;
    try {
        const nanoseconds sent = clock_.now();
        const bool check_pooler = !pooler_checked_;
        connected made;
        {
            const unlocked running{lock};
            made = connect(check_pooler, until);
        }
        fresh->db = std::move(made.db);
        fresh->session = std::move(made.session);
        require_open();
        if (schema_known_ && schema_ != fresh->session.schema) {
            throw error{errc::invalid_options,
                        "the connection source yields connections to different databases, where "
                        "one name has different keys"};
        }
        pooler_checked_ = schema_known_ = true;
        schema_ = fresh->session.schema;
        fresh->trust = std::make_shared<trust_window>(sent + belief());
        fresh->next_check = clock_.now() + options_.check_period;
        fresh->socket = fresh->db->socket();
        poke_watch();
        return fresh;
    } catch (...) {
        fresh->gone = true;
        std::erase(stations_, fresh);
        if (shared_ == fresh) shared_.reset();
        if (fresh->db) closed_.push_back(std::move(fresh->db));
        fresh->freed.notify_all();
        changed_.notify_all();
        poke_watch();
        throw;
    }
}

advisory_engine::connected advisory_engine::connect(bool check_pooler, sql::deadline until) const {
    connected made{source_.connect(until), {}};
    const bool handed_round =
        !made.db->keeps_session_state() ||
        (check_pooler && sql::traits_of(source_.speaks()).may_be_pooled &&
         sql::pooling_of(*made.db, source_, until) == sql::pooling::transaction);
    if (handed_round) {
        throw error{
            errc::unsupported,
            "behind a transaction pooler an advisory lock stays with a server process "
            "that serves others next, and two clients get it at once: connect to "
            "PostgreSQL directly, use session pooling, or try_transaction_lock() in a transaction"};
    }
    made.session = protocol_->set_up(*made.db,  // A slice ends at half of this at the latest.
                                     options_.statement_timeout + 2 * options_.wait_slice,
                                     options_.keepalive_timeout, until);
    return made;
}

/// Takes a connection; returns false if it is gone. @throws error errc::timed_out
bool advisory_engine::checkout(guard& lock, const station& which, sql::deadline until) {
    const bool came = which->freed.wait_until(
        lock, until, [&] { return which->gone || (!which->taken && !which->wanted_by_watch); });
    if (!came) {
        throw error{errc::timed_out,
                    "the connection of these advisory locks was busy for longer than "
                    "statement_timeout"};
    }
    if (which->gone) return false;
    which->taken = true;
    return true;
}

void advisory_engine::give_back(const station& which) noexcept {
    which->taken = false;
    if (which->locks == 0) which->next_check = clock_.now() + options_.check_period;
    if (which->gone) {
        retire(*which);
    } else if (!which->usable()) {
        mark_lost(which, loss_reason::connection_lost);
    } else if (which->wanted_by_watch) {
        which->freed.notify_all();
    } else {
        which->freed.notify_one();
    }
    changed_.notify_all();
}

/// The connection holds nothing from now on. It is closed as soon as no thread uses it.
void advisory_engine::mark_lost(const station& which, loss_reason why) noexcept {
    if (which->gone) return;
    which->gone = true;
    which->trust->close();
    std::vector<tenure> on_it;
    for (const auto& [identity, at] : places_) {
        if (at->lock && at->lock->on == which) on_it.push_back(at->lock);
    }
    for (const auto& each : on_it) lose(each, why);
    std::erase(stations_, which);
    if (shared_ == which) shared_.reset();
    if (!which->taken) retire(*which);
    which->freed.notify_all();
    changed_.notify_all();
}

void advisory_engine::retire(advisory_connection& which) noexcept {
    if (which.db) closed_.push_back(std::move(which.db));
    poke_watch();
}

void advisory_engine::extend_trust(advisory_connection& which, nanoseconds sent) {
    const auto until = sent + belief();
    // No lock depends on a connection that holds none; it may have waited for longer than the
    // window.
    if (!which.gone && which.locks == 0) {
        which.trust = std::make_shared<trust_window>(until);
        return;
    }
    if (!which.gone && which.trust->extend(until, clock_.now())) return;
    which.db->discard();
    throw error{errc::database_unreachable,
                "the connection of these advisory locks was silent for too long and is abandoned"};
}

void advisory_engine::require_open() const {
    if (!closing_) return;
    throw error{errc::lock_lost, "the advisory_client object was destroyed"};
}

}  // namespace rowlock::detail

// The engine's background thread: it polls the connections' sockets, asks the server whether our
// locks are still ours, and closes connections that are not needed.

#include "base/signal_blocked_thread.hpp"
#include "transaction/advisory/advisory_engine.hpp"

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

}  // namespace

void advisory_engine::close() noexcept {
    {
        const std::lock_guard lock{mutex_};
        closing_ = true;
        for (const auto& [identity, at] : places_) {
            for (auto* each : at->queue) each->call();
        }
        for (const auto& each : stations_) each->freed.notify_all();
        changed_.notify_all();
        poke_watch();
    }
    if (watch_.joinable()) watch_.join();
    guard lock{mutex_};
    // Unlocks now, so that the locks are free when this returns, and not when the server notices.
    const auto until = soon();
    for (const auto& each : std::vector<station>{stations_}) {
        if (each->taken || each->gone) continue;  // its user finds it gone, and closes it
        each->taken = true;
        try {
            const unlocked running{lock};
            if (each->locks > 0 && each->db->alive()) protocol_->unlock_all(*each->db, until);
        } catch (const std::exception&) {
            // The server unlocks when it sees the connection closed.
        }
        each->taken = false;
        changed_.notify_all();
    }
    for (const auto& each : std::vector<station>{stations_}) {
        mark_lost(each, loss_reason::client_closed);
    }
    const auto closed = std::exchange(closed_, {});
    lock.unlock();
}

void advisory_engine::start_watch() {
    if (watch_.joinable()) return;
    alarm_ = std::make_unique<base::alarm>(clock_);
    watch_ = base::signal_blocked_thread([this] { watch(); });
}

void advisory_engine::poke_watch() const noexcept {
    if (alarm_) alarm_->poke();
}

void advisory_engine::watch() noexcept {
    guard lock{mutex_};
    while (!closing_) {
        nanoseconds next = clock_.now() + options_.check_period;
        try {
            next = look_after(lock);
            if (!closing_) listen(lock, next);
        } catch (const std::exception&) {
            // Out of memory. The trust windows close by themselves.
            changed_.wait_for(lock, 100ms, [this] { return closing_; });
        }
    }
}

/// Does everything that is due; returns when to run again.
nanoseconds advisory_engine::look_after(guard& lock) {
    // The connection whose trust window ends first is checked first, and for no longer than that:
    // one that does not answer keeps no other from being declared lost in time.
    std::vector<std::pair<nanoseconds, station>> in_order;
    for (const auto& each : stations_) in_order.emplace_back(each->trust->until(), each);
    std::ranges::sort(in_order);
    for (const auto& [until, each] : in_order) {
        if (each->gone || !each->db || closing_) continue;
        const nanoseconds now = clock_.now();
        // A connection that waits for its first lock is its user's to handle.
        if (each->taken && each->locks == 0) continue;
        if (!each->trust->open(now)) {
            mark_lost(each, loss_reason::trust_window_passed);
        } else if (each->next_check <= now) {
            const bool idle = each->locks == 0 && each != shared_;
            if (idle) {
                mark_lost(each, loss_reason::none);
            } else {
                check(lock, each);
            }
        }
    }
    give_back_owed(lock);
    nanoseconds next = clock_.now() + options_.check_period;
    for (const auto& each : stations_) {
        if (each->taken && each->locks == 0) continue;
        next = std::min({next, each->next_check, each->trust->until()});
    }
    return owed_.empty() ? next : std::min<nanoseconds>(next, clock_.now() + 200ms);
}

sql::deadline advisory_engine::end_of_belief(const advisory_connection& which) const {
    return std::min(soon(), steady::now() + (which.trust->until() - clock_.now()));
}

/// Asks the server whether this connection holds everything that it should.
void advisory_engine::check(guard& lock, const station& which) {
    which->wanted_by_watch = true;
    which->freed.wait_until(lock, end_of_belief(*which),
                            [&] { return which->gone || !which->taken || closing_; });
    which->wanted_by_watch = false;
    which->freed.notify_all();
    if (which->gone || which->taken || closing_) return;
    which->taken = true;
    const use now{*this, which};
    std::vector<tenure> held;
    std::vector<detail::advisory_protocol::wanted> wanted;
    for (const auto& [identity, at] : places_) {
        if (!at->lock || at->lock->on != which || at->lock->leaving) continue;
        held.push_back(at->lock);
        wanted.push_back({at->lock->key, at->lock->mode});
    }
    const nanoseconds sent = clock_.now();
    const auto until = end_of_belief(*which);
    // Four attempts fit into what is left of the trust window, should this one fail.
    which->next_check = sent + options_.statement_timeout / 4;
    try {
        std::vector<bool> answers;
        {
            const unlocked running{lock};
            answers = protocol_->held(*which->db, which->session, wanted, until);
        }
        extend_trust(*which, sent);
        which->next_check = sent + options_.check_period;
        for (std::size_t i = 0; i < held.size(); ++i) {
            if (answers[i] || held[i]->over || held[i]->leaving) continue;
            lose(held[i], loss_reason::forced_release);
        }
    } catch (const error& failure) {
        // The server is no longer a primary, or the session is not ours: whatever it answers,
        // others may lock.
        if (failure.kind() == errc::read_only) which->db->discard();
    }
}

/// Settles locks whose unlocking was not confirmed; their keys stay taken in this process until
/// then.
void advisory_engine::give_back_owed(guard& lock) {
    for (const auto& each : std::vector<tenure>{owed_}) {
        const station on = each->on;
        if (each->over || on->gone || on->taken) continue;
        on->taken = true;
        const use now{*this, on};
        const auto until = soon();
        try {
            const detail::advisory_protocol::wanted one{each->key, each->mode};
            const nanoseconds sent = clock_.now();
            {
                const unlocked running{lock};
                if (protocol_->held(*on->db, on->session, {&one, 1}, until).front()) {
                    static_cast<void>(
                        protocol_->unlock(*on->db, on->session, each->key, each->mode, until));
                }
            }
            extend_trust(*on, sent);
            std::erase(owed_, each);
            finish(each);
        } catch (const error&) {
            // Retried on the next pass, unless the connection broke, which frees the lock too.
        }
    }
    std::erase_if(owed_, [](const tenure& each) { return each->over; });
}

/// Sleeps until `next`, a poke, or data on an unused connection. What a server sends unasked nearly
/// always announces a close; the check reads it.
void advisory_engine::listen(guard& lock, nanoseconds next) {
    std::vector<station> stations;
    std::vector<pollfd> sockets;
    for (const auto& each : stations_) {
        each->heard = each->heard && each->taken;
        // The thread that gives it back does not poke: that would cost a thread switch for each
        // statement.
        if (each->heard) next = std::min<nanoseconds>(next, clock_.now() + 20ms);
        if (each->socket < 0 || each->heard || !each->db) continue;
        stations.push_back(each);
        sockets.push_back({each->socket, POLLIN | POLLRDHUP, 0});
    }
    auto closed = std::exchange(closed_, {});
    {
        const unlocked sleeping{lock};
        closed.clear();
        alarm_->wait_until(next, sockets);
    }
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        if (sockets[i].revents == 0 || stations[i]->gone) continue;
        if (stations[i]->taken) {
            stations[i]->heard = true;  // an answer, most likely; checked again afterwards
        } else {
            stations[i]->next_check = clock_.now();
        }
    }
}

}  // namespace rowlock::detail

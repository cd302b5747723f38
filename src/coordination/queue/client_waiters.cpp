#include "coordination/queue/client_waiters.hpp"

#include "coordination/queue/wake.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {

std::shared_ptr<waiting_threads> client_waiters::threads() {
    const std::lock_guard lock{mutex_};
    if (closed_) throw client_destroyed();
    if (!threads_) threads_ = std::make_shared<waiting_threads>(parts_);
    return threads_;
}

std::shared_ptr<waiting_threads> client_waiters::made() const noexcept {
    const std::lock_guard lock{mutex_};
    return threads_;
}

void client_waiters::session_lost(session_id session, loss_reason why) noexcept {
    if (const auto at = made()) at->session_lost(session, why);
}

void client_waiters::session_ended(session_id session) noexcept {
    try {
        threads()->session_ended(session);
    } catch (...) {
        // No thread, or out of memory: waiters poll for themselves.
    }
}

void client_waiters::lease_freed(const std::string& name, bool reply_lost) noexcept {
    try {
        const auto at = threads();
        at->lease_freed(name);
        if (reply_lost) at->poll_soon();
    } catch (...) {
        // As above.
    }
}

void client_waiters::lease_freed_soon(const std::string& name) noexcept {
    try {
        threads()->lease_freed_soon(name);
    } catch (...) {
        // As above.
    }
}

void client_waiters::after_release(sql::connection& db, const std::string& name,
                                   const protocol::release_outcome& done,
                                   sql::deadline until) noexcept {
    if (done.unwaited) return;
    if (!done.next) return lease_freed(name);
    wake(parts_.context, parts_.sessions, db, *done.next, until);
    try {
        contended_.note(name);
        if (const auto at = made()) at->handed_over(*done.next);
    } catch (...) {
        // Out of memory: the waiter learns by its poll.
    }
}

void client_waiters::fail(const error& why, std::string_view name) {
    if (const auto at = made()) at->fail(why, name);
}

void client_waiters::poll_soon() noexcept {
    if (const auto at = made()) at->poll_soon();
}

bool client_waiters::listen_again() noexcept {
    const auto at = made();
    if (at) at->listen_again();
    return at != nullptr;
}

bool client_waiters::listens_for(session_id session) const noexcept {
    const auto at = made();
    return at && at->listens_for(session);
}

void client_waiters::while_unchanged(const std::function<void(bool)>& use) {
    const std::lock_guard lock{mutex_};
    use(threads_ != nullptr);
}

void client_waiters::begin_close() noexcept {
    std::shared_ptr<waiting_threads> at;
    {
        const std::lock_guard lock{mutex_};
        closed_ = true;
        at = threads_;
    }
    if (at) at->stop();
}

waiting_threads::leftovers client_waiters::finish_close() const noexcept {
    const auto at = made();
    return at ? at->close() : waiting_threads::leftovers{};
}

void client_waiters::hand_over_last(sql::connection& db, const std::vector<std::string>& names,
                                    const std::vector<session_id>& ended, sql::deadline until) {
    auto& [context, sessions, connections, grants, keeper, contended, self, clock] = parts_;
    auto waited_for = context.queues.names_with_waiters(db, names, until);
    for (const auto id : ended) {
        for (auto& name : context.queues.queues_of_session(db, id, until)) {
            waited_for.push_back(std::move(name));
        }
    }
    for (const auto& name : waited_for) {
        try {
            if (const auto next = context.queues.grant_next(db, name, until)) {
                wake(context, sessions, db, *next, until);
            }
        } catch (const error&) {
            if (!db.alive()) throw;  // else its row is locked, and its waiters poll
        }
    }
    for (const auto id : ended) {
        while (context.queues.delete_entries_of(db, id, until)) {
        }
    }
}

}  // namespace rowlock::detail

#include "coordination/queue/client_waiters.hpp"

#include "coordination/queue/wake.hpp"
#include "sql/out_of_reach.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {

using sql::unless_out_of_reach;

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

void client_waiters::permits_freed(const std::string& name, bool reply_lost) noexcept {
    try {
        const auto at = threads();
        at->permits_freed(name);
        if (reply_lost) at->poll_soon();
    } catch (...) {
        // As above.
    }
}

void client_waiters::after_release(sql::connection& db, protocol::hold_kind kind,
                                   const std::string& name, const protocol::release_outcome& done,
                                   sql::deadline until) noexcept {
    if (kind == protocol::hold_kind::permits) {
        try {
            if (contended_semaphores_.has(name)) return serve_permits(db, name, until);
        } catch (...) {
            // Its row is locked, the connection broke, or out of memory: the loop does it.
        }
        return permits_freed(name);
    }
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

void client_waiters::serve_permits(sql::connection& db, const std::string& name,
                                   sql::deadline until) {
    const auto at = made();
    for (bool more = true; more;) {
        const auto granted = parts_.context.semaphores.grant_next(db, name, until);
        more = granted.more;
        for (const auto& next : granted.served) {
            wake(parts_.context, parts_.sessions, db, next, until);
            if (at) at->handed_over(next);
        }
        if (!granted.served.empty()) contended_semaphores_.note(name);
    }
}

std::vector<waiters::permits_taken_back> client_waiters::take_back_permits(
    sql::connection& db, std::span<const std::string> names, sql::deadline until) {
    // The threads learn of them at the end: else they would take back the same permits at the same
    // time, and our sweep would pass over the rows that theirs has locked.
    struct ended_sessions {
        client_waiters& of;
        std::vector<session_id> ids{};
        ~ended_sessions() {
            for (const auto id : ids) of.session_ended(id);
        }
    } ended{*this};
    std::vector<permits_taken_back> all;
    for (const auto& name : names) all.push_back(take_back_permits(db, name, ended.ids, until));
    return all;
}

/// @param ended gets the sessions that it has ended
waiters::permits_taken_back client_waiters::take_back_permits(sql::connection& db,
                                                              const std::string& name,
                                                              std::vector<session_id>& ended,
                                                              sql::deadline until) {
    const auto& context = parts_.context;
    permits_taken_back done{.found = context.semaphores.holders_of(db, name, until)};
    if (!done.found.expired && !done.found.over) return done;
    if (done.found.expired) {
        for (const auto id : context.semaphores.expired_holders(db, name, until)) {
            ended.reserve(ended.size() + 1);  // so that one that has ended is not forgotten
            if (!context.leases.end_expired_session(db, id, until)) continue;
            ended.push_back(id);
            done.any = true;
        }
    }
    done.any = context.semaphores.sweep(db, name, until) > 0 || done.any;
    permits_freed(name);
    return done;
}

void client_waiters::fail(const error& why, protocol::hold_kind kind, std::string_view name) {
    if (const auto at = made()) at->fail(why, kind, name);
}

void client_waiters::poll_soon() noexcept {
    if (const auto at = made()) at->poll_soon();
}

bool client_waiters::listen_again() noexcept {
    const auto at = made();
    if (at) at->listen_again();
    return at != nullptr;
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

void client_waiters::hand_over_last(sql::connection& db, const waiting_threads::leftovers& rest,
                                    sql::deadline until) {
    hand_over_leases(db, rest, until);
    unless_out_of_reach([&] { hand_over_permits(db, rest, until); });
    for (const auto id : rest.sessions) {
        while (parts_.context.queues.delete_entries_of(db, id, until)) {
        }
    }
}

void client_waiters::hand_over_leases(sql::connection& db, const waiting_threads::leftovers& rest,
                                      sql::deadline until) const {
    const auto& context = parts_.context;
    auto waited_for = context.queues.names_with_waiters(db, rest.names, until);
    for (const auto id : rest.sessions) {
        for (auto& name : context.queues.queues_of_session(db, id, until)) {
            waited_for.push_back(std::move(name));
        }
    }
    for (const auto& name : waited_for) {
        try {
            if (const auto next = context.queues.grant_next(db, name, until)) {
                wake(context, parts_.sessions, db, *next, until);
            }
        } catch (const error&) {
            if (!db.alive()) throw;  // else its row is locked, and its waiters poll
        }
    }
}

void client_waiters::hand_over_permits(sql::connection& db, const waiting_threads::leftovers& rest,
                                       sql::deadline until) {
    const auto& semaphores = parts_.context.semaphores;
    auto names = rest.semaphores;
    for (const auto id : rest.sessions) {
        for (auto& name : semaphores.names_of(db, id, until)) names.push_back(std::move(name));
    }
    for (const auto& name : names) {
        try {
            semaphores.sweep(db, name, until);
            serve_permits(db, name, until);
        } catch (const error&) {
            if (!db.alive()) throw;  // as above
        }
    }
}

}  // namespace rowlock::detail

#include "lock/queue/client_waiters.hpp"

#include "lock/queue/wake.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {

std::shared_ptr<waiting_threads> client_waiters::threads() {
    const std::lock_guard lock{mutex_};
    if (closed_) throw client_destroyed();
    return make_locked();
}

const std::shared_ptr<waiting_threads>& client_waiters::make_locked() {
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

/// Tells the threads of work for the queues, and makes them if there are none. A client that closes
/// makes none: what its threads cannot do any more is done at the end.
template <typename Tell>
void client_waiters::tell(Tell what) noexcept {
    try {
        std::shared_ptr<waiting_threads> at;
        {
            const std::lock_guard lock{mutex_};
            at = closed_ ? threads_ : make_locked();
        }
        if (at) what(*at);
    } catch (...) {
        // No thread, or out of memory: waiters poll for themselves.
    }
}

void client_waiters::session_ended(session_id session) noexcept {
    tell([&](waiting_threads& at) { at.session_ended(session); });
}

void client_waiters::freed(const std::string& name) noexcept {
    tell([&](waiting_threads& at) { at.freed(name, false); });
}

void client_waiters::perhaps_freed(const std::string& name) noexcept {
    tell([&](waiting_threads& at) {
        at.freed(name, false);
        at.poll_soon();
    });
}

void client_waiters::freed_unwaited(const std::string& name) noexcept {
    tell([&](waiting_threads& at) {
        at.freed(name, parts_.context.queues.release_seeks_waiters());
    });
}

void client_waiters::freed_soon(const std::string& name) noexcept {
    tell([&](waiting_threads& at) { at.freed_soon(name); });
}

void client_waiters::after_release(sql::connection& db, const std::string& name,
                                   const protocol::release_outcome& done,
                                   sql::deadline until) noexcept {
    if (done.counted_waits || done.part) {
        const bool expects_waiter = done.counted_waits || contended_.has(name);
        try {
            if (expects_waiter) return serve(db, name, protocol::queue_head::counted, until);
        } catch (...) {
            // Its row is locked, the connection broke, or out of memory: the loop does it.
        }
        return freed(name);
    }
    if (done.unwaited) return;
    if (!done.next) return freed_unwaited(name);
    wake(parts_.context, parts_.sessions, db, *done.next, until);
    try {
        contended_.note(name);
        if (const auto at = made()) at->handed_over(*done.next);
    } catch (...) {
        // Out of memory: the waiter learns by its poll.
    }
}

void client_waiters::serve(sql::connection& db, const std::string& name,
                           protocol::queue_head expected, sql::deadline until) {
    const auto at = made();
    const auto ours = parts_.sessions.current();
    for (bool more = true; more;) {
        const auto served = parts_.context.queues.serve(db, name, expected, until);
        more = served.more;
        for (const auto& next : served.waiters) {
            wake(parts_.context, parts_.sessions, db, next, until);
            if (at) at->handed_over(next);
            // Not for our own waiter: it may have entered the queue because of such a note.
            if (!ours || next.session != ours->id()) contended_.note(name);
        }
    }
}

std::vector<waiters::taken_back> client_waiters::take_back(sql::connection& db,
                                                           std::span<const std::string> names,
                                                           sql::deadline until) {
    // The threads learn of them at the end: else they would take back the same holds at the same
    // time, and our sweep would pass over the rows that theirs has locked.
    struct ended_sessions {
        client_waiters& of;
        std::vector<session_id> ids{};
        ~ended_sessions() {
            for (const auto id : ids) of.session_ended(id);
        }
    } ended{*this};
    std::vector<taken_back> all;
    for (const auto& name : names) all.push_back(take_back(db, name, ended.ids, until));
    return all;
}

/// @param ended gets the sessions that it has ended
waiters::taken_back client_waiters::take_back(sql::connection& db, const std::string& name,
                                              std::vector<session_id>& ended, sql::deadline until) {
    const auto& context = parts_.context;
    taken_back done{.found = context.semaphores.holders_of(db, name, until)};
    if (!done.found.can_be_taken_back()) return done;
    const auto end = [&](session_id id) {
        ended.reserve(ended.size() + 1);  // so that one that has ended is not forgotten
        if (!context.sessions.end_expired(db, id, until)) return false;
        ended.push_back(id);
        return done.any = true;
    };
    if (const auto& sole = done.found.sole) {
        if (sole->gone || (sole->expired && end(sole->session))) {
            context.queues.clear_sole(db, name, sole->token, sole->session, until);
            done.any = true;
        }
    }
    if (done.found.expired) {
        for (const auto id : context.semaphores.expired_holders(db, name, until)) end(id);
    }
    if (done.found.expired || done.found.over) {
        done.any = context.semaphores.sweep(db, name, until) > 0 || done.any;
    }
    freed(name);
    return done;
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
    using protocol::queue_head;
    const auto& context = parts_.context;
    std::vector<protocol::queue_of_session> queues;
    for (auto& name : context.queues.names_with_waiters(db, rest.names, until)) {
        queues.push_back({std::move(name), false});
    }
    for (const auto& name : rest.queues) queues.push_back({name, true});
    for (const auto id : rest.sessions) {
        for (auto& each : context.queues.queues_of_session(db, id, until)) {
            queues.push_back(std::move(each));
        }
    }
    for (const auto& [name, counted] : queues) {
        try {
            if (counted) context.semaphores.sweep(db, name, until);
            serve(db, name, counted ? queue_head::counted : queue_head::sole, until);
        } catch (const error&) {
            if (!db.alive()) throw;  // else its row is locked, and its waiters poll
        }
    }
    for (const auto id : rest.sessions) {
        while (context.queues.delete_entries_of(db, id, until)) {
        }
    }
}

}  // namespace rowlock::detail

#include "coordination/queue/client_waiters.hpp"

#include "coordination/queue/wake.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {

std::shared_ptr<waiting_room> client_waiters::room() {
    const std::lock_guard lock{mutex_};
    if (closed_) throw client_destroyed();
    if (!room_) room_ = std::make_shared<waiting_room>(room_parts_);
    return room_;
}

std::shared_ptr<waiting_room> client_waiters::open_room() const noexcept {
    const std::lock_guard lock{mutex_};
    return room_;
}

void client_waiters::session_lost(std::int64_t session, loss_reason why) noexcept {
    if (const auto at = open_room()) at->session_lost(session, why);
}

void client_waiters::session_ended(std::int64_t session) noexcept {
    try {
        room()->session_ended(session);
    } catch (...) {
        // No thread, or out of memory: waiters poll for themselves.
    }
}

void client_waiters::lease_freed(const std::string& name, bool reply_lost) noexcept {
    try {
        const auto at = room();
        at->look(name);
        if (reply_lost) at->look_at_all();
    } catch (...) {
        // As above.
    }
}

void client_waiters::lease_freed_soon(const std::string& name) noexcept {
    try {
        room()->look_for_a_while(name);
    } catch (...) {
        // As above.
    }
}

void client_waiters::after_release(sql::connection& db, const std::string& name,
                                   const strategy::release_outcome& done,
                                   sql::deadline until) noexcept {
    if (done.unwaited) return;
    if (!done.next) return lease_freed(name);
    wake(room_parts_.context, room_parts_.sessions, db, *done.next, until);
    try {
        contended_.note(name);
        if (const auto at = open_room()) at->handed_over(*done.next);
    } catch (...) {
        // Out of memory: the waiter learns by its poll.
    }
}

void client_waiters::fail(const error& why, std::string_view name) {
    if (const auto at = open_room()) at->fail(why, name);
}

void client_waiters::poll_soon() noexcept {
    if (const auto at = open_room()) at->look_at_all();
}

bool client_waiters::listen_again() noexcept {
    const auto at = open_room();
    if (at) at->listen_again();
    return at != nullptr;
}

bool client_waiters::listens_for(std::int64_t session) const noexcept {
    const auto at = open_room();
    return at && at->listens_for(session);
}

void client_waiters::while_unchanged(const std::function<void(bool)>& use) {
    const std::lock_guard lock{mutex_};
    use(room_ != nullptr);
}

void client_waiters::begin_close() noexcept {
    std::shared_ptr<waiting_room> at;
    {
        const std::lock_guard lock{mutex_};
        closed_ = true;
        at = room_;
    }
    if (at) at->stop();
}

waiting_room::leftovers client_waiters::finish_close() const noexcept {
    const auto at = open_room();
    return at ? at->close() : waiting_room::leftovers{};
}

void client_waiters::hand_over_last(sql::connection& db, const std::vector<std::string>& names,
                                    const std::vector<std::int64_t>& ended, sql::deadline until) {
    const auto& [context, sessions, connections, grants, keeper, contended, self] = room_parts_;
    auto waited_for = context.queues.names_with_waiters(db, names, until);
    for (const auto id : ended) {
        for (auto& name : context.queues.queues_of_session(db, id, until)) {
            waited_for.push_back(std::move(name));
        }
    }
    for (const auto& name : waited_for) {
        if (const auto next = context.queues.grant_next(db, name, until)) {
            wake(context, sessions, db, *next, until);
        }
    }
}

}  // namespace rowlock::detail

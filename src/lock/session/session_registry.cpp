#include "lock/session/session_registry.hpp"

#include "base/identity.hpp"
#include "sql/connection_memory.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>

#include <unistd.h>

#include <utility>

namespace rowlock::detail {

session_registry::session_registry(client_context& context, hooks use)
    : context_{context},
      hooks_{std::move(use)},
      lost_{context.options.margin, context.options.ttl} {}

std::shared_ptr<session> session_registry::current() const {
    const std::lock_guard lock{mutex_};
    return current_;
}

std::shared_ptr<session> session_registry::current(session_id id) const {
    auto ours = current();
    return ours && ours->id() == id ? ours : nullptr;
}

std::shared_ptr<session> session_registry::ensure(sql::connection& db, sql::deadline until) {
    for (;;) {
        std::unique_lock lock{mutex_};
        if (!opened_.wait_until(lock, until, [this] { return !opening_ || closed_; })) {
            throw error{errc::timed_out, "another thread is still opening the session"};
        }
        if (closed_) throw client_destroyed();
        if (auto ours = current_) {
            lock.unlock();
            if (ours->trust()->open(context_.now())) return ours;
            lose(*ours, loss_reason::trust_window_passed);
            continue;
        }
        opening_ = true;
        break;
    }
    struct opening_done {
        session_registry& self;
        ~opening_done() {
            const std::lock_guard lock{self.mutex_};
            self.opening_ = false;
            self.opened_.notify_all();
        }
    } const done{*this};
    return open(db, until);
}

std::shared_ptr<session> session_registry::open(sql::connection& db, sql::deadline until) {
    const auto& options = context_.options;
    if (!schema_checked_) {
        require_current_schema(db, context_.source.tables(), until);
        schema_checked_ = true;
    }
    auto endpoint = make_endpoint();
    const protocol::session_row row{.id = session_id{base::random_id()},
                                    .owner = options.owner,
                                    .host = base::host_name(),
                                    .program = options.program,
                                    .pid = getpid(),
                                    .ttl = options.ttl,
                                    .wake = endpoint.address};
    const nanoseconds sent = context_.now();
    auto server = context_.sessions.open(db, row, until);
    context_.link.note_round_trip(context_.now() - sent);
    auto opened = std::make_shared<session>(row.id, std::move(server), std::move(endpoint),
                                            sent + options.ttl - options.margin, sent);
    hooks_.before_opened();
    adopt(opened);
    hooks_.on_opened();
    context_.count(counter::sessions);
    context_.report({.kind = event_kind::session_opened, .session = row.id});
    return opened;
}

void session_registry::adopt(std::shared_ptr<session> opened) {
    const std::lock_guard lock{mutex_};
    // Nothing depends on that session; it expires.
    if (closed_) throw client_destroyed();
    current_ = std::move(opened);
    // With the mutex held: no thread acquires in a session that nothing keeps alive.
    hooks_.on_current();
}

/// The mailbox exists before any client can read its name, so none can have taken the name. Without
/// a mailbox the session row says so, and the database notifies us.
session::endpoint session_registry::make_endpoint() const {
    session::endpoint made{.address = wakeup::random_wake_address()};
    const bool wanted = context_.options.wake_ups == wakeup_mode::automatic;
    if (!wanted || !wakeup::network_namespace()) return made;
    try {
        made.mailbox = std::make_unique<wakeup::mailbox>(made.address.number);
        made.address.mailbox = wakeup::network_namespace();
    } catch (const error&) {
        // Out of descriptors.
    }
    return made;
}

void session_registry::lose(session& ours, loss_reason why) noexcept {
    {
        const std::lock_guard lock{mutex_};
        // With the mutex held: another thread that sees it closed comes later, and says nothing.
        ours.trust()->close();
        if (!current_ || current_->id() != ours.id()) return;  // another thread was faster
        try {
            if (why == loss_reason::trust_window_passed || why == loss_reason::server_changed) {
                lost_.add(current_);
            }
        } catch (...) {
            // No memory: the session expires.
        }
        current_.reset();
    }
    if (why == loss_reason::server_changed) hooks_.on_server_changed();
    context_.report({.kind = event_kind::session_ended, .reason = why, .session = ours.id()});
    ours.grants().for_each_held([&](grant& each) { context_.lose_with_offers(each, why); });
    hooks_.on_lost(ours.id(), why);
    lost_.begin_margin(ours.id(), context_.now());
    hooks_.on_due();
}

void session_registry::require_same_server(sql::connection& db, sql::deadline until) {
    const auto ours = current();
    if (!ours || ours->server().empty()) return;
    const auto server = context_.sessions.server_of(db, until);
    if (!server) throw protocol::leads_to_standby();
    if (!ours->lives_elsewhere(server)) return;
    lose(*ours, loss_reason::server_changed);
    throw error{errc::database_unreachable,
                "another server answers than before, such as a standby that was promoted: all "
                "leases are lost; try again"};
}

bool session_registry::leads_elsewhere(sql::connection& db) const {
    const auto ours = current();
    return ours && ours->lives_elsewhere(sql::memory_of(db).server);
}

loss_reason session_registry::why_over(const session& ours, sql::connection& db,
                                       sql::deadline until) const noexcept {
    try {
        if (!ours.server().empty() &&
            ours.lives_elsewhere(context_.sessions.server_of_again(db, until))) {
            return loss_reason::server_changed;
        }
    } catch (const std::exception&) {
        // The session is over, whatever the reason.
    }
    return loss_reason::session_ended;
}

loss_reason session_registry::why_over(const session& ours,
                                       client_connections& connections) const noexcept {
    if (ours.server().empty()) return loss_reason::session_ended;
    try {
        const auto until = context_.statement_deadline();
        const auto db = connections.take_spare(until);  // a fence may call this
        return why_over(ours, *db, until);
    } catch (const std::exception&) {
        return loss_reason::session_ended;
    }
}

void session_registry::close() noexcept {
    {
        const std::lock_guard lock{mutex_};
        closed_ = true;
    }
    lost_.end_all();
    opened_.notify_all();
}

void session_registry::clear() noexcept {
    const std::lock_guard lock{mutex_};
    current_.reset();
}

}  // namespace rowlock::detail

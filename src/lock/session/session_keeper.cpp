#include "lock/session/session_keeper.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <system_error>
#include <utility>

namespace rowlock::detail {

using base::alarm;
using base::worker;

session_keeper::session_keeper(client_context& context, session_registry& sessions,
                               client_connections& connections, grant_lifecycle& grants,
                               reconciler& reconcile, waiters& waiting, heartbeat::chore also,
                               std::function<nanoseconds()> reaper)
    : context_{context},
      sessions_{sessions},
      grants_{grants},
      reconciler_{reconcile},
      waiting_{waiting},
      reap_{std::move(reaper)},
      listening_{
          {.connect = [&connections](sql::deadline until) { return connections.make(until); },
           .source = context.source,
           .now = [&context] { return context.now(); },
           .statement_timeout = context.options.statement_timeout,
           .on_listening = [this] { began_to_listen(); },
           .on_broken = [&connections] { connections.broke(); }}},
      heartbeat_{context, sessions, connections, reconcile, waiting, listening_, std::move(also)},
      late_{context, sessions, connections, reconcile, heartbeat_, [this] { poke(); }} {}

/// The threads are created without the mutex, which their first steps take; only one thread at a
/// time opens a session.
void session_keeper::start() {
    if (is_started()) return;  // it throws once the client is closed
    threads made;
    try {
        made.heartbeat = std::make_unique<worker>(
            context_.clock, [this] { return heartbeat_.step(); }, heartbeat_.listener());
        made.watchdog = std::make_unique<worker>(context_.clock, [this] { return watch(); });
        if (reap_) made.reaper = std::make_unique<worker>(context_.clock, reap_);
    } catch (const error&) {
        throw;
    } catch (const std::system_error&) {
        throw error{errc::out_of_resources,
                    "no thread could be started for the heartbeat: raise the limit (ulimit -u)"};
    }
    const std::lock_guard lock{mutex_};
    if (stopped_) throw client_destroyed();
    threads_ = std::move(made);
}

bool session_keeper::is_started() const {
    const std::lock_guard lock{mutex_};
    if (stopped_) throw client_destroyed();
    return threads_.heartbeat != nullptr;
}

void session_keeper::look_at_session() noexcept {
    const std::lock_guard lock{mutex_};
    for (const auto* each : {&threads_.heartbeat, &threads_.second_heartbeat, &threads_.watchdog}) {
        if (*each) (*each)->poke();
    }
}

void session_keeper::poke() const noexcept {
    const std::lock_guard lock{mutex_};
    if (threads_.heartbeat) threads_.heartbeat->poke();
}

void session_keeper::poke_watchdog() const noexcept {
    const std::lock_guard lock{mutex_};
    if (threads_.watchdog) threads_.watchdog->poke();
}

void session_keeper::turn_passed() noexcept {
    heartbeat_.turn_passed();
    const std::lock_guard lock{mutex_};
    if (threads_.heartbeat) threads_.heartbeat->poke_listener();
}

/// What was sent before the client listened was missed: the waiters' thread polls. It may listen on
/// a connection that replaced a shared one, so holders look, too.
void session_keeper::began_to_listen() noexcept {
    if (!waiting_.listen_again()) return turn_passed();
    const auto ours = sessions_.current();
    if (context_.shares_connection() && ours && ours->grants().leases() > 0) reconcile_now();
}

void session_keeper::reconcile_now() noexcept {
    reconciler_.want();
    poke();
}

void session_keeper::beat_if_late(session& ours, sql::connection& db, sql::deadline until) {
    if (!context_.traits().has_server) return;
    if (context_.now() < heartbeat_.late_at(ours)) return;
    static_cast<void>(heartbeat_.send(ours, db, until));
}

/// One step of the watchdog: no network, no waiting.
nanoseconds session_keeper::watch() noexcept {
    const nanoseconds now = context_.now();
    nanoseconds next = alarm::never;
    if (const auto ours = sessions_.current()) {
        if (ours->trust()->open(now)) {
            next = std::min(ours->trust()->until(), start_second_heartbeat(*ours, now));
        } else {
            sessions_.lose(*ours, loss_reason::trust_window_passed);
        }
    }
    return std::min(next, watch_deadlines(now));
}

nanoseconds session_keeper::watch_deadlines(nanoseconds now) {
    for (;;) {
        const auto [passed, again, next] = grants_.deadlines().next(now);
        if (!passed) return next;
        context_.lose_with_offers(*passed, why_deadline_passed(*passed));
        const bool by_deadline =
            passed->now == grant::state::lost && (passed->reason == loss_reason::deadline_passed ||
                                                  passed->reason == loss_reason::release_requested);
        if (by_deadline && (again || passed->stopped)) grants_.clear_row(*passed);
    }
}

/// Returns when to call it again. SQLite has no link: a second connection would wait for the file
/// behind the first.
nanoseconds session_keeper::start_second_heartbeat(const session& ours, nanoseconds now) noexcept {
    if (!context_.traits().has_server) return alarm::never;
    {
        const std::lock_guard lock{mutex_};
        if (threads_.second_heartbeat || stopped_) return alarm::never;
    }
    const nanoseconds late = heartbeat_.late_at(ours);
    if (now < late) return late;
    try {
        auto made = std::make_unique<worker>(context_.clock, [this] { return late_.step(); });
        const std::lock_guard lock{mutex_};
        if (!stopped_) threads_.second_heartbeat = std::move(made);
        return alarm::never;
    } catch (const std::exception&) {
        return now + context_.options.heartbeat / 4;  // no thread available now
    }
}

/// No heartbeat may be in flight when the session ends. Each step of a thread is bounded by a
/// statement deadline.
void session_keeper::begin_stop() noexcept {
    {
        const std::lock_guard lock{mutex_};
        stopped_ = true;
        stopping_ = std::exchange(threads_, {});
    }
    for (const auto* each : {&stopping_.heartbeat, &stopping_.second_heartbeat, &stopping_.watchdog,
                             &stopping_.reaper}) {
        if (*each) (*each)->stop();
    }
}

void session_keeper::finish_stop() noexcept {
    stopping_.heartbeat.reset();
    stopping_.watchdog.reset();
    stopping_.second_heartbeat.reset();
    listening_.close();
}

void session_keeper::join_reaper() noexcept {
    stopping_.reaper.reset();
}

}  // namespace rowlock::detail

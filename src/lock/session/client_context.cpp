#include "lock/session/client_context.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace rowlock::detail {

using namespace std::chrono_literals;

client_context::client_context(sql::connection_source database, client_options wanted)
    : options{std::move(wanted)},
      source{std::move(database)},
      clock{options.time},
      statements{source.speaks(),
                 {.tables = source.tables(),
                  .testing_clock =
                      options.time != nullptr && sql::traits_of(source.speaks()).testable_clock}},
      lease_protocol_{protocol::make_lease_protocol(statements)},
      queue_protocol_{protocol::make_queue_protocol(statements, *lease_protocol_,
                                                    options.wake_ups == wakeup_mode::automatic)},
      multi_protocol_{protocol::make_multi_protocol(statements)},
      semaphore_protocol_{protocol::make_semaphore_protocol(statements)},
      sessions{lease_protocol_->sessions()},
      leases{*lease_protocol_},
      queues{*queue_protocol_},
      several{*multi_protocol_},
      semaphores{*semaphore_protocol_},
      holds{leases, queues, semaphores},
      link{{options.ttl, options.margin, options.heartbeat}},
      measured{options.metric_class},
      events_{options.on_event} {}

nanoseconds client_context::statement_bound() const {
    return std::max<nanoseconds>(2 * options.statement_timeout, 30s) + 1s;
}

void client_context::report(event_kind kind, const grant& about, std::string_view message,
                            std::chrono::microseconds waited) noexcept {
    report([&] {
        const bool lost = kind == event_kind::lease_lost;
        return event{.kind = kind,
                     .name = about.name,
                     .token = about.token,
                     .reason = lost ? about.reason.load() : loss_reason::none,
                     .session = about.session_id,
                     .waited = waited,
                     .message = std::string{message}};
    });
}

void client_context::notify_holder(sql::connection& db, session_id session,
                                   sql::deadline until) const noexcept {
    if (options.wake_ups == wakeup_mode::polling) return;
    queues.notify_session(db, session, until);
}

void client_context::pass_on(grant& held, const release_request& request) noexcept {
    try {
        const std::lock_guard lock{held.mutex};
        held.request = request;
    } catch (...) {
        // No memory for the text.
    }
    if (held.requested.exchange(true)) return;
    signals_.deliver(held.request_signal);
    report([&] {
        event asked{.kind = event_kind::release_requested,
                    .name = held.name,
                    .token = held.token,
                    .session = held.session_id,
                    .message = request.asked_by};
        if (!request.reason.empty()) asked.message += ": " + request.reason;
        return asked;
    });
}

void client_context::measure_end(const grant& over) noexcept {
    if (over.unclaimed) return;
    if (over.measured != nullptr) over.measured->held(now() - over.made_at);
}

bool client_context::taken_over(grant& offered) noexcept {
    auto expected = grant::state::offered;
    if (offered.now == expected) offered.taken_over = true;
    if (!offered.now.compare_exchange_strong(expected, grant::state::released)) return false;
    count(counter::released);
    measure_end(offered);
    if (offered.watched) signals_.deliver(offered.lost_signal);
    report(event_kind::lease_released, offered, "another client has taken it over");
    return true;
}

bool client_context::lose(grant& lost, loss_reason why, grant::state from) noexcept {
    // The reason first: a thread that sees the state reads it. The first reason stays.
    auto none = loss_reason::none;
    if (lost.now == from) lost.reason.compare_exchange_strong(none, why);
    if (!lost.now.compare_exchange_strong(from, grant::state::lost)) return false;
    if (lost.unclaimed) return true;  // no thread held it
    measure_end(lost);                // before the loss: one that is counted has been measured
    if (lost.measured != nullptr) lost.measured->lost(lost.reason);
    if (lost.watched) signals_.deliver(lost.lost_signal);
    report(event_kind::lease_lost, lost);
    return true;
}

}  // namespace rowlock::detail

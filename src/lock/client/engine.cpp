#include "lock/client/engine.hpp"

#include "base/identity.hpp"
#include "base/server_words.hpp"
#include "lock/client/reap_round.hpp"
#include "lock/client/validation.hpp"
#include "metrics/table.hpp"
#include "sql/brief_wait.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace rowlock::detail {
namespace {

client_options with_owner(client_options options) {
    if (options.owner.empty()) {
        options.owner = std::string{random_owner} + std::to_string(base::random_id());
    }
    return options;
}

}  // namespace

std::shared_ptr<engine> engine::make(sql::connection_source source, client_options options) {
    auto made = std::make_shared<engine>(std::move(source), std::move(options));
    made->context_.owner = made;
    return made;
}

engine::engine(sql::connection_source source, client_options options)
    : context_{std::move(source), with_owner(validated(std::move(options)))},
      connections_{context_, connection_hooks()},
      sessions_{context_, session_hooks()},
      retries_{context_, connections_},
      grants_{context_, sessions_, grant_hooks()},
      reconciler_{context_, grants_, waiting_},
      keeper_{context_,
              sessions_,
              connections_,
              grants_,
              reconciler_,
              waiting_,
              {.due = [this] { return parts_due(); },
               .run = [this](sql::connection& db,
                             sql::deadline until) { work_of_parts(db, until, false); }},
              reaper()},
      waiting_{context_, sessions_, connections_, grants_, keeper_},
      batches_{context_, connections_, waiting_},
      acquirer_{parts_of_calls()},
      releaser_{parts_of_calls()},
      adopter_{context_, sessions_, retries_, grants_},
      reclaimer_{{.context = context_,
                  .sessions = sessions_,
                  .retries = retries_,
                  .grants = grants_,
                  .reconcile = reconciler_,
                  .waiting = waiting_}},
      admin_{context_, retries_, waiting_},
      semaphores_{context_, retries_, waiting_},
      policies_{context_, retries_},
      transactions_{{.context = context_,
                     .connections = connections_,
                     .sessions = sessions_,
                     .keeper = keeper_,
                     .grants = grants_,
                     .waiting = waiting_}} {}

call_parts engine::parts_of_calls() noexcept {
    return {.context = context_,
            .connections = connections_,
            .sessions = sessions_,
            .keeper = keeper_,
            .retries = retries_,
            .grants = grants_,
            .batches = batches_,
            .waiting = waiting_,
            .tokens = tokens_};
}

client_connections::hooks engine::connection_hooks() {
    return {
        .on_connected = [this](sql::connection& db,
                               sql::deadline until) { sessions_.require_same_server(db, until); },
        .on_broken = [this] { keeper_.reconcile_now(); },
        .on_shared_turn =
            [this] {
                if (!waiting_.listen_again()) keeper_.turn_passed();
            }};
}

session_registry::hooks engine::session_hooks() {
    return {.before_opened = [this] { keeper_.start(); },
            .on_current = [this] { keeper_.look_at_session(); },
            .on_opened = [this] { waiting_.listen_again(); },
            .on_lost = [this](session_id id, loss_reason why) { waiting_.session_lost(id, why); },
            .on_server_changed =
                [this] {
                    tokens_.forget_all();
                    connections_.renew();
                },
            .on_due = [this] { keeper_.poke(); }};
}

grant_lifecycle::hooks engine::grant_hooks() {
    return {.on_work = [this] { keeper_.poke(); },
            .on_doubt = [this] { reconciler_.want(); },
            .on_deadline = [this] { keeper_.poke_watchdog(); }};
}

std::function<nanoseconds()> engine::reaper() {
    if (!context_.options.reaper) return {};
    return [this] { return reap(); };
}

nanoseconds engine::reap() noexcept {
    const auto& options = *context_.options.reaper;
    try {
        event done{.kind = event_kind::reaped};
        try {
            const auto db = connections_.make(context_.statement_deadline());
            try {
                done.message = to_string(
                    detail::reap_round(*db, context_.statements, options, reaping_.get_token()));
            } catch (...) {
                if (!db->alive()) connections_.broke();
                throw;
            }
        } catch (const std::exception& failure) {
            done.message =
                "the round failed and will be repeated: " + base::with_server_words(failure);
        }
        context_.report(std::move(done));
    } catch (...) {
        // No memory for the message.
    }
    return context_.now() + options.interval;
}

client_stats engine::stats() const {
    context_.fork.require_same_process();
    client_stats all{.lost = context_.measured.losses()};
    for (const auto& each : metrics::client_numbers) {
        if (each.from) all.*each.member = context_.counted(*each.from);
    }
    all.connections = connections_.open() + (keeper_.beats().is_connected() ? 1u : 0u) +
                      (keeper_.listening().is_connected() ? 1u : 0u);
    if (const auto threads = waiting_.made()) {
        all.waiting = threads->waiting();
        all.connections += threads->connections();
    }
    if (context_.shares_connection()) all.connections = connections_.shared_is_open() ? 1u : 0u;
    if (const auto ours = sessions_.current()) {
        all.held = ours->grants().leases();
        all.unresolved = ours->grants().unresolved_due(context_.now());
    }
    return all;
}

nanoseconds engine::parts_due() const {
    const std::lock_guard lock{parts_mutex_};
    auto first = base::alarm::never;
    for (const auto& [type, each] : parts_) first = std::min<nanoseconds>(first, each->due());
    return first;
}

void engine::work_of_parts(sql::connection& db, sql::deadline until, bool at_once) {
    std::vector<engine_part*> all;
    {
        const std::lock_guard lock{parts_mutex_};
        for (const auto& [type, each] : parts_) {
            if (each->due() != base::alarm::never) all.push_back(each.get());
        }
    }
    for (auto* const each : all) each->work(db, until, at_once);
}

void engine::close() noexcept {
    sessions_.close();
    reaping_.request_stop();
    keeper_.begin_stop();
    retries_.close();
    waiting_.begin_close();
    keeper_.finish_stop();
    const auto until = context_.statement_deadline();
    auto rest = waiting_.finish_close();
    end_sessions(rest, until);
    sessions_.clear();
    hand_over_last(rest, until);
    keeper_.beats().drop_connection();
    keeper_.join_reaper();  // no lease depends on its last statement
}

void engine::end_sessions(waiting_threads::leftovers& rest, sql::deadline until) noexcept {
    auto& beats = keeper_.beats();
    beats.adopt_idle_connection();
    try {
        if (parts_due() != base::alarm::never) {
            auto& db = beats.connection(until);
            sql::set_short_lock_timeout(db, until);
            work_of_parts(db, until, true);
        }
        if (const auto ours = sessions_.current()) {
            if (end_own_session(*ours, rest, until)) rest.sessions.push_back(ours->id());
        }
        for (const auto id : beats.end_lost_sessions(until)) rest.sessions.push_back(id);
    } catch (...) {
        // Database out of reach, or out of memory: the sessions expire, and waiters poll.
    }
}

/// Returns true if another client may have waited for our leases. Of `rest.names`, which were
/// released lately, keeps those with a waiter, or all if that is unknown.
bool engine::end_own_session(session& ours, waiting_threads::leftovers& rest, sql::deadline until) {
    ours.trust()->close();
    ours.grants().for_each_held(
        [&](grant& each) { context_.lose_with_offers(each, loss_reason::client_closed); });
    event done{.kind = event_kind::session_ended,
               .reason = loss_reason::client_closed,
               .session = ours.id()};
    // The row can be deleted if nothing names it. A held lease does; a queue entry or an unresolved
    // grant may.
    const bool alone = ours.grants().held_count() == 0 && !rest.has_entries &&
                       ours.grants().unresolved_count() == 0;
    try {
        auto& db = keeper_.beats().connection(until);
        if (alone) {
            rest.names = context_.queues.leave(db, ours.id(), rest.names, until);
        } else {
            context_.sessions.end(db, ours.id(), until);
        }
    } catch (const std::exception& failure) {
        done.message =
            "the session could not be ended; it expires: " + base::with_server_words(failure);
    }
    context_.report(std::move(done));
    return !alone;
}

void engine::hand_over_last(const waiting_threads::leftovers& rest, sql::deadline until) noexcept {
    if (rest.names.empty() && rest.queues.empty() && rest.sessions.empty()) return;
    try {
        waiting_.hand_over_last(keeper_.beats().connection(until), rest, until);
    } catch (...) {
        // Database out of reach: waiters poll for themselves.
    }
}

void engine::abandon(std::shared_ptr<engine> inherited) noexcept {
    // Its threads do not exist here and its sockets are the parent's: nothing may be joined, closed
    // or sent. Its memory is leaked.
    static_cast<void>(new std::shared_ptr<engine>{std::move(inherited)});
}

}  // namespace rowlock::detail

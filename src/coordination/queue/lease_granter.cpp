#include "coordination/queue/lease_granter.hpp"

#include "coordination/queue/wake.hpp"
#include "sql/out_of_reach.hpp"

namespace rowlock::detail {

using sql::unless_out_of_reach;

void lease_granter::find_queues_of_ended_sessions() {
    while (const auto ended = parts_.tasks.next_ended_session()) {
        const auto names = parts_.queues().queues_of_session(*link_, *ended, link_.soon());
        for (const auto& name : names) parts_.tasks.serve_next(name, parts_.now());
        parts_.tasks.session_done(*ended);
    }
}

void lease_granter::take_back_permits_of_ended_sessions() {
    while (const auto ended = parts_.tasks.next_session_with_permits()) {
        unless_out_of_reach([&] { take_back_permits(*ended); });
        parts_.tasks.permits_taken_back(*ended);
    }
}

void lease_granter::take_back_permits(session_id ended) {
    const auto& semaphores = parts_.context.semaphores;
    for (const auto& name : semaphores.names_of(*link_, ended, link_.soon())) {
        try {
            semaphores.sweep(*link_, name, link_.write_deadline());
            link_.wrote();
        } catch (const error&) {
            link_.wrote_too_slowly();
            if (!link_.get()->alive())
                throw;  // else a row is locked: waiters find it by their polls
        }
        parts_.tasks.serve_permits_now(name, parts_.now());
    }
}

void lease_granter::check_for_waiters() {
    const auto checks = parts_.tasks.take_checks(parts_.now());
    if (checks.empty()) return;
    try {
        std::vector<std::string> names;
        for (const auto& [name, when] : checks) names.push_back(name);
        // A check counts after the commit of the release; this one may only have been sent.
        if (!parts_.connections.drain_pipelined(nullptr, link_.soon())) {
            throw error{errc::timed_out, "a release that was sent has not been answered yet"};
        }
        const auto waited_for = parts_.queues().names_with_waiters(*link_, names, link_.soon());
        for (const auto& name : waited_for) {
            parts_.contended.note(name);
            parts_.tasks.serve_next(name, parts_.now());
        }
        parts_.tasks.checked(checks, !waited_for.empty(), parts_.now());
    } catch (...) {
        parts_.tasks.retry_checks(checks);
        throw;
    }
}

void lease_granter::serve_due(const std::function<void()>& between,
                              const std::atomic<bool>& stopping) {
    serve_all(
        parts_.tasks.take_names_to_serve(parts_.now()), between, stopping,
        [&](const std::string& name, sql::deadline until) { serve_next(name, until); },
        [&](const std::string& name, const task& when) { parts_.tasks.retry_serving(name, when); });
}

void lease_granter::serve_permits_due(const std::function<void()>& between,
                                      const std::atomic<bool>& stopping) {
    serve_all(
        parts_.tasks.take_semaphores_to_serve(parts_.now()), between, stopping,
        [&](const std::string& name, sql::deadline until) {
            parts_.owner.serve_permits(*link_, name, until);
        },
        [&](const std::string& name, const task& when) {
            parts_.tasks.retry_serving_permits(name, when);
        });
}

template <typename Serve, typename Retry>
void lease_granter::serve_all(waiter_tasks::due_names names, const std::function<void()>& between,
                              const std::atomic<bool>& stopping, Serve serve, Retry retry) {
    while (!names.empty()) {
        if (stopping) {  // the client hands them over as it closes
            for (const auto& [rest, its] : names) retry(rest, its);
            return;
        }
        const auto name = names.back().first;
        auto& when = names.back().second;
        try {
            // If the row is locked, the loop neither waits there nor forgets the name.
            if (!link_.write([&](sql::deadline until) { serve(name, until); })) {
                when = when.postponed(parts_.now());
                retry(name, when);
            }
        } catch (...) {
            when = when.postponed(parts_.now());
            for (const auto& [rest, its] : names) retry(rest, its);
            throw;
        }
        names.pop_back();
        between();
    }
}

void lease_granter::serve_next(const std::string& name, sql::deadline until) {
    const auto next = parts_.queues().grant_next(*link_, name, until);
    if (!next) return;
    verifier_.handed_over(*next);
    wake(parts_.context, parts_.sessions, *link_, *next, link_.soon());
}

}  // namespace rowlock::detail

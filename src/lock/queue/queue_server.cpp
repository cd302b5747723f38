#include "lock/queue/queue_server.hpp"

namespace rowlock::detail {

using protocol::queue_head;

void queue_server::find_queues_of_ended_sessions() {
    while (const auto ended = parts_.tasks.next_ended_session()) {
        for (const auto& each : parts_.queues().queues_of_session(*link_, *ended, link_.soon())) {
            if (each.has_holds) sweep(each.name);
            parts_.tasks.serve(each.name, parts_.now(),
                               each.has_holds ? queue_head::counted : queue_head::sole);
        }
        parts_.tasks.session_done(*ended);
    }
}

void queue_server::sweep(const std::string& name) {
    try {
        parts_.context.semaphores.sweep(*link_, name, link_.write_deadline());
        link_.wrote();
    } catch (const error&) {
        link_.wrote_too_slowly();
        if (!link_.get()->alive()) throw;  // else a row is locked: waiters find it by their polls
    }
}

void queue_server::check_for_waiters() {
    const auto checks = parts_.tasks.take_checks(parts_.now());
    if (checks.empty()) return;
    try {
        std::vector<std::string> names;
        for (const auto& [name, when] : checks) names.push_back(name);
        const auto waited_for = parts_.queues().names_with_waiters(*link_, names, link_.soon());
        for (const auto& name : waited_for) {
            parts_.contended.note(name);
            parts_.tasks.serve(name, parts_.now());
        }
        parts_.tasks.checked(checks, !waited_for.empty(), parts_.now());
    } catch (...) {
        parts_.tasks.retry_checks(checks);
        throw;
    }
}

void queue_server::serve_due(const std::function<void()>& between,
                             const std::atomic<bool>& stopping) {
    auto names = parts_.tasks.take_names_to_serve(parts_.now());
    while (!names.empty()) {
        if (stopping) {  // the client serves them as it closes
            for (const auto& [rest, its] : names) parts_.tasks.retry_serving(rest, its);
            return;
        }
        const auto name = names.back().first;
        auto& when = names.back().second;
        const auto expected = when.counted ? queue_head::counted : queue_head::sole;
        try {
            // If the row is locked, the loop neither waits there nor forgets the name.
            if (!link_.write([&](sql::deadline until) {
                    parts_.owner.serve(*link_, name, expected, until);
                })) {
                when = when.postponed(parts_.now());
                parts_.tasks.retry_serving(name, when);
            }
        } catch (...) {
            when = when.postponed(parts_.now());
            for (const auto& [rest, its] : names) parts_.tasks.retry_serving(rest, its);
            throw;
        }
        names.pop_back();
        between();
    }
}

}  // namespace rowlock::detail

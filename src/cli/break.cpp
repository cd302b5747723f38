// `rowlock break`: asks the holder to stop, or takes the lock from it.

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/signals.hpp"
#include <rowlock/client.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// For people, on one line.
std::string who(const std::string& program, std::int64_t pid, const std::string& host) {
    return fmt::format("{}, pid {} on {}", program, pid, host);
}

std::string holder_text(const lease_info& row) {
    const holder_info& holder = *row.holder;
    return fmt::format("{} is held by {}, for {}", row.name,
                       who(holder.program, holder.pid, holder.host), to_text(holder.held_for));
}

std::string queue_text(const std::vector<waiter_info>& queue) {
    if (queue.empty()) return "no one waits";
    const waiter_info& next = queue.front();
    return fmt::format("{} wait{}, next is {}", queue.size(), queue.size() == 1 ? "s" : "",
                       who(next.program, next.pid, next.host));
}

void confirm(const break_options& options, const lease_info& row,
             const std::vector<waiter_info>& queue) {
    if (options.yes) return;
    const char* const what =
        options.now ? "It is not stopped: until it learns of it, with its next heartbeat at the "
                      "latest, it works on while the next holder works already.\nTake the lock "
                      "from it now? [y/N] "
                    : "It is asked to stop, and the lock passes on when it has.\nBreak the "
                      "lock? [y/N] ";
    require_consent(
        fmt::format("{}; {}.\n{}", escaped(holder_text(row)), escaped(queue_text(queue)), what),
        "standard input is not a terminal: give --yes to break the lock without the question");
}

void report(const break_options& options, const database& in, const char* outcome,
            std::string_view text) {
    if (!options.json) {
        return print(
            fmt::format("{} {} in {}\n", escaped(options.name), text, escaped(description_of(in))));
    }
    print_json(
        json{{"database", in.source.description()}, {"name", options.name}, {"outcome", outcome}});
}

/// Whether the grant `token` stops holding the lock within `limit`.
bool is_over_within(client& locks, const break_options& options, fencing_token token,
                    milliseconds limit, blocked_signals& signals) {
    const auto end = steady_clock::now() + limit;
    for (;;) {
        const auto row = locks.inspect(options.name);
        if (!row || !row->holder || row->token != token) return true;
        const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
        if (left <= 0ms) return false;
        if (const int number = signals.wait(std::min(left, milliseconds{200})); number != 0) {
            throw failure{signal_base + number, ""};
        }
    }
}

int ask_to_stop(client& locks, const database& in, const break_options& options,
                const lease_info& row, const std::vector<waiter_info>& queue) {
    if (row.holder->owner.starts_with(owner_of_scripts)) {
        throw failure{busy,
                      fmt::format("{} was taken by `rowlock acquire` and ends in {}: it has no "
                                  "process that could be asked to stop; "
                                  "`rowlock break --now` takes it",
                                  options.name, to_text(row.holder->remaining))};
    }
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP}};
    const auto left = locks.request_release(options.name, row.token);
    if (!left) {
        report(options, in, "gone", "is not held by that holder any more");
        return success;
    }
    if (!options.json) {
        complain(fmt::format("{}, and is asked to stop; {}", holder_text(row), queue_text(queue)));
    }
    // Adds a second for the reply to the last question.
    const milliseconds limit = options.wait.value_or(*left + 1s);
    if (is_over_within(locks, options, row.token, limit, signals)) {
        report(options, in, "stopped", "was released by its holder");
        return success;
    }
    throw failure{busy,
                  fmt::format("the holder of {} was asked to stop and has not yet: the lock is "
                              "free within {} of the request",
                              options.name, to_text(*left))};
}

int take_away(client& locks, const database& in, const break_options& options,
              const lease_info& row) {
    // Another client may have taken the lock meanwhile.
    const bool taken = locks.force_release(options.name, row.token);
    report(options, in, taken ? "taken" : "gone",
           taken ? "was taken from its holder, which works on until it learns of it"
                 : "is not held by that holder any more");
    return success;
}

}  // namespace

int break_lock(const break_options& options) {
    const lock_name name{options.name};
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    const auto row = with_tables(in, [&] { return locks.inspect(name); });
    if (!row || !row->holder) {
        report(options, in, "free", "was free");
        return success;
    }
    const auto queue = locks.waiters(name);
    confirm(options, *row, queue);
    return options.now ? take_away(locks, in, options, *row)
                       : ask_to_stop(locks, in, options, *row, queue);
}

}  // namespace rowlock::cli

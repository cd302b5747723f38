// `rowlock waits`: who waits for whom.

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/link.hpp"
#include "cli/lock_view.hpp"
#include "cli/signals.hpp"
#include "cli/table.hpp"
#include "sql/statements.hpp"
#include "view/overview.hpp"
#include <rowlock/ids.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::cli {
namespace {

using std::chrono::milliseconds;

/// Rows of one table that are read.
constexpr std::int64_t most = 50'000;

view::snapshot read_overview(const database& in) {
    const sql::statement_set statements{in.source.speaks(), {.tables = in.source.tables()}};
    blocked_signals none{{}};
    link to{in, none};
    return to.run([&](sql::connection& db, sql::deadline until) {
        return view::read(db, statements, most, until);
    });
}

/// The deadlock cycles with an entry that is shown, and the number of each entry's, from 1.
struct numbered_cycles {
    std::vector<view::cycle> all{};
    std::map<grant_id, std::size_t> number_of{};
};

numbered_cycles cycles_shown(const view::snapshot& seen, const std::string& prefix) {
    std::map<grant_id, bool> shown;
    for (const auto& lock : seen.locks) {
        for (const auto& each : lock.queue) shown[each.grant_id] = lock.name.starts_with(prefix);
    }
    numbered_cycles found;
    for (const auto& cycle : seen.cycles) {
        const bool any = std::ranges::any_of(cycle.entries, [&](grant_id id) { return shown[id]; });
        if (!any) continue;
        found.all.push_back(cycle);
        for (const auto id : cycle.entries) found.number_of.emplace(id, found.all.size());
    }
    return found;
}

milliseconds since(const view::snapshot& seen, view::time_point then) {
    return std::max(std::chrono::floor<milliseconds>(seen.at - then), milliseconds{0});
}

std::string text_of(const view::party& one) {
    return fmt::format("{}[{}]@{}", one.program, one.pid, one.host);
}

std::string holders_text(const std::vector<view::holder>& holds) {
    if (holds.empty()) return "-";  // it is being served, or kept for a request for several
    const auto& first = holds.front();
    std::string text = text_of(first) + (first.expired ? " (expired)" : "");
    if (holds.size() > 1) text += fmt::format(" and {} more", holds.size() - 1);
    return text;
}

std::string share_of(const view::party& one, view::kind of) {
    if (one.mode != nullptr) return one.mode;
    return of == view::kind::semaphore ? std::to_string(one.permits) : "-";
}

json to_json(const view::party& one) {
    json object{{"session", as_text(one.session)},
                {"grant_id", as_text(one.grant_id)},
                {"owner", one.owner},
                {"host", one.host},
                {"pid", one.pid},
                {"program", one.program},
                {"thread", one.thread},
                {"note", one.note}};
    if (one.mode != nullptr) {
        object["mode"] = one.mode;
    } else if (one.permits != 0) {
        object["permits"] = one.permits;
    }
    return object;
}

json holders_to_json(const view::snapshot& seen, const view::lock& lock) {
    json array = json::array();
    for (const auto& each : lock.holds) {
        json holder = to_json(each);
        holder["token"] = as_text(each.token.value());
        holder["held_ms"] = since(seen, each.since).count();
        holder["expired"] = each.expired;
        array.push_back(std::move(holder));
    }
    return array;
}

json waits_to_json(const view::snapshot& seen, const view::lock& lock,
                   const numbered_cycles& cycles) {
    json waiters = json::array();
    for (std::size_t i = 0; i < lock.queue.size(); ++i) {
        const auto& each = lock.queue[i];
        json waiter = to_json(each);
        waiter["position"] = i + 1;
        waiter["waited_ms"] = since(seen, each.since).count();
        waiter["locks"] = each.locks;
        waiter["priority"] = each.priority;
        const auto cycle = cycles.number_of.find(each.grant_id);
        if (cycle != cycles.number_of.end()) waiter["cycle"] = cycle->second;
        waiters.push_back(std::move(waiter));
    }
    return {{"name", lock.name},
            {"kind", view::to_string(lock.of)},
            {"holders", holders_to_json(seen, lock)},
            {"queue", std::move(waiters)}};
}

std::vector<std::string> to_cells(const view::snapshot& seen, const view::lock& lock,
                                  std::size_t index, const numbered_cycles& cycles) {
    const auto& waiter = lock.queue[index];
    const auto cycle = cycles.number_of.find(waiter.grant_id);
    return {lock.name,
            view::to_string(lock.of),
            std::to_string(index + 1),
            to_text(since(seen, waiter.since)),
            text_of(waiter),
            share_of(waiter, lock.of),
            holders_text(lock.holds),
            lock.holds.empty() ? "-" : to_text(since(seen, lock.holds.front().since)),
            cycle == cycles.number_of.end() ? "-" : fmt::format("cycle {}", cycle->second),
            note_of(waiter.owner, waiter.note)};
}

void print_as_json(const database& in, const view::snapshot& seen, const std::string& prefix,
                   const numbered_cycles& cycles) {
    json locks = json::array();
    for (const auto& lock : seen.locks) {
        if (lock.queue.empty() || !lock.name.starts_with(prefix)) continue;
        locks.push_back(waits_to_json(seen, lock, cycles));
    }
    json deadlocks = json::array();
    for (const auto& each : cycles.all) {
        json entries = json::array();
        for (const auto id : each.entries) entries.push_back(as_text(id));
        deadlocks.push_back({{"text", each.description}, {"entries", std::move(entries)}});
    }
    print_json(json{{"database", in.source.description()},
                    {"locks", std::move(locks)},
                    {"cycles", std::move(deadlocks)},
                    {"searched", seen.searched},
                    {"more", seen.more}});
}

void print_as_text(const database& in, const view::snapshot& seen, const std::string& prefix,
                   const numbered_cycles& cycles) {
    std::vector<std::vector<std::string>> cells;
    for (const auto& lock : seen.locks) {
        if (!lock.name.starts_with(prefix)) continue;
        for (std::size_t i = 0; i < lock.queue.size(); ++i) {
            cells.push_back(to_cells(seen, lock, i, cycles));
        }
    }
    const std::string where = escaped(description_of(in));
    if (cells.empty()) return print(fmt::format("no lock is waited for in {}\n", where));
    std::string text = where + "\n" +
                       table({"LOCK", "KIND", "PLACE", "WAITED", "WAITER", "SHARE", "HOLDER",
                              "HELD", "DEADLOCK", "NOTE"},
                             cells);
    for (std::size_t i = 0; i < cycles.all.size(); ++i) {
        text += fmt::format("{}cycle {}: {}\n", i == 0 ? "\n" : "", i + 1,
                            escaped(cycles.all[i].description));
    }
    print(text);
}

}  // namespace

int waits(const waits_options& options) {
    const database in = find_database(options.database);
    const auto seen = read_overview(in);
    const auto cycles = cycles_shown(seen, options.prefix);
    options.json ? print_as_json(in, seen, options.prefix, cycles)
                 : print_as_text(in, seen, options.prefix, cycles);
    if (seen.only_leases) complain("semaphores and shared_mutexes are not shown: no right to read");
    if (!seen.searched) complain("deadlocks were not looked for: there are too many waiters");
    if (seen.more && !options.json) complain(fmt::format("there is more than {} rows", most));
    return cycles.all.empty() ? success : answer_is_no;
}

}  // namespace rowlock::cli

#include "cli/blockers.hpp"
#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/lock_view.hpp"
#include "cli/near_names.hpp"
#include "cli/pages.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/signals.hpp"
#include "cli/table.hpp"
#include <rowlock/client.hpp>
#include <rowlock/periodic_run.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

namespace rowlock::cli {
namespace {

using std::chrono::milliseconds;

const char* state_of(const lease_info& row) {
    if (!row.holder) return "free";
    return row.holder->remaining <= milliseconds{0} ? "expired" : "held";
}

json to_json(const lease_info& row) {
    json object{{"name", row.name},       {"token", as_text(row.token.value())},
                {"state", state_of(row)}, {"changed_ms", row.changed.count()},
                {"waiting", row.waiting}, {"longest_wait_ms", row.longest_wait.count()},
                {"holder", nullptr}};
    if (!row.holder) return object;
    object["holder"] = holder_to_json(*row.holder);
    return object;
}

json to_json(const std::vector<waiter_info>& queue) {
    json array = json::array();
    for (const waiter_info& each : queue) {
        array.push_back(waiter_to_json(each));
        array.back()["locks"] = each.locks;
        array.back()["priority"] = each.priority;
    }
    return array;
}

std::vector<std::string> to_cells(const lease_info& row) {
    const std::string token = std::to_string(row.token.value());
    const std::string waiting = row.waiting == 0 ? "-" : std::to_string(row.waiting);
    const std::string longest = row.waiting == 0 ? "-" : to_text(row.longest_wait);
    if (!row.holder) {
        return {row.name, state_of(row), token, "-", "-", "-", "-", "-", waiting, longest, ""};
    }
    const holder_info& holder = *row.holder;
    return {row.name,
            state_of(row),
            token,
            holder.host,
            std::to_string(holder.pid),
            holder.program,
            to_text(holder.held_for),
            to_text(holder.remaining),
            waiting,
            longest,
            note_of(holder.owner, holder.note)};
}

std::string in_full(const lease_info& row) {
    std::string text =
        fmt::format("name       {}\nstate      {}\ntoken      {}\nchanged    {} ago\n",
                    escaped(row.name), state_of(row), row.token.value(), to_text(row.changed));
    if (!row.holder) return text;
    const holder_info& holder = *row.holder;
    // Nothing renews a lease that a script took.
    const bool fixed = holder.owner.starts_with(owner_of_scripts);
    const std::string left = to_text(holder.remaining);
    const std::string end = fixed ? fmt::format("ends in    {} (fixed)", left)
                                  : fmt::format("remaining  {} without another heartbeat", left);
    text += fmt::format(
        "held for   {}\n{}\nhost       {}\npid        {}\n"
        "program    {}\nowner      {}\nthread     {}\nnote       {}\nsession    {}\ngrant id   "
        "{}\n",
        to_text(holder.held_for), end, escaped(holder.host), holder.pid, escaped(holder.program),
        escaped(holder.owner), escaped(holder.thread), escaped(holder.note),
        to_string(holder.session), to_string(holder.grant_id));
    if (holder.asked) {
        const auto& [by, why] = *holder.asked;
        text +=
            fmt::format("{}{}{}\n", by.empty() ? "asked      at once" : "asked by   " + escaped(by),
                        why.empty() ? "" : ": ", escaped(why));
    }
    return text;
}

json to_json(const run_info& run) {
    json object{{"token", as_text(run.token.value())},
                {"finished", run.finished},
                {"period", nullptr},
                {"began_ms", run.began.count()},
                {"ended_ms", nullptr},
                {"rest_ms", run.rest.count()}};
    if (run.period) object["period"] = *run.period;
    if (run.ended) object["ended_ms"] = run.ended->count();
    return object;
}

std::string in_full(const run_info& run) {
    std::string text = fmt::format("last run   began {} ago{}\n", to_text(run.began),
                                   run.finished ? "" : ", has not finished");
    if (run.ended) text += fmt::format("finished   {} ago\n", to_text(*run.ended));
    if (run.period) text += fmt::format("period     {}\n", escaped(*run.period));
    if (run.rest > milliseconds{0}) text += fmt::format("rests for  {}\n", to_text(run.rest));
    return text;
}

std::string in_full(const std::vector<waiter_info>& queue) {
    std::string text = fmt::format("waiting    {}\n", queue.size());
    if (queue.empty()) return text;
    std::vector<std::vector<std::string>> cells;
    for (const waiter_info& each : queue) {
        cells.push_back(waiter_cells(each));
        const auto add = [&](const std::string& what) {
            auto& note = cells.back().back();
            note = fmt::format("{}({})", note.empty() ? "" : note + ' ', what);
        };
        if (each.locks != 1) add(fmt::format("{} locks at once", each.locks));
        if (each.priority != 0) add(fmt::format("priority {}", each.priority));
    }
    return text + "\n" + queue_table({}, cells);
}

/// Whether only leases are asked for.
bool wants_holders(const list_options& options) {
    return options.older_than || !options.host.empty();
}

bool is_wanted(const lease_info& row, const list_options& options) {
    if (wants_holders(options)) {
        if (!row.holder) return false;
        if (!options.host.empty() && row.holder->host != options.host) return false;
        if (options.older_than && row.holder->held_for < *options.older_than) return false;
    }
    if (options.waiting) return row.waiting > 0;
    return options.all || row.holder || row.waiting > 0;
}

/// Lists of semaphores and shared_mutexes, with the keys that they have in JSON.
using counter_lists = std::vector<std::pair<const char*, counter_list>>;

counter_lists read_counters(const database& in, client& locks, const list_options& options) {
    if (wants_holders(options)) return {};
    const list_range range{.prefix = options.prefix,
                           .after = options.after,
                           .limit = options.limit,
                           .wanted = options.waiting ? rows_wanted::waited
                                     : options.all   ? rows_wanted::all
                                                     : rows_wanted::in_use};
    auto found = if_allowed([&] {
        counter_lists both;
        both.emplace_back("semaphores", list_of_semaphores(in, locks, range));
        both.emplace_back("shared_mutexes", list_of_shared_mutexes(in, locks, range));
        return both;
    });
    return found.value_or(counter_lists{});
}

int print_as_json(const database& in, const std::vector<lease_info>& rows,
                  const counter_lists& counters, bool more) {
    json array = json::array();
    for (const auto& row : rows) array.push_back(to_json(row));
    json object{{"database", in.source.description()}, {"locks", array}};
    for (const auto& [key, list] : counters) object[key] = list.array;
    object["more"] = more;
    print_json(object);
    return success;
}

std::string as_tables(const std::vector<lease_info>& rows, const counter_lists& counters) {
    std::string text;
    if (!rows.empty()) {
        std::vector<std::vector<std::string>> cells;
        for (const auto& row : rows) cells.push_back(to_cells(row));
        text = table({"NAME", "STATE", "TOKEN", "HOST", "PID", "PROGRAM", "HELD", "REMAINING",
                      "WAITING", "LONGEST", "NOTE"},
                     cells);
    }
    for (const auto& [key, list] : counters) {
        if (list.cells.empty()) continue;
        text += (text.empty() ? "" : "\n") + table(list.headings, list.cells);
    }
    return text;
}

/// The greatest first.
void sort_by(list_options::order by, std::vector<lease_info>& rows) {
    std::ranges::stable_sort(rows, std::greater{}, [&](const lease_info& row) {
        const auto held = row.holder ? row.holder->held_for : milliseconds{-1};
        if (by == list_options::order::held) return std::pair{held.count(), std::int64_t{0}};
        if (by == list_options::order::waiters) return std::pair{row.waiting, held.count()};
        return std::pair{row.waiting == 0 ? std::int64_t{-1} : row.longest_wait.count(),
                         held.count()};
    });
}

/// The rows, and whether there are more.
std::pair<std::vector<lease_info>, bool> read_leases(const database& in, client& locks,
                                                     const list_options& options) {
    const bool sorted = options.by != list_options::order::name;
    auto found = read_pages(
        options.after, sorted ? std::numeric_limits<int>::max() : options.limit,
        [&](const page& next) {
            return with_tables(in, [&] { return locks.list(options.prefix, next); });
        },
        [&](const lease_info& row) { return is_wanted(row, options); });
    if (!sorted) return found;
    auto& [rows, more] = found;
    sort_by(options.by, rows);
    const auto limit = static_cast<std::size_t>(options.limit);
    more = rows.size() > limit;
    if (more) rows.erase(rows.begin() + options.limit, rows.end());
    return found;
}

int print_list(const database& in, client& locks, const list_options& options) {
    const auto [rows, found_more] = read_leases(in, locks, options);
    bool more = found_more;
    const auto counters = read_counters(in, locks, options);
    for (const auto& [key, list] : counters) more = more || list.more;
    if (options.json) return print_as_json(in, rows, counters, more);
    const std::string where = escaped(description_of(in));
    const std::string text = as_tables(rows, counters);
    if (text.empty()) {
        const char* none = options.waiting ? "no lock is waited for"
                           : options.all   ? "no locks"
                                           : "no lock is held";
        print(fmt::format("{} in {}\n", none, where));
        return success;
    }
    print(where + "\n" + text);
    if (more) complain_of_more(options.limit);
    return success;
}

/// On a terminal each list replaces the one before. Ends with a signal.
[[noreturn]] void watch_list(const database& in, client& locks, const list_options& options) {
    const bool terminal = output_width() > 0;
    blocked_signals signals{SIGINT, SIGTERM, SIGHUP};
    for (bool first = true;; first = false) {
        if (terminal) {
            print("\x1b[H\x1b[2J");
        } else if (!first && !options.json) {
            print("\n");
        }
        print_list(in, locks, options);
        if (const int number = signals.wait(options.every); number != 0) {
            throw failure{signal_base + number, ""};
        }
    }
}

}  // namespace

int list(const list_options& options) {
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    if (options.watch) watch_list(in, locks, options);
    return print_list(in, locks, options);
}

int show(const name_options& options) {
    constexpr int most_holders = 1'000;
    const lock_name name{options.name};
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    const auto row = with_tables(in, [&] { return locks.inspect(name); });
    const auto queue = locks.waiters(name);
    const auto run =
        if_allowed([&] { return periodic_run::inspect(locks, name); }, "periodic runs");
    const auto max_hold = if_allowed([&] { return locks.max_hold(name); }, "policies");
    const auto counter =
        if_allowed([&] {
            auto found = shown_semaphore(in, locks, options.name, most_holders);
            std::pair key{"semaphore", std::move(found)};
            if (key.second) return key;
            key = {"shared_mutex", shown_shared_mutex(in, locks, options.name, most_holders)};
            // Nobody has or wants a part of what is held as a whole: it is shown as a lease.
            const bool whole = row && row->holder && key.second;
            if (whole && key.second->object.at("waiting") == 0) key.second.reset();
            return key;
        }).value_or(std::pair<const char*, std::optional<counter_shown>>{});
    const bool known = row || !queue.empty() || run || max_hold || counter.second;
    if (!known) throw no_such_lock(in, locks, options.name);
    const auto blockers = blockers_of(in, options.name);
    // A name without a row was never locked, or has been reaped since.
    if (options.json) {
        json object{{"database", in.source.description()}};
        object.update(to_json(row ? *row : lease_info{.name = options.name}));
        if (!row && counter.second && locks.is_locked(name)) object["state"] = "held";
        object["queue"] = to_json(queue);
        if (run) object["run"] = to_json(*run);
        if (max_hold) object["max_hold_ms"] = max_hold->count();
        object["blocking"] = to_json(blockers);
        if (counter.second) object[counter.first] = counter.second->object;
        print_json(object);
        return success;
    }
    std::string text = fmt::format("database   {}\n", escaped(description_of(in)));
    if (max_hold) text += fmt::format("max hold   {}\n", to_text(*max_hold));
    for (const auto& each : blockers)
        text += fmt::format("blocked by {}\n", escaped(text_of(in, each)));
    if (row) {
        text += in_full(*row);
    } else if (!counter.second) {
        text += fmt::format(
            "name       {}\nstate      free (no row: never locked, or "
            "reaped)\n",
            escaped(options.name));
    }
    if (run) text += in_full(*run);
    if (!counter.second) text += in_full(queue);
    if (row && counter.second) text += "\n";
    print(text + (counter.second ? counter.second->text : ""));
    return success;
}

int held(const name_options& options) {
    const lock_name name{options.name};
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    const bool is_held = with_tables(in, [&] { return locks.is_locked(name); });
    if (options.json) {
        print_json(
            json{{"database", in.source.description()}, {"name", options.name}, {"held", is_held}});
    }
    return is_held ? success : answer_is_no;
}

}  // namespace rowlock::cli

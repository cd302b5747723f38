#include "cli/lock_view.hpp"

#include "cli/duration.hpp"
#include "cli/pages.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include "coordination/lease/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace rowlock::cli {
namespace {

bool is_made_up(const std::string& owner) {
    return owner.starts_with(detail::random_owner) || owner.starts_with(owner_of_scripts);
}

bool is_wanted(rows_wanted wanted, bool in_use, std::int64_t waiting) {
    if (wanted == rows_wanted::waited) return waiting > 0;
    return wanted == rows_wanted::all || in_use || waiting > 0;
}

std::string state_of(const shared_mutex_info& row) {
    if (row.exclusive) return "exclusive";
    if (row.upgradeable) return row.shared > 0 ? "upgradeable, shared" : "upgradeable";
    return row.shared > 0 ? "shared" : "free";
}

json to_json(const shared_mutex_info& row) {
    return {{"name", row.name},
            {"shared", row.shared},
            {"upgradeable", row.upgradeable},
            {"exclusive", row.exclusive},
            {"waiting", row.waiting}};
}

/// What a holder or a waiter has or wants of a counter: a heading, a key, and the values.
json share_to_json(std::int64_t permits) {
    return permits;
}
json share_to_json(lock_mode mode) {
    return to_string(mode);
}
std::string share_text(std::int64_t permits) {
    return std::to_string(permits);
}
std::string share_text(lock_mode mode) {
    return to_string(mode);
}

auto parts_of(const permit_holder& of) {
    return std::tie(of.who, of.token, of.permits);
}
auto parts_of(const mode_holder& of) {
    return std::tie(of.who, of.token, of.mode);
}

template <typename Holder>
json holders_to_json(const std::vector<Holder>& holders, const char* key) {
    json array = json::array();
    for (const auto& each : holders) {
        const auto& [who, token, share] = parts_of(each);
        json object{{key, share_to_json(share)}, {"token", as_text(token.value())}};
        object.update(holder_to_json(who));
        array.push_back(std::move(object));
    }
    return array;
}

template <typename Holder>
std::string holders_table(const std::vector<Holder>& holders, const char* heading) {
    if (holders.empty()) return {};
    std::vector<std::vector<std::string>> cells;
    for (const auto& each : holders) {
        const auto& [who, token, share] = parts_of(each);
        cells.push_back({share_text(share), std::to_string(token.value()), who.host,
                         std::to_string(who.pid), who.program, to_text(who.held_for),
                         to_text(who.remaining), note_of(who.owner, who.note)});
    }
    return "\n" +
           table({heading, "TOKEN", "HOST", "PID", "PROGRAM", "HELD", "REMAINING", "NOTE"}, cells);
}

std::string share_text(const permit_waiter& waiter) {
    return std::to_string(waiter.permits);
}
std::string share_text(const mode_waiter& waiter) {
    return waiter.upgrade ? "upgrade" : to_string(waiter.mode);
}
json share_to_json(const permit_waiter& waiter) {
    return waiter.permits;
}
json share_to_json(const mode_waiter& waiter) {
    return to_string(waiter.mode);
}

template <typename Waiter>
json waiters_to_json(const std::vector<Waiter>& queue, const char* key) {
    json array = json::array();
    for (const auto& each : queue) {
        json object{{key, share_to_json(each)}};
        object.update(waiter_to_json(each.who));
        array.push_back(std::move(object));
    }
    return array;
}

template <typename Waiter>
std::string waiters_table(const std::vector<Waiter>& queue, const char* heading) {
    if (queue.empty()) return {};
    std::vector<std::vector<std::string>> cells;
    for (const auto& each : queue) {
        cells.push_back(waiter_cells(each.who));
        cells.back().insert(cells.back().begin(), share_text(each));
    }
    return "\n" + queue_table({heading}, cells);
}

template <typename Holder, typename Waiter>
counter_shown in_full(json object, const std::string& text, const std::vector<Holder>& holders,
                      const std::vector<Waiter>& queue, const char* key, const char* heading) {
    object["holders"] = holders_to_json(holders, key);
    object["queue"] = waiters_to_json(queue, key);
    return {std::move(object),
            text + holders_table(holders, heading) + waiters_table(queue, heading)};
}

}  // namespace

std::string note_of(const std::string& owner, const std::string& note) {
    return is_made_up(owner) ? note : fmt::format("[{}] {}", owner, note);
}

json waiter_to_json(const waiter_info& waiter) {
    return {{"position", waiter.position},
            {"waited_ms", waiter.waited.count()},
            {"host", waiter.host},
            {"pid", waiter.pid},
            {"program", waiter.program},
            {"owner", waiter.owner},
            {"note", waiter.note},
            {"thread", waiter.thread},
            {"session", as_text(waiter.session)},
            {"ticket", as_text(waiter.ticket)}};
}

std::vector<std::string> waiter_cells(const waiter_info& waiter) {
    return {std::to_string(waiter.position),   to_text(waiter.waited), waiter.host,
            std::to_string(waiter.pid),        waiter.program,         waiter.thread,
            note_of(waiter.owner, waiter.note)};
}

std::string queue_table(std::vector<std::string> first,
                        const std::vector<std::vector<std::string>>& rows) {
    for (const char* each : {"POSITION", "WAITED", "HOST", "PID", "PROGRAM", "THREAD", "NOTE"}) {
        first.emplace_back(each);
    }
    return table(first, rows);
}

json to_json(const semaphore_info& row) {
    return {{"name", row.name},       {"capacity", row.capacity},
            {"used", row.used},       {"available", row.available()},
            {"waiting", row.waiting}, {"wanted", row.wanted}};
}

counter_list list_of_semaphores(const database& in, client& locks, const list_range& range) {
    auto [rows, more] = read_pages(
        range.after, range.limit,
        [&](const page& next) {
            return with_tables(in, [&] { return list_semaphores(locks, range.prefix, next); });
        },
        [&](const semaphore_info& row) {
            return is_wanted(range.wanted, row.used > 0, row.waiting);
        });
    counter_list found{
        .headings = {"SEMAPHORE", "CAPACITY", "USED", "AVAILABLE", "WAITING", "WANTED"},
        .more = more};
    for (const auto& row : rows) {
        found.array.push_back(to_json(row));
        found.cells.push_back({row.name, std::to_string(row.capacity), std::to_string(row.used),
                               std::to_string(row.available()), std::to_string(row.waiting),
                               std::to_string(row.wanted)});
    }
    return found;
}

counter_list list_of_shared_mutexes(const database& in, client& locks, const list_range& range) {
    auto [rows, more] = read_pages(
        range.after, range.limit,
        [&](const page& next) {
            return with_tables(in, [&] { return list_shared_mutexes(locks, range.prefix, next); });
        },
        [&](const shared_mutex_info& row) {
            const bool in_use = row.exclusive || row.upgradeable || row.shared > 0;
            return is_wanted(range.wanted, in_use, row.waiting);
        });
    counter_list found{.headings = {"SHARED_MUTEX", "STATE", "READERS", "WAITING"}, .more = more};
    for (const auto& row : rows) {
        found.array.push_back(to_json(row));
        found.cells.push_back(
            {row.name, state_of(row), std::to_string(row.shared), std::to_string(row.waiting)});
    }
    return found;
}

std::optional<counter_shown> shown_semaphore(const database& in, client& locks,
                                             const std::string& name, int limit) {
    rowlock::semaphore one{locks, lock_name{name}};
    const auto row = with_tables(in, [&] { return one.inspect(); });
    if (!row) return std::nullopt;
    const std::string text = fmt::format(
        "name       {}\nkind       semaphore\ncapacity   {}\nused       {}\navailable  {}\nwaiting "
        "   {}, for {} "
        "permits\n",
        escaped(row->name), row->capacity, row->used, row->available(), row->waiting, row->wanted);
    return in_full(to_json(*row), text, one.holders(limit), one.waiters(), "permits", "PERMITS");
}

std::optional<counter_shown> shown_shared_mutex(const database& in, client& locks,
                                                const std::string& name, int limit) {
    shared_mutex one{locks, name};
    const auto row = with_tables(in, [&] { return one.inspect(); });
    if (!row) return std::nullopt;
    const std::string text = fmt::format(
        "name       {}\nkind       shared_mutex\nstate      {}\nreaders    {}\nwaiting    {}\n",
        escaped(row->name), state_of(*row), row->shared, row->waiting);
    return in_full(to_json(*row), text, one.holders(limit), one.waiters(), "mode", "MODE");
}

}  // namespace rowlock::cli

#include "cli/lock_view.hpp"

#include "cli/duration.hpp"
#include "cli/link.hpp"
#include "cli/pages.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/signals.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include "lock/client/validation.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/statements.hpp"

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

/// Somebody may hold all of it.
constexpr const char* no_part_held = "-";

std::string state_of(const shared_mutex_info& row) {
    if (row.exclusive) return "exclusive";
    if (row.upgradeable) return row.shared > 0 ? "upgradeable, shared" : "upgradeable";
    return row.shared > 0 ? "shared" : no_part_held;
}

json to_json(const live_shared_mutex& one) {
    return {{"name", one.row.name},
            {"shared", one.row.shared},
            {"upgradeable", one.row.upgradeable},
            {"exclusive", one.row.exclusive},
            {"expired", one.expired},
            {"waiting", one.row.waiting}};
}

std::string count_text(std::int64_t number) {
    return number == 0 ? "-" : std::to_string(number);
}

std::string expired_text(std::int64_t number) {
    if (number == 0) return {};
    return fmt::format("expired    {}, of dead holders: the next that asks takes them back\n",
                       number);
}

/// As shared_mutex counts them.
std::int64_t permits_of(const shared_mutex_info& row) {
    if (row.exclusive) return protocol::permits_for(lock_mode::exclusive);
    return row.shared + (row.upgradeable ? protocol::permits_for(lock_mode::upgradeable) : 0);
}

void set_modes(shared_mutex_info& row, std::int64_t permits) {
    constexpr auto upgradeable = protocol::permits_for(lock_mode::upgradeable);
    row.exclusive = permits >= protocol::permits_for(lock_mode::exclusive);
    row.upgradeable = !row.exclusive && permits >= upgradeable;
    row.shared = row.exclusive ? 0 : permits - (row.upgradeable ? upgradeable : 0);
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
        cells.push_back(
            {share_text(share), std::to_string(token.value()), who.host, std::to_string(who.pid),
             who.program, to_text(who.held_for),
             who.remaining > std::chrono::milliseconds{0} ? to_text(who.remaining) : "expired",
             note_of(who.owner, who.note)});
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

live_semaphore expired_holds::without(semaphore_info row) const {
    const auto found = permits_.find({view::kind::semaphore, row.name});
    // The row was read before: one that was taken back since is no longer among them.
    const auto dead = found == permits_.end() ? 0 : std::min(found->second, row.used);
    row.used -= dead;
    return {std::move(row), dead};
}

live_shared_mutex expired_holds::without(shared_mutex_info row) const {
    const auto found = permits_.find({view::kind::shared_mutex, row.name});
    if (found == permits_.end()) return {std::move(row), 0};
    const auto all = permits_of(row);
    const auto dead = std::min(found->second, all);
    shared_mutex_info gone;
    set_modes(gone, dead);
    set_modes(row, all - dead);
    return {std::move(row), gone.shared + int{gone.exclusive} + int{gone.upgradeable}};
}

void expired_holds::read(const database& in) {
    constexpr std::int64_t most = 50'000;
    const sql::statement_set statements{in.source.speaks(), {.tables = in.source.tables()}};
    blocked_signals none{{}};
    link to{in, none};
    permits_ = to.run([&](sql::connection& db, sql::deadline until) {
        return view::read_expired_permits(db, statements, most, until);
    });
}

json to_json(const live_semaphore& one) {
    return {
        {"name", one.row.name},    {"capacity", one.row.capacity},     {"used", one.row.used},
        {"expired", one.expired},  {"available", one.row.available()}, {"waiting", one.row.waiting},
        {"wanted", one.row.wanted}};
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
        .headings = {"SEMAPHORE", "CAPACITY", "USED", "EXPIRED", "AVAILABLE", "WAITING", "WANTED"},
        .more = more};
    const expired_holds dead{in, rows};
    for (const auto& each : rows) {
        const auto one = dead.without(each);
        const auto& row = one.row;
        found.array.push_back(to_json(one));
        found.cells.push_back({row.name, std::to_string(row.capacity), std::to_string(row.used),
                               count_text(one.expired), std::to_string(row.available()),
                               std::to_string(row.waiting), std::to_string(row.wanted)});
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
    counter_list found{.headings = {"SHARED_MUTEX", "STATE", "READERS", "EXPIRED", "WAITING"},
                       .more = more};
    const expired_holds dead{in, rows};
    for (const auto& each : rows) {
        const auto one = dead.without(each);
        const auto& row = one.row;
        found.array.push_back(to_json(one));
        found.cells.push_back({row.name, state_of(row), std::to_string(row.shared),
                               count_text(one.expired), std::to_string(row.waiting)});
    }
    return found;
}

std::optional<counter_shown> shown_semaphore(const database& in, client& locks,
                                             const std::string& name, int limit) {
    rowlock::semaphore one{locks, lock_name{name}};
    const auto row = with_tables(in, [&] { return one.inspect(); });
    if (!row) return std::nullopt;
    const auto live = expired_holds{in, std::vector{*row}}.without(*row);
    const std::string text = fmt::format(
        "name       {}\nkind       semaphore\ncapacity   {}\nused       {}\n{}available  "
        "{}\nwaiting "
        "   {}, for {} "
        "permits\n",
        escaped(row->name), row->capacity, live.row.used, expired_text(live.expired),
        live.row.available(), row->waiting, row->wanted);
    return in_full(to_json(live), text, one.holders(limit), one.waiters(), "permits", "PERMITS");
}

std::optional<counter_shown> shown_shared_mutex(const database& in, client& locks,
                                                const std::string& name, int limit) {
    shared_mutex one{locks, name};
    const auto row = with_tables(in, [&] { return one.inspect(); });
    if (!row) return std::nullopt;
    // Nobody holds it, or waits for a part: it is shown as a lease.
    if (row->shared == 0 && !row->upgradeable && !row->exclusive && row->waiting == 0) {
        return std::nullopt;
    }
    const auto live = expired_holds{in, std::vector{*row}}.without(*row);
    std::string state = state_of(live.row);
    if (state == no_part_held) state = locks.is_locked(lock_name{name}) ? "held" : "free";
    const std::string text = fmt::format(
        "name       {}\nkind       shared_mutex\nstate      {}\nreaders    {}\n{}waiting    {}\n",
        escaped(row->name), state, live.row.shared, expired_text(live.expired), row->waiting);
    return in_full(to_json(live), text, one.holders(limit), one.waiters(), "mode", "MODE");
}

}  // namespace rowlock::cli

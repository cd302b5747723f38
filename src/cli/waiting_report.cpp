#include "cli/waiting_report.hpp"

#include "cli/duration.hpp"
#include "cli/text.hpp"
#include <rowlock/error.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;

/// What stays the same while the same process holds it, and for how long that is.
struct held_lock {
    std::string who{};
    std::chrono::milliseconds time{0};
};

std::string who(const holder_info& holder, const std::string& share) {
    return fmt::format("{}, pid {} on {}{}{}", holder.program, holder.pid, holder.host,
                       share.empty() ? "" : " (" + share + ")",
                       holder.note.empty() ? "" : ", \"" + holder.note + "\"");
}

template <typename Holder>
held_lock first_of(const std::vector<Holder>& holders, const std::string& share) {
    const auto& first = holders.front().who;
    auto found = held_lock{who(first, share), first.held_for};
    if (holders.size() > 1) found.who += fmt::format(" and {} more", holders.size() - 1);
    return found;
}

held_lock holder_of(client& locks, const std::string& name) {
    constexpr int most = 100;
    const auto row = locks.inspect(name);
    if (row && row->holder) return {who(*row->holder, ""), row->holder->held_for};
    try {
        const auto holders = shared_mutex{locks, lock_name{name}}.holders(most);
        if (!holders.empty()) return first_of(holders, to_string(holders.front().mode));
        rowlock::semaphore limit{locks, lock_name{name}};
        if (!limit.inspect()) return {};
        const auto users = limit.holders(most);
        if (!users.empty())
            return first_of(users, fmt::format("{} permits", users.front().permits));
    } catch (const error& failed) {
        if (failed.kind() != errc::access_denied) throw;  // else a user of leases alone
    }
    return {};
}

/// The first of the names that is held.
std::pair<std::string, held_lock> first_held(client& locks, const std::vector<std::string>& names) {
    try {
        for (const auto& each : names) {
            if (auto found = holder_of(locks, each); !found.who.empty()) {
                return {each, std::move(found)};
            }
        }
    } catch (const error&) {
        // It says nothing, and waits on.
    }
    return {};
}

std::string told(const std::string& before, const held_lock& held) {
    return fmt::format("{}{}, for {}", before, held.who, to_text(held.time));
}

}  // namespace

std::string holder_of_any(client& locks, const std::vector<std::string>& names) {
    const auto [name, held] = first_held(locks, names);
    if (name.empty()) return {};
    return told(names.size() > 1 ? name + ": " : "", held);
}

waiting_report::waiting_report(client& locks, std::vector<std::string> names,
                               std::function<std::int64_t()> position)
    : locks_{locks},
      names_{std::move(names)},
      position_{std::move(position)},
      thread_{[this](const std::stop_token& over) { run(over); }} {}

void waiting_report::run(const std::stop_token& over) {
    constexpr auto first = 1s;
    constexpr auto next = 2s;
    std::string before;
    std::unique_lock lock{mutex_};
    for (auto pause = first;; pause = next) {
        if (sleep_.wait_for(lock, over, pause, [&] { return over.stop_requested(); })) return;
        const auto [name, held] = first_held(locks_, names_);
        if (name.empty() || over.stop_requested()) continue;
        const auto place = position_();
        const std::string what = fmt::format("{} {} {}", name, held.who, place);
        if (what == before) continue;
        before = what;
        complain(fmt::format("waiting for {}{}", told(name + ": ", held),
                             place > 0 ? fmt::format("; number {} in the queue", place) : ""));
    }
}

}  // namespace rowlock::cli

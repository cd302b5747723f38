// `rowlock break`: asks a holder to stop, or takes the lock from it.

#include "cli/blockers.hpp"
#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/link.hpp"
#include "cli/named_locks.hpp"
#include "cli/near_names.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/signals.hpp"
#include <rowlock/client.hpp>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Who runs this command, as far as the system says: for the history.
std::string user_name() {
    const auto plain = [](std::string_view name) {
        return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](unsigned char c) {
            return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
        });
    };
    std::array<char, 4096> space{};
    passwd entry{};
    passwd* found = nullptr;
    ::getpwuid_r(::geteuid(), &entry, space.data(), space.size(), &found);
    std::string name =
        found != nullptr && plain(found->pw_name) ? found->pw_name : std::to_string(::geteuid());
    const char* const before = std::getenv("SUDO_USER");
    if (::geteuid() == 0 && before != nullptr && plain(before)) {
        name += " (sudo by " + std::string{before} + ")";
    }
    return name;
}

/// For people, on one line.
std::string who(const std::string& program, std::int64_t pid, const std::string& host) {
    return fmt::format("{}, pid {} on {}", program, pid, host);
}

std::string holder_text(const std::string& name, const breakable& whom) {
    const holder_info& holder = whom.who;
    return fmt::format("{} is held{}{} by {}, for {}", name, whom.share.empty() ? "" : " ",
                       whom.share.empty() ? "" : fmt::format("({})", whom.share),
                       who(holder.program, holder.pid, holder.host), to_text(holder.held_for));
}

std::string queue_text(const std::vector<waiter_info>& queue) {
    if (queue.empty()) return "no one waits";
    const waiter_info& next = queue.front();
    return fmt::format("{} wait{}, next is {}", queue.size(), queue.size() == 1 ? "s" : "",
                       who(next.program, next.pid, next.host));
}

void confirm(const break_options& options, const breakable& whom,
             const std::vector<waiter_info>& queue) {
    if (options.yes) return;
    const char* const what =
        options.now ? "It is not stopped: until it learns of it, with its next heartbeat at the "
                      "latest, it works on while the next holder works already.\nTake the lock "
                      "from it now? [y/N] "
        : options.within > 0ms
            ? "It is asked to finish within that time, and the lock passes on when it has.\n"
              "Break the lock? [y/N] "
            : "It is asked to stop, and the lock passes on when it has.\nBreak the "
              "lock? [y/N] ";
    require_consent(
        fmt::format("{}; {}.\n{}", escaped(holder_text(options.name, whom)),
                    escaped(queue_text(queue)), what),
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

enum class ending : unsigned char { none, released, expired, overdue };

/// How long a hold is seen to last: what ends before its time is up was released.
class watched_hold {
public:
    watched_hold(named_locks& locks, const breakable& whom) : locks_{locks}, seen_{whom} {}

    [[nodiscard]] bool is_there() {
        const auto now = steady_clock::now();
        auto found = locks_.find(seen_);
        if (!found) return false;
        seen_ = *std::move(found);
        seen_at_ = now;
        return true;
    }
    /// After it has gone, that its time had passed. Its holder may still have released it then.
    [[nodiscard]] bool ran_out() const {
        return seen_at_ + seen_.who.remaining <= steady_clock::now();
    }

private:
    named_locks& locks_;
    breakable seen_;
    steady_clock::time_point seen_at_ = steady_clock::now();
};

/// Whether the holder's session lives: it did not stop, although it could.
bool lives(const database& in, const breakable& whom, blocked_signals& signals) {
    link to{in, signals};
    return to.run([&](sql::connection& db, sql::deadline until) {
        return to.queue().entries_of(db, whom.who.session, until).session_live;
    });
}

/// How the hold ends within `limit`.
ending wait_for_end(named_locks& locks, const database& in, const breakable& whom,
                    milliseconds limit, blocked_signals& signals) {
    const auto end = steady_clock::now() + limit;
    watched_hold hold{locks, whom};
    while (hold.is_there()) {
        const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
        if (left <= 0ms) return ending::none;
        if (const int number = signals.wait(std::min(left, milliseconds{200})); number != 0) {
            throw failure{signal_base + number, ""};
        }
    }
    if (!hold.ran_out()) return ending::released;
    return lives(in, whom, signals) ? ending::overdue : ending::expired;
}

const char* outcome_of(ending how) {
    switch (how) {
        case ending::expired:
            return "expired";
        case ending::overdue:
            return "overdue";
        default:
            return "stopped";
    }
}

std::string text_of(ending how, const breakable& whom) {
    const holder_info& holder = whom.who;
    switch (how) {
        case ending::expired:
            return fmt::format(
                "was taken from a dead session: {} did not answer, and its session has expired",
                who(holder.program, holder.pid, holder.host));
        case ending::overdue:
            return fmt::format("was taken from {}, which did not stop in time",
                               who(holder.program, holder.pid, holder.host));
        default:
            return "was released by its holder";
    }
}

/// A script that renews its lease holds it by another token than the one that was shown.
void refuse_if_renewed(named_locks& locks, const break_options& options, const breakable& whom) {
    if (!locks.find(whom)) return;
    throw failure{busy, fmt::format("{} was renewed by its holder since it was shown: run the "
                                    "command again",
                                    options.name)};
}

int ask_to_stop(named_locks& locks, const database& in, const break_options& options,
                const breakable& whom, const std::vector<waiter_info>& queue) {
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP}};
    const auto left = beside_blockers(in, options.name, [&] {
        return locks.request_release(whom, {.within = options.within, .reason = options.reason});
    });
    if (left && whom.who.owner.starts_with(owner_of_scripts)) {
        throw failure{busy,
                      fmt::format("{} was taken by `rowlock acquire` and ends in {}: it has no "
                                  "process that could be asked to stop, but it is not renewed any "
                                  "more; `rowlock break --now` takes it",
                                  options.name, to_text(whom.who.remaining))};
    }
    if (!left) {
        refuse_if_renewed(locks, options, whom);
        report(options, in, "gone", "is not held by that holder any more");
        return success;
    }
    if (!options.json) {
        complain(fmt::format("{}, and is asked to {}; {}", holder_text(options.name, whom),
                             options.within > 0ms ? "finish within " + to_text(*left) : "stop",
                             queue_text(queue)));
    }
    // Adds a second for the reply to the last question.
    const milliseconds limit = options.wait.value_or(*left + 1s);
    const auto how = wait_for_end(locks, in, whom, limit, signals);
    if (how != ending::none) {
        report(options, in, outcome_of(how), escaped(text_of(how, whom)));
        return success;
    }
    throw failure{busy,
                  fmt::format("the holder of {} was asked to stop and has not yet: the lock is "
                              "free within {} of the request",
                              options.name, to_text(*left))};
}

int take_away(named_locks& locks, const database& in, const break_options& options,
              const breakable& whom) {
    // Another client may have taken the lock meanwhile.
    const bool taken = beside_blockers(in, options.name, [&] { return locks.force_release(whom); });
    if (!taken) refuse_if_renewed(locks, options, whom);
    const bool dead = whom.who.remaining <= 0ms;
    report(options, in, taken ? "taken" : "gone",
           !taken ? "is not held by that holder any more"
           : dead ? "was taken from a dead session"
                  : "was taken from its holder, which works on until it learns of it");
    return success;
}

/// The hold that the caller means; nullopt if there is none.
/// @throws failure if there are several
std::optional<breakable> chosen(const break_options& options, std::vector<breakable> holds) {
    if (options.token) {
        std::erase_if(holds, [&](const breakable& each) {
            return each.token != *options.token && each.first_token != *options.token;
        });
    }
    if (holds.size() > 1) {
        throw failure{usage, fmt::format("{} has {} holders: choose one by --token, and by --kind "
                                         "where a token occurs twice; `rowlock show {}` lists them",
                                         options.name, holds.size(), options.name)};
    }
    if (holds.empty()) return std::nullopt;
    return std::move(holds.front());
}

}  // namespace

int break_lock(const break_options& options) {
    const database in = find_database(options.database);
    client_options me = tool_options();
    me.program = "rowlock break of " + user_name();
    client locks{in.source, me};
    named_locks named{locks, options.name};
    const auto whom = chosen(options, with_tables(in, [&] { return named.holds(options.of); }));
    if (!whom) {
        if (!is_known(locks, options.name)) throw no_such_lock(in, locks, options.name);
        options.token ? report(options, in, "gone", "is not held by that holder any more")
                      : report(options, in, "free", "was free");
        return success;
    }
    const auto queue = named.waiters(whom->of);
    confirm(options, *whom, queue);
    return options.now ? take_away(named, in, options, *whom)
                       : ask_to_stop(named, in, options, *whom, queue);
}

}  // namespace rowlock::cli

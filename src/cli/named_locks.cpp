#include "cli/named_locks.hpp"

#include "cli/lock_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rowlock::cli {
namespace {

using kind = breakable::kind;

constexpr int most = 10'000;

}  // namespace

std::optional<kind> break_kind(std::string_view text) noexcept {
    if (text == "lease") return kind::lease;
    if (text == "semaphore") return kind::semaphore;
    if (text == "shared_mutex") return kind::shared_mutex;
    return std::nullopt;
}

std::vector<breakable> named_locks::holds(std::optional<kind> of) {
    std::vector<breakable> all;
    if (!of || *of == kind::lease) {
        const auto row = locks_.inspect(name_);
        if (row && row->holder) all.push_back({kind::lease, row->token, *row->holder});
    }
    if (of && *of == kind::lease) return all;
    auto others = if_allowed([&] { return of_counters(of); });
    if (!others) return all;
    // A holder of the whole lock is one of its shared_mutex, too.
    for (auto& each : *others) {
        const auto same = [&](const breakable& one) {
            return one.who.grant_id == each.who.grant_id;
        };
        if (std::ranges::none_of(all, same)) all.push_back(std::move(each));
    }
    return all;
}

std::optional<breakable> named_locks::find(const breakable& whom) {
    auto all = holds(whom.of);
    const auto found = std::ranges::find_if(all, [&](const breakable& each) {
        return each.who.session == whom.who.session && each.who.grant_id == whom.who.grant_id;
    });
    if (found == all.end()) return std::nullopt;
    return std::move(*found);
}

std::vector<waiter_info> named_locks::waiters(kind of) {
    std::vector<waiter_info> all;
    const auto add = [&](auto queue) {
        for (auto& each : queue) all.push_back(std::move(each.who));
    };
    switch (of) {
        case kind::semaphore:
            add(semaphore_.waiters());
            break;
        case kind::shared_mutex:
            add(shared_.waiters());
            break;
        case kind::lease:
            all = locks_.waiters(name_);
    }
    return all;
}

std::optional<std::chrono::milliseconds> named_locks::request_release(
    const breakable& whom, const request_options& terms) {
    switch (whom.of) {
        case kind::semaphore:
            return semaphore_.request_release(whom.token, terms);
        case kind::shared_mutex:
            return shared_.request_release(whom.token, terms);
        case kind::lease:
            break;
    }
    return locks_.request_release(name_, whom.token, terms);
}

bool named_locks::force_release(const breakable& whom) {
    switch (whom.of) {
        case kind::semaphore:
            return semaphore_.force_release(whom.token);
        case kind::shared_mutex:
            return shared_.force_release(whom.token);
        case kind::lease:
            break;
    }
    return locks_.force_release(name_, whom.token);
}

std::vector<breakable> named_locks::of_counters(std::optional<kind> of) {
    std::vector<breakable> all;
    if (!of || *of == kind::shared_mutex) {
        for (auto& each : shared_.holders(most)) {
            all.push_back({kind::shared_mutex, each.token, std::move(each.who),
                           to_string(each.mode), each.first_token});
        }
    }
    if (of && *of == kind::shared_mutex) return all;
    if (!semaphore_.inspect()) return all;
    for (auto& each : semaphore_.holders(most)) {
        all.push_back({kind::semaphore, each.token, std::move(each.who),
                       fmt::format("{} permits", each.permits)});
    }
    return all;
}

}  // namespace rowlock::cli

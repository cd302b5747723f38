#include "cli/near_names.hpp"

#include "cli/pages.hpp"
#include <rowlock/error.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/periodic_run.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace rowlock::cli {
namespace {

/// The number of letters to change, insert or delete.
std::size_t distance(std::string_view from, std::string_view to) {
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < from.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < to.size(); ++j) {
            const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, changed});
        }
    }
    return row.back();
}

/// What `read` returns; nothing if this user may not read it.
template <typename Read>
auto if_there(Read read) -> decltype(read()) {
    try {
        return read();
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
        return {};
    }
}

std::vector<std::string> names_in_use(client& locks) {
    constexpr int most = 10'000;
    std::vector<std::string> all;
    const auto add = [&](auto read_page) {
        for (auto& row : read_pages({}, most, read_page).first) all.push_back(std::move(row.name));
        return true;
    };
    add([&](const page& next) { return locks.list({}, next); });
    if_there([&] {
        return add([&](const page& next) { return list_semaphores(locks, {}, next); }) &&
               add([&](const page& next) { return list_shared_mutexes(locks, {}, next); });
    });
    return all;
}

/// The nearest three: few letters differ, or one is a part of the other.
std::vector<std::string> nearest(std::string_view typed, std::vector<std::string> names) {
    constexpr std::size_t shown = 3;
    const std::size_t most = std::max<std::size_t>(1, std::min<std::size_t>(3, typed.size() / 3));
    std::vector<std::pair<std::size_t, std::string>> near;
    for (auto& each : names) {
        const std::size_t far = distance(typed, each);
        const bool part = each.find(typed) != std::string::npos ||
                          (each.size() > 2 && typed.find(each) != std::string_view::npos);
        if (far <= most || part) near.emplace_back(far, std::move(each));
    }
    std::ranges::sort(near);
    near.erase(std::unique(near.begin(), near.end()), near.end());  // of two kinds
    if (near.size() > shown) near.erase(near.begin() + shown, near.end());
    std::vector<std::string> found;
    for (auto& each : near) found.push_back(std::move(each.second));
    return found;
}

}  // namespace

std::string suggestion(std::string_view typed, const std::vector<std::string>& words) {
    const std::string* best = nullptr;
    std::size_t least = std::min<std::size_t>(2, typed.size() / 2) + 1;
    for (const auto& each : words) {
        const std::size_t far = distance(typed, each);
        if (far >= least) continue;
        least = far;
        best = &each;
    }
    return best == nullptr ? "" : fmt::format("; did you mean {}?", *best);
}

bool is_known(client& locks, const std::string& text) {
    const lock_name name{text};
    return locks.inspect(name) || if_there([&] {
               return rowlock::semaphore{locks, name}.inspect().has_value() ||
                      shared_mutex{locks, name}.exists();
           }) ||
           if_there([&] { return periodic_run::inspect(locks, name).has_value(); }) ||
           if_there([&] { return locks.max_hold(name).has_value(); });
}

std::string names_near(client& locks, const std::string& name) {
    const auto near = nearest(name, names_in_use(locks));
    std::string text;
    for (const auto& each : near) {
        const bool last = &each == &near.back();
        text += (text.empty() ? "; did you mean " : last ? " or " : ", ") + each;
    }
    return text.empty() ? text : text + "?";
}

failure no_such_lock(const database& in, client& locks, const std::string& name) {
    return {answer_is_no, fmt::format("no such lock in {}: {}{}", description_of(in), name,
                                      names_near(locks, name))};
}

void require_known(const database& in, const std::string& name) {
    client locks{in.source, tool_options()};
    if (!with_tables(in, [&] { return is_known(locks, name); })) {
        throw no_such_lock(in, locks, name);
    }
}

failure not_held(const database& in, const std::string& name, const std::string& otherwise) {
    try {
        client locks{in.source, tool_options()};
        if (!is_known(locks, name)) return no_such_lock(in, locks, name);
    } catch (const error&) {
        // The answer is the same without the reason.
    }
    return {answer_is_no, otherwise};
}

}  // namespace rowlock::cli

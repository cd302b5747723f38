#include "cli/serve/json_views.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>

namespace rowlock::cli::serving {
namespace {

/// Holders and waiters of a lock that each page has: enough for a picture.
constexpr std::size_t shown = 20;

json party_to_json(const view::party& one) {
    json object{{"session", as_text(one.session)},
                {"grant_id", as_text(one.grant_id)},
                {"owner", one.owner},
                {"host", one.host},
                {"program", one.program},
                {"pid", one.pid},
                {"thread", one.thread},
                {"note", one.note},
                {"since", milliseconds_of(one.since)}};
    if (one.permits != 0) object["permits"] = one.permits;
    if (one.mode != nullptr) object["mode"] = one.mode;
    return object;
}

json hold_to_json(const view::holder& one) {
    json object = party_to_json(one);
    object["token"] = as_text(one.token.value());
    if (one.expired) object["expired"] = true;
    if (one.deadline) object["deadline"] = milliseconds_of(*one.deadline);
    if (one.asked_by) object["asked_by"] = *one.asked_by;
    if (!one.reason.empty()) object["reason"] = one.reason;
    return object;
}

json entry_to_json(const view::entry& one) {
    json object = party_to_json(one);
    if (one.priority != 0) object["priority"] = one.priority;
    if (one.locks != 1) object["locks"] = one.locks;
    return object;
}

template <typename Parties>
std::int64_t oldest(const Parties& all) {
    const auto first = std::ranges::min_element(all, {}, &view::party::since);
    return milliseconds_of(first->since);
}

}  // namespace

std::int64_t milliseconds_of(view::time_point time) {
    return std::chrono::floor<std::chrono::milliseconds>(time).time_since_epoch().count();
}

std::string text_of(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string key_of(const view::lock& one) {
    return to_string(one.of) + (":" + one.name);
}

json lock_to_json(const view::lock& one, std::size_t most) {
    json object{{"key", key_of(one)}, {"name", one.name}, {"kind", to_string(one.of)}};
    if (one.of == view::kind::semaphore) {
        object["capacity"] = one.capacity;
        object["used"] = one.used;
        if (one.expired > 0) object["expired_permits"] = one.expired;
    }
    const auto dead = std::ranges::count(one.holds, true, &view::holder::expired);
    object["held"] = std::ssize(one.holds) - dead;
    if (dead > 0) object["expired"] = dead;
    object["waiting"] = one.queue.size();
    if (!one.holds.empty()) object["since"] = oldest(one.holds);
    if (!one.queue.empty()) object["waiting_since"] = oldest(one.queue);
    json holders = json::array();
    json queue = json::array();
    for (const auto& each : one.holds) {
        if (holders.size() == most) break;
        holders.push_back(hold_to_json(each));
    }
    for (const auto& each : one.queue) {
        if (queue.size() == most) break;
        queue.push_back(entry_to_json(each));
    }
    object["holders"] = std::move(holders);
    object["queue"] = std::move(queue);
    return object;
}

std::string row_text(const view::lock& one) {
    return text_of(lock_to_json(one, shown));
}

json cycles_to_json(const view::snapshot& all) {
    json array = json::array();
    for (const auto& each : all.cycles) {
        json entries = json::array();
        for (const auto id : each.entries) entries.push_back(as_text(id));
        array.push_back({{"text", each.description}, {"entries", std::move(entries)}});
    }
    return array;
}

json sessions_to_json(const view::sessions_seen& all) {
    json array = json::array();
    for (const auto& each : all.sessions) {
        array.push_back(
            {{"id", as_text(each.id)},
             {"owner", each.owner},
             {"host", each.host},
             {"program", each.program},
             {"pid", each.pid},
             {"opened", milliseconds_of(each.opened)},
             {"expires", milliseconds_of(each.expires)},
             {"ttl_ms", std::chrono::floor<std::chrono::milliseconds>(each.ttl).count()},
             {"heartbeats", each.heartbeats}});
    }
    return {{"at", milliseconds_of(all.at)}, {"sessions", std::move(array)}};
}

}  // namespace rowlock::cli::serving

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/history_json.hpp"
#include "cli/near_names.hpp"
#include "cli/table.hpp"
#include "view/past.hpp"
#include <rowlock/history.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace rowlock::cli {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using view::past_hold;

std::int64_t whole_milliseconds(microseconds time) {
    return std::chrono::floor<milliseconds>(time).count();
}

/// How long it lasted, or has lasted by now; nullopt if its beginning or its end is not recorded.
std::optional<microseconds> length_of(const past_hold& hold, view::history_time now) {
    if (!hold.from || (!hold.to && !hold.is_held())) return std::nullopt;
    return hold.to.value_or(now) - *hold.from;
}

template <typename Id>
void add_id(json& object, const char* key, Id id) {
    if (id != Id{}) object[key] = as_text(id);
}

void add_text(json& object, const char* key, const std::string& text) {
    if (!text.empty()) object[key] = text;
}

json request_to_json(const view::asked_release& one) {
    json object{{"at", utc(one.at)}, {"by", one.by}};
    add_text(object, "reason", one.reason);
    if (one.until) object["until"] = utc(*one.until);
    add_text(object, "db_user", one.db_user);
    return object;
}

}  // namespace

json to_json(const history_record& one) {
    json object{{"id", as_text(one.id)}, {"at", utc(one.at)}, {"kind", to_string(one.kind)}};
    add_text(object, "name", one.name);
    add_id(object, "token", one.token.value());
    add_id(object, "session", one.session);
    add_id(object, "grant_id", one.grant_id);
    add_id(object, "ticket", one.ticket);
    add_id(object, "previous_session", one.previous_session);
    if (one.ends_at) object["ends_at"] = utc(*one.ends_at);
    add_text(object, "owner", one.owner);
    add_text(object, "host", one.host);
    if (one.pid != 0) object["pid"] = one.pid;
    add_text(object, "program", one.program);
    add_text(object, "note", one.note);
    add_text(object, "reason", one.reason);
    add_text(object, "db_user", one.db_user);
    if (one.of != history_of::lease) {
        object["of"] = to_string(one.of);
        if (const auto mode = one.mode()) {
            object["mode"] = to_string(*mode);
        } else {
            object["permits"] = one.permits;
        }
    }
    return object;
}

json to_json(const past_hold& hold, view::history_time now) {
    json object{{"name", hold.name}, {"of", to_string(hold.of)}};
    if (hold.from) object["from"] = utc(*hold.from);
    if (!hold.from) object["before"] = utc(hold.seen);
    if (hold.to) object["to"] = utc(*hold.to);
    if (const auto lasted = length_of(hold, now)) object["for_ms"] = whole_milliseconds(*lasted);
    object["ended"] = to_string(hold.how);
    object["text"] = text_of_end(hold);
    if (hold.begun) object["begun"] = to_string(*hold.begun);
    if (hold.waited) object["waited_ms"] = whole_milliseconds(*hold.waited);
    object["session"] = as_text(hold.session);
    add_id(object, "grant_id", hold.grant_id);
    add_id(object, "token", hold.token.value());
    if (hold.mode) object["mode"] = to_string(*hold.mode);
    if (hold.of == history_of::semaphore) object["permits"] = hold.permits;
    add_text(object, "owner", hold.owner);
    add_text(object, "host", hold.host);
    if (hold.pid != 0) object["pid"] = hold.pid;
    add_text(object, "program", hold.program);
    add_text(object, "note", hold.note);
    if (hold.deadline) object["deadline"] = utc(*hold.deadline);
    add_text(object, "ended_by", hold.ended_by);
    add_text(object, "ended_by_db_user", hold.ended_by_login);
    json requests = json::array();
    for (const auto& each : hold.asked) requests.push_back(request_to_json(each));
    if (!requests.empty()) object["asked"] = std::move(requests);
    return object;
}

json to_json(const view::past& all) {
    json records = json::array();
    for (const auto& each : all.records) records.push_back(to_json(each));
    json holds = json::array();
    for (const auto& each : all.holds) holds.push_back(to_json(each, all.now));
    return {{"holds", std::move(holds)}, {"records", std::move(records)}};
}

namespace {

/// The mode, or the number of permits.
std::string share_of(history_of of, std::optional<lock_mode> mode, std::int64_t permits) {
    if (mode) return to_string(*mode);
    return of == history_of::semaphore ? std::to_string(permits) : "-";
}

std::string local_time(view::history_time at, const char* format = "{:%F %T}") {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    const auto time = std::chrono::system_clock::to_time_t(seconds);
    return fmt::format("{}.{:03}", fmt::format(fmt::runtime(format), fmt::localtime(time)),
                       std::chrono::floor<milliseconds>(at - seconds).count());
}

/// Without the date if that is the day on which the hold began.
std::string end_time(const past_hold& hold) {
    if (!hold.to) return "-";
    const auto whole = local_time(*hold.to);
    constexpr std::size_t date = 10;
    const bool same_day = hold.from && local_time(*hold.from).starts_with(whole.substr(0, date));
    return same_day ? local_time(*hold.to, "{:%T}") : whole;
}

std::string client_text(const std::string& program, std::int64_t pid, const std::string& host) {
    return host.empty() ? "-" : fmt::format("{}[{}]@{}", program, pid, host);
}

std::string token_text(fencing_token token) {
    return token.value() == 0 ? "-" : as_text(token.value());
}

std::string text_of(const view::past& all) {
    std::vector<std::vector<std::string>> cells;
    for (const auto& hold : all.holds) {
        const auto lasted = length_of(hold, all.now);
        cells.push_back(
            {hold.from ? local_time(*hold.from) : "before " + local_time(hold.seen), end_time(hold),
             lasted ? to_text(std::chrono::floor<milliseconds>(*lasted)) : "-", hold.name,
             share_of(hold.of, hold.mode, hold.permits), token_text(hold.token),
             client_text(hold.program, hold.pid, hold.host), text_of_end(hold), hold.note});
    }
    return table({"FROM", "TO", "FOR", "NAME", "SHARE", "TOKEN", "HOLDER", "ENDED", "NOTE"}, cells);
}

std::string text_of(const std::vector<history_record>& records) {
    std::vector<std::vector<std::string>> cells;
    for (const auto& one : records) {
        cells.push_back({local_time(one.at), to_string(one.kind), one.name.empty() ? "-" : one.name,
                         share_of(one.of, one.mode(), one.permits), token_text(one.token),
                         client_text(one.program, one.pid, one.host),
                         one.reason.empty() ? one.note : one.note + ": " + one.reason});
    }
    return table({"TIME", "WHAT", "NAME", "SHARE", "TOKEN", "CLIENT", "NOTE"}, cells);
}

}  // namespace

int history(const history_options& options) {
    const database in = find_database(options.database);
    const auto found = view::read_past(
        in.source, {.name = options.name, .since = options.since, .limit = options.limit});
    if (found.records.empty() && !options.name.empty()) require_known(in, options.name);
    if (options.json) {
        json object{{"database", in.source.description()}};
        object.update(to_json(found));
        print_json(object);
        return success;
    }
    if (found.records.empty() || (found.holds.empty() && !options.records)) {
        print(fmt::format("nothing is recorded in {}\n", escaped(description_of(in))));
        return success;
    }
    print(escaped(description_of(in)) + "\n" +
          (options.records ? text_of(found.records) : text_of(found)));
    return success;
}

}  // namespace rowlock::cli

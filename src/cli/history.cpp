#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/table.hpp"
#include <rowlock/history.hpp>

#include <fmt/format.h>

namespace rowlock::cli {
namespace {

json to_json(const history_record& one) {
    json object{{"id", as_text(one.id)}, {"at", utc(one.at)}, {"kind", to_string(one.kind)}};
    const auto add_id = [&](const char* key, auto id) {
        if (id != decltype(id){}) object[key] = as_text(id);
    };
    const auto add_text = [&](const char* key, const std::string& text) {
        if (!text.empty()) object[key] = text;
    };
    add_text("name", one.name);
    add_id("token", one.token.value());
    add_id("session", one.session);
    add_id("grant_id", one.grant_id);
    add_id("ticket", one.ticket);
    add_id("previous_session", one.previous_session);
    if (one.ends_at) object["ends_at"] = utc(*one.ends_at);
    add_text("owner", one.owner);
    add_text("host", one.host);
    if (one.pid != 0) object["pid"] = one.pid;
    add_text("program", one.program);
    add_text("note", one.note);
    add_text("db_user", one.db_user);
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

template <typename Number>
std::string or_dash(Number number) {
    return number == Number{} ? "-" : as_text(number);
}

/// The mode, or the number of permits.
std::string share_of(const history_record& one) {
    if (const auto mode = one.mode()) return to_string(*mode);
    return one.of == history_of::semaphore ? std::to_string(one.permits) : "-";
}

std::vector<std::string> to_cells(const history_record& one) {
    const bool known = !one.host.empty();
    return {utc(one.at),
            to_string(one.kind),
            one.name.empty() ? "-" : one.name,
            share_of(one),
            or_dash(one.token.value()),
            or_dash(one.session),
            known ? one.host : "-",
            known ? std::to_string(one.pid) : "-",
            known ? one.program : "-",
            one.note};
}

}  // namespace

int history(const history_options& options) {
    const database in = find_database(options.database);
    const auto records = read_history(
        in.source, {.name = options.name, .since = options.since, .limit = options.limit});
    if (options.json) {
        json array = json::array();
        for (const auto& one : records) array.push_back(to_json(one));
        print_json(json{{"database", in.source.description()}, {"records", array}});
        return success;
    }
    if (records.empty()) {
        print(fmt::format("nothing is recorded in {}\n", escaped(description_of(in))));
        return success;
    }
    std::vector<std::vector<std::string>> cells;
    for (const auto& one : records) cells.push_back(to_cells(one));
    print(escaped(description_of(in)) + "\n" +
          table({"TIME", "WHAT", "NAME", "SHARE", "TOKEN", "SESSION", "HOST", "PID", "PROGRAM",
                 "NOTE"},
                cells));
    return success;
}

}  // namespace rowlock::cli

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/pages.hpp"
#include "cli/text.hpp"
#include <rowlock/shared_mutex.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace rowlock::cli {
namespace {

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

json to_json(const std::vector<mode_holder>& holders) {
    json array = json::array();
    for (const auto& [who, token, mode] : holders) {
        json object{{"mode", to_string(mode)}, {"token", as_text(token.value())}};
        object.update(holder_to_json(who));
        array.push_back(std::move(object));
    }
    return array;
}

std::string in_full(const std::vector<mode_holder>& holders) {
    if (holders.empty()) return {};
    std::vector<std::vector<std::string>> cells;
    for (const auto& [who, token, mode] : holders) {
        cells.push_back({to_string(mode), std::to_string(token.value()), who.host,
                         std::to_string(who.pid), who.program, to_text(who.held_for),
                         to_text(who.remaining), who.note});
    }
    return "\n" +
           table({"MODE", "TOKEN", "HOST", "PID", "PROGRAM", "HELD", "REMAINING", "NOTE"}, cells);
}

int show(const database& in, client& locks, const counter_options& options) {
    shared_mutex one{locks, options.name};
    const auto row = with_tables(in, [&] { return one.inspect(); });
    if (!row) {
        throw failure{answer_is_no,
                      fmt::format("\"{}\" was never used as a shared_mutex in {}: `rowlock run "
                                  "--shared` and --exclusive use one",
                                  options.name, description_of(in))};
    }
    const auto holders = one.holders(std::min(options.limit, 10'000));
    if (options.json) {
        json object{{"database", in.source.description()}};
        object.update(to_json(*row));
        object["holders"] = to_json(holders);
        print_json(object);
        return success;
    }
    print(fmt::format("database   {}\nname       {}\nstate      {}\nreaders    {}\nwaiting    {}\n",
                      escaped(description_of(in)), escaped(row->name), state_of(*row), row->shared,
                      row->waiting) +
          in_full(holders));
    return success;
}

int list(const database& in, client& locks, const counter_options& options) {
    const auto [rows, more] = read_pages(options.after, options.limit, [&](const page& next) {
        return with_tables(in, [&] { return list_shared_mutexes(locks, options.name, next); });
    });
    if (options.json) {
        json array = json::array();
        for (const auto& row : rows) array.push_back(to_json(row));
        print_json(
            json{{"database", in.source.description()}, {"shared_mutexes", array}, {"more", more}});
        return success;
    }
    const std::string where = escaped(description_of(in));
    if (rows.empty()) {
        print(fmt::format("no shared_mutexes in {}\n", where));
        return success;
    }
    std::vector<std::vector<std::string>> cells;
    for (const auto& row : rows) {
        cells.push_back(
            {row.name, state_of(row), std::to_string(row.shared), std::to_string(row.waiting)});
    }
    print(where + "\n" + table({"NAME", "STATE", "READERS", "WAITING"}, cells));
    if (more) {
        complain(fmt::format("there are more than {}: use --limit, or --after with the last name",
                             options.limit));
    }
    return success;
}

}  // namespace

int shared_locks(counter_options::what what, const counter_options& options) {
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    if (what == counter_options::what::show) return show(in, locks, options);
    return list(in, locks, options);
}

}  // namespace rowlock::cli

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/pages.hpp"
#include "cli/text.hpp"
#include <rowlock/semaphore.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace rowlock::cli {
namespace {

json to_json(const semaphore_info& row) {
    return {{"name", row.name},       {"capacity", row.capacity},
            {"used", row.used},       {"available", row.available()},
            {"waiting", row.waiting}, {"wanted", row.wanted}};
}

json to_json(const std::vector<permit_holder>& holders) {
    json array = json::array();
    for (const auto& [who, token, permits] : holders) {
        json object{{"permits", permits}, {"token", as_text(token.value())}};
        object.update(holder_to_json(who));
        array.push_back(std::move(object));
    }
    return array;
}

std::string in_full(const semaphore_info& row) {
    return fmt::format(
        "name       {}\ncapacity   {}\nused       {}\navailable  {}\nwaiting    {}, for {} "
        "permits\n",
        escaped(row.name), row.capacity, row.used, row.available(), row.waiting, row.wanted);
}

std::string in_full(const std::vector<permit_holder>& holders) {
    if (holders.empty()) return {};
    std::vector<std::vector<std::string>> cells;
    for (const auto& [who, token, permits] : holders) {
        cells.push_back({std::to_string(permits), std::to_string(token.value()), who.host,
                         std::to_string(who.pid), who.program, to_text(who.held_for),
                         to_text(who.remaining), who.note});
    }
    return "\n" + table({"PERMITS", "TOKEN", "HOST", "PID", "PROGRAM", "HELD", "REMAINING", "NOTE"},
                        cells);
}

int set(const database& in, client& locks, const counter_options& options) {
    rowlock::semaphore one{locks, lock_name{options.name}};
    with_tables(in, [&] {
        one.set_capacity(options.capacity);
        return true;
    });
    if (options.json) {
        json object{{"database", in.source.description()}};
        object.update(to_json(one.inspect().value_or(semaphore_info{.name = options.name})));
        print_json(object);
    }
    return success;
}

int show(const database& in, client& locks, const counter_options& options) {
    rowlock::semaphore one{locks, lock_name{options.name}};
    const auto row = with_tables(in, [&] { return one.inspect(); });
    if (!row) {
        throw failure{answer_is_no, fmt::format("there is no semaphore \"{}\" in {}: `rowlock "
                                                "semaphore set` makes one",
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
    print(fmt::format("database   {}\n", escaped(description_of(in))) + in_full(*row) +
          in_full(holders));
    return success;
}

int list(const database& in, client& locks, const counter_options& options) {
    const auto [rows, more] = read_pages(options.after, options.limit, [&](const page& next) {
        return with_tables(in, [&] { return list_semaphores(locks, options.name, next); });
    });
    if (options.json) {
        json array = json::array();
        for (const auto& row : rows) array.push_back(to_json(row));
        print_json(
            json{{"database", in.source.description()}, {"semaphores", array}, {"more", more}});
        return success;
    }
    const std::string where = escaped(description_of(in));
    if (rows.empty()) {
        print(fmt::format("no semaphores in {}\n", where));
        return success;
    }
    std::vector<std::vector<std::string>> cells;
    for (const auto& row : rows) {
        cells.push_back({row.name, std::to_string(row.capacity), std::to_string(row.used),
                         std::to_string(row.available()), std::to_string(row.waiting),
                         std::to_string(row.wanted)});
    }
    print(where + "\n" +
          table({"NAME", "CAPACITY", "USED", "AVAILABLE", "WAITING", "WANTED"}, cells));
    if (more) {
        complain(fmt::format("there are more than {}: use --limit, or --after with the last name",
                             options.limit));
    }
    return success;
}

}  // namespace

int semaphore(counter_options::what what, const counter_options& options) {
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    switch (what) {
        case counter_options::what::set:
            return set(in, locks, options);
        case counter_options::what::show:
            return show(in, locks, options);
        case counter_options::what::list:
            break;
    }
    return list(in, locks, options);
}

}  // namespace rowlock::cli

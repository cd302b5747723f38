// `rowlock policy`.

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/text.hpp"
#include <rowlock/client.hpp>

#include <fmt/format.h>

namespace rowlock::cli {

int policy(const policy_options& options) {
    const lock_name name{options.name};
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    const bool sets = options.max_hold || options.no_max_hold;
    if (sets) {
        with_tables(in, [&] {
            locks.set_max_hold(name, options.max_hold);
            return true;
        });
        if (!options.json) return success;
    }
    const auto max_hold = with_tables(in, [&] { return locks.max_hold(name); });
    if (options.json) {
        json object{{"database", in.source.description()},
                    {"name", options.name},
                    {"max_hold_ms", nullptr}};
        if (max_hold) object["max_hold_ms"] = max_hold->count();
        print_json(object);
        return success;
    }
    print(fmt::format("database   {}\nname       {}\nmax hold   {}\n", escaped(description_of(in)),
                      escaped(options.name), max_hold ? to_text(*max_hold) : "no limit"));
    return success;
}

}  // namespace rowlock::cli

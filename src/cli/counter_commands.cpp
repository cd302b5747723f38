// `rowlock semaphore` and `rowlock shared`.

#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/lock_view.hpp"
#include "cli/near_names.hpp"
#include "cli/pages.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include <rowlock/semaphore.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace rowlock::cli {
namespace {

int set(const database& in, client& locks, const counter_options& options) {
    rowlock::semaphore one{locks, lock_name{options.name}};
    with_tables(in, [&] {
        one.set_capacity(options.capacity);
        return true;
    });
    if (options.json) {
        json object{{"database", in.source.description()}};
        const auto now = one.inspect().value_or(semaphore_info{.name = options.name});
        object.update(to_json(expired_holds{in, std::vector{now}}.without(now)));
        print_json(object);
    }
    return success;
}

/// @param advice if it is not there
int print_one(const database& in, client& locks, const counter_options& options,
              const std::optional<counter_shown>& found, std::string_view advice) {
    if (!found) {
        throw failure{answer_is_no,
                      fmt::format(fmt::runtime(advice), options.name, description_of(in)) +
                          names_near(locks, options.name)};
    }
    if (options.json) {
        json object{{"database", in.source.description()}};
        object.update(found->object);
        print_json(object);
        return success;
    }
    print(fmt::format("database   {}\n{}", escaped(description_of(in)), found->text));
    return success;
}

int print_list(const database& in, const counter_options& options, const counter_list& found,
               const char* plural) {
    if (options.json) {
        print_json(json{
            {"database", in.source.description()}, {plural, found.array}, {"more", found.more}});
        return success;
    }
    const std::string where = escaped(description_of(in));
    if (found.cells.empty()) {
        print(fmt::format("no {} in {}\n", plural, where));
        return success;
    }
    print(where + "\n" + table(found.headings, found.cells));
    if (found.more) complain_of_more(options.limit);
    return success;
}

list_range range_of(const counter_options& options) {
    return {.prefix = options.name, .after = options.after, .limit = options.limit};
}

int holders_to_show(const counter_options& options) {
    return std::min(options.limit, 10'000);
}

}  // namespace

int semaphore(counter_options::what what, const counter_options& options) {
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    switch (what) {
        case counter_options::what::set:
            return set(in, locks, options);
        case counter_options::what::show:
            return print_one(in, locks, options,
                             shown_semaphore(in, locks, options.name, holders_to_show(options)),
                             "there is no semaphore \"{}\" in {}: `rowlock semaphore set` makes "
                             "one");
        case counter_options::what::list:
            break;
    }
    return print_list(in, options, list_of_semaphores(in, locks, range_of(options)), "semaphores");
}

int shared_locks(counter_options::what what, const counter_options& options) {
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    if (what == counter_options::what::show) {
        return print_one(in, locks, options,
                         shown_shared_mutex(in, locks, options.name, holders_to_show(options)),
                         "\"{}\" was never used as a shared_mutex in {}: `rowlock run --shared` "
                         "and --exclusive use one");
    }
    return print_list(in, options, list_of_shared_mutexes(in, locks, range_of(options)),
                      "shared_mutexes");
}

}  // namespace rowlock::cli

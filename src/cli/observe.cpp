#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/json.hpp"
#include "cli/text.hpp"
#include <rowlock/client.hpp>
#include <rowlock/election.hpp>
#include <rowlock/error.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <string>
#include <utility>

namespace rowlock::cli {
namespace {

/// When it was seen, by this machine's clock.
std::string now_in_utc() {
    using namespace std::chrono;
    return utc(floor<microseconds>(system_clock::now()));
}

std::string in_words(const election_state& seen) {
    if (!seen.leader) {
        if (seen.term.value() == 0) return "no leader yet";
        return fmt::format("no leader since term {}", seen.term.value());
    }
    const auto& [term, value, who] = *seen.leader;
    return fmt::format("term {} is led by {}, pid {} ({}){}{}", term.value(), escaped(who.host),
                       who.pid, escaped(who.program), value.empty() ? "" : ": ", escaped(value));
}

json to_json(const std::string& name, const election_state& seen) {
    json object{{"at", now_in_utc()},
                {"name", name},
                {"term", as_text(seen.term.value())},
                {"value", nullptr},
                {"leader", nullptr}};
    if (seen.leader) {
        object["value"] = seen.leader->value;
        object["leader"] = holder_to_json(seen.leader->who);
    }
    return object;
}

}  // namespace

int observe(const observe_options& options) {
    const lock_name name{options.name};
    const database in = find_database(options.database);
    client locks{in.source, tool_options()};
    election office{locks, name};
    auto changes = office.observe({.poll_interval = options.poll});
    auto seen = with_tables(in, [&] { return changes.next(); });
    // An outage is reported once, and the next change follows it.
    for (std::string said;;) {
        print(options.json ? json_line(to_json(options.name, *seen))
                           : fmt::format("{}  {}\n", now_in_utc(), in_words(*seen)));
        if (options.once) return seen->leader ? success : answer_is_no;
        for (bool answered = false; !answered;) {
            try {
                seen = changes.next();
                answered = true;
                said.clear();
            } catch (const error& failed) {
                if (exit_code_of(failed.kind()) != unreachable) throw;
                const std::string why = message_of(failed) + "; observing on";
                if (std::exchange(said, why) != why) complain(why);
                poll(nullptr, 0, 1000);
            }
        }
    }
}

}  // namespace rowlock::cli

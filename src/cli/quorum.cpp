#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/text.hpp"
#include <rowlock/quorum.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace rowlock::cli {
namespace {

void print_members(const std::vector<quorum_member_info>& members, bool as_json) {
    if (as_json) {
        json all = json::array();
        for (const auto& each : members) {
            all.push_back({{"database", each.description},
                           {"server", each.server},
                           {"answers", each.answers},
                           {"votes", each.votes},
                           {"problem", each.problem}});
        }
        return print_json(json{{"members", all}});
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
        const auto& one = members[i];
        print(fmt::format("{}  {}  {}{}{}\n", i + 1, one.votes ? "votes" : "does not vote",
                          escaped(one.description), one.problem.empty() ? "" : ": ",
                          escaped(one.problem)));
    }
}

int show_status(const std::vector<sql::connection_source>& members, bool as_json) {
    const auto seen = inspect_quorum(members);
    print_members(seen, as_json);
    const auto votes = static_cast<std::size_t>(
        std::ranges::count_if(seen, [](const quorum_member_info& each) { return each.votes; }));
    if (votes == seen.size()) return success;
    return votes > seen.size() / 2 ? answer_is_no : unreachable;
}

}  // namespace

int quorum(const quorum_options& options) {
    const auto members = members_in(options.members);
    switch (options.what) {
        case quorum_options::action::init:
            found_quorum(members, options.longest_ttl);
            break;
        case quorum_options::action::readmit:
            if (options.position < 1 ||
                options.position > static_cast<std::int64_t>(members.size())) {
                throw failure{usage, fmt::format("readmit needs --position, from 1 to {}: the line "
                                                 "of the member in the file",
                                                 members.size())};
            }
            readmit_member(members, static_cast<std::size_t>(options.position - 1));
            break;
        case quorum_options::action::restart:
            restart_quorum(members);
            break;
        case quorum_options::action::status:
            break;
    }
    return show_status(members, options.json);
}

}  // namespace rowlock::cli

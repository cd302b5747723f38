// Commands on a Galera node.

#include "support/galera_node.hpp"
#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <string>

using support::soon;

// The member that serves may have another clock than the one that enqueued.
TEST_CASE("on a Galera node a command that waits for so long has no time limit in the queue") {
    const auto node = support::galera_node::start();
    if (!node) return;
    const tool::setting there{.variables = {{"ROWLOCK_URL", node->url()}}};
    REQUIRE(tool::rowlock({"migrate"}, there).code == 0);
    const auto admin = rowlock::open(node->url()).connect(soon());
    for (const tool::arguments& kind : {tool::arguments{}, {"--limit", "1"}}) {
        const std::string name = kind.empty() ? "a" : "api";
        CAPTURE(name);
        tool::arguments takes{"acquire", "--for", "1h"};
        takes.insert(takes.end(), kind.begin(), kind.end());
        tool::arguments waits = takes;
        takes.push_back(name);
        waits.insert(waits.end(), {"--wait", "1h", name});
        REQUIRE(tool::rowlock(takes, there).code == 0);
        tool::process waiting{tool::command_line(waits), there};
        const auto entries = [&](const std::string& which) {
            return admin->query("select count(*) from rowlock_ticket" + which, soon())
                .integer(0, 0);
        };
        CHECK(tool::eventually([&] { return entries("") == 1; }));
        CHECK(entries(" where waits_until is not null") == 0);
        waiting.send(SIGTERM);
        waiting.wait();
    }
}

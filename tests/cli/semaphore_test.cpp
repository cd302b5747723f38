// `rowlock semaphore`: set, show, ls; and a limit that is new.

#include "cli/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

TEST_CASE("semaphore set makes a semaphore and changes it, show and ls print it") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const tool::arguments& command) { return in->run(command); };
        CHECK(run({"semaphore", "ls"}).out.find("no semaphores") != std::string::npos);
        const auto missing = run({"semaphore", "show", "billing"});
        CHECK(missing.code == 1);
        CHECK(missing.err.find("rowlock semaphore set") != std::string::npos);
        CHECK(run({"semaphore", "set", "billing", "3"}).code == 0);
        rowlock::client locks{rowlock::open(in->url()).with_tables({.prefix = in->prefix()})};
        rowlock::semaphore billing{locks, "billing"};
        const auto held = billing.acquire(2, {.note = "export \x1b[31m"});
        const auto shown = run({"semaphore", "show", "billing"});
        CHECK(shown.code == 0);
        CHECK(shown.out.find("capacity   3\nused       2\navailable  1\n") != std::string::npos);
        CHECK(shown.out.find("export \\x1b[31m") != std::string::npos);
        CHECK(run({"semaphore", "set", "billing", "1"}).code == 0);
        CHECK(held.held());
        CHECK(billing.inspect()->capacity == 1);
        CHECK(run({"semaphore", "set", "export", "7"}).code == 0);
        const auto all = run({"semaphore", "ls"});
        CHECK(all.out.find("billing") < all.out.find("export"));
        CHECK(run({"semaphore", "ls", "--limit", "1"}).err.find("more than 1") !=
              std::string::npos);
        CHECK(run({"semaphore", "ls", "x"}).out.find("no semaphores") != std::string::npos);
        CHECK(run({"semaphore", "ls", "--after", "billing"}).out.find("billing") ==
              std::string::npos);
    }
}

TEST_CASE("semaphore refuses what it cannot do, with one clear line") {
    const auto in = tool::sqlite_tables();
    for (const tool::arguments& command : {tool::arguments{"semaphore"},
                                           {"semaphore", "set", "billing"},
                                           {"semaphore", "set", "billing", "-1"},
                                           {"semaphore", "set", "billing", "many"},
                                           {"semaphore", "set", "", "1"},
                                           {"semaphore", "give"}}) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == 64);
        CHECK(got.out.empty());
        CHECK_FALSE(got.err.empty());
    }
    CHECK(in->run({"semaphore", "set", "--help"}).out.find("PERMITS") != std::string::npos);
}

TEST_CASE("of commands that use a new limit at the same moment one makes it, and all run") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        for (int round = 0; round < 6; ++round) {
            const auto name = "new " + std::to_string(round);
            std::vector<std::unique_ptr<tool::process>> all;
            for (int i = 0; i < 6; ++i) {
                all.push_back(std::make_unique<tool::process>(
                    tool::command_line((*in)({"run", "--limit", "3", name, "--", "true"})),
                    in->in_environment()));
            }
            for (const auto& each : all) {
                CHECK(each->wait() == 0);
                CHECK(each->err() == "");
            }
        }
    }
}

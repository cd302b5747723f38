// `rowlock semaphore`: set, show, ls; and a limit that is new.

#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>
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

TEST_CASE("a limit that contradicts the stored one is refused before the command runs") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const tool::scratch folder;
        const auto run = [&](tool::arguments command) {
            return in->run(command, {.folder = folder.path()});
        };
        CHECK(run({"run", "--limit", "5", "billing", "--", "true"}).code == 0);  // makes it
        for (const tool::arguments& command :
             {tool::arguments{"run", "--limit", "1", "billing", "--", "touch", "ran"},
              {"run", "-n", "--limit", "1", "billing", "--", "touch", "ran"},
              {"run", "--limit", "7", "--weight", "6", "billing", "--", "touch", "ran"},
              {"acquire", "--for", "1m", "--limit", "1", "billing"},
              {"acquire", "--for", "1m", "--limit", "7", "--weight", "6", "billing"}}) {
            CAPTURE(command);
            const auto got = run(command);
            CAPTURE(got.err);
            CHECK(got.code == 64);
            CHECK(got.out == "");
            CHECK(got.err.starts_with("rowlock: billing allows 5, and this command says --limit "));
            CHECK(got.err.find("`rowlock semaphore set billing ") != std::string::npos);
        }
        CHECK_FALSE(std::filesystem::exists(folder / "ran"));
        CHECK(run({"semaphore", "show", "billing"}).out.find("used       0\n") !=
              std::string::npos);
        REQUIRE(run({"semaphore", "set", "billing", "1"}).code == 0);
        CHECK(run({"run", "--limit", "1", "billing", "--", "true"}).code == 0);
        CHECK(run({"run", "--limit", "5", "billing", "--", "true"}).code == 64);
    }
}

TEST_CASE("a limit that an operator changes in the wait is refused before the command runs") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const tool::scratch folder;
        for (const tool::arguments& command :
             {tool::arguments{"run", "--limit", "1", "billing", "--", "touch", "ran"},
              {"acquire", "--for", "1h", "--limit", "1", "billing"}}) {
            CAPTURE(command);
            REQUIRE(in->run({"semaphore", "set", "billing", "1"}).code == 0);
            const auto held = in->run({"acquire", "--for", "1h", "--limit", "1", "billing"});
            REQUIRE(held.code == 0);
            tool::process waiter{tool::command_line((*in)(command)),
                                 in->in_environment({.folder = folder.path()})};
            REQUIRE(in->queue_becomes(1, "billing"));
            REQUIRE(in->run({"semaphore", "set", "billing", "2"}).code == 0);
            CHECK(waiter.wait() == 64);
            CHECK(waiter.out() == "");
            CHECK(waiter.err().find("billing allows 2, ") != std::string::npos);
            const std::string grant = held.out.substr(held.out.find(' ') + 1);
            CHECK(in->run({"release", "billing", grant.substr(0, grant.size() - 1)}).code == 0);
            CHECK(in->run({"semaphore", "show", "billing"}).out.find("used       0\n") !=
                  std::string::npos);
        }
        CHECK_FALSE(std::filesystem::exists(folder / "ran"));
    }
}

TEST_CASE(
    "of commands that make one limit with different numbers some are refused, and none beside") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        for (int round = 0; round < 4; ++round) {
            const auto name = "new " + std::to_string(round);
            std::vector<std::unique_ptr<tool::process>> all;
            for (const char* limit : {"1", "2", "1", "2"}) {
                all.push_back(std::make_unique<tool::process>(
                    tool::command_line((*in)({"run", "--limit", limit, name, "--", "true"})),
                    in->in_environment()));
            }
            const std::array codes{all[0]->wait(), all[1]->wait(), all[2]->wait(), all[3]->wait()};
            CHECK(codes[0] == codes[2]);
            CHECK(codes[1] == codes[3]);
            CHECK(codes[0] + codes[1] == 64);
        }
    }
}

TEST_CASE("permits of dead holders are not counted as held") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        REQUIRE(in->run({"semaphore", "set", "billing", "3"}).code == 0);
        REQUIRE(
            in->run({"acquire", "--for", "1h", "--limit", "3", "--weight", "2", "billing"}).code ==
            0);
        REQUIRE(in->run({"acquire", "--for", "1h", "--shared", "page"}).code == 0);
        const auto db = rowlock::open(in->url()).connect(support::soon());
        const bool postgresql = in->url().starts_with("postgresql:");
        db->query("update " + in->prefix() + "session set expires_at = " +
                      (postgresql ? "clock_timestamp() - interval '1 minute'" : "1"),
                  support::soon());
        REQUIRE(in->run({"acquire", "--for", "1h", "--limit", "3", "billing"}).code == 0);
        const auto shown = in->run({"show", "billing"}).out;
        CAPTURE(shown);
        CHECK(shown.find("used       1\nexpired    2, of dead holders") != std::string::npos);
        CHECK(shown.find("available  2\n") != std::string::npos);
        CHECK(shown.find("  expired") != std::string::npos);  // in the list of its holders
        const auto row = nlohmann::json::parse(in->run({"ls", "--json"}).out);
        CHECK(row["semaphores"][0]["used"] == 1);
        CHECK(row["semaphores"][0]["expired"] == 2);
        CHECK(row["semaphores"][0]["available"] == 2);
        CHECK(row["shared_mutexes"][0]["shared"] == 0);
        CHECK(row["shared_mutexes"][0]["expired"] == 1);
        CHECK(in->run({"show", "page"}).out.find("state      free\nreaders    0\nexpired    1,") !=
              std::string::npos);
    }
}

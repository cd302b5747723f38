// `rowlock run --once`, `--at-least`, `--skip-if-within`, `--at-most`: commands that are to run
// once a period, or not too often.

#include "tool/tool.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using tool::command_line;
using tool::contents;
using tool::eventually;
using tool::process;
using tool::scratch;

TEST_CASE("of the commands that ask for one period one runs, and its success is what counts") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const char* period, const char* command) {
            return in->run({"run", "-n", "--once", period, "job", "--", "sh", "-c", command});
        };
        CHECK(run("2026-11-25", "exit 3").code == 3);
        CHECK(run("2026-11-25", "kill -KILL $$").code == 128 + SIGKILL);
        const auto first = run("2026-11-25", "echo $ROWLOCK_TOKEN");
        CHECK(first.code == 0);
        CHECK(first.out == "3\n");
        const auto again = run("2026-11-25", "echo again");
        CHECK(again.code == 75);
        CHECK(again.out.empty());
        CHECK(again.err.find("job is done") != std::string::npos);
        CHECK(run("2026-11-24", "echo earlier").code == 75);
        CHECK(run("2026-11-26", "echo later").out == "later\n");
        CHECK(
            in->run({"run", "--once", "2026-11-26", "--busy-exit-code", "0", "job", "--", "false"})
                .code == 0);
        CHECK(in->run({"run", "job", "--", "echo", "always"}).out == "always\n");
    }
}

TEST_CASE("eight schedulers ask for a period at the same moment: one command runs") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        std::vector<std::unique_ptr<process>> all;
        for (int i = 0; i < 8; ++i) {
            all.push_back(std::make_unique<process>(
                command_line((*in)({"run", "--once", "1", "job", "--", "sh", "-c",
                                    "printf x >>" + (folder / "ran")})),
                in->in_environment()));
        }
        int ran = 0;
        for (const auto& each : all) ran += each->wait() == 0 ? 1 : 0;
        CHECK(ran == 1);
        CHECK(contents(folder / "ran") == "x");
    }
}

TEST_CASE("no command runs within --at-least of the last, though that was killed") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        process first{
            command_line((*in)({"run", "--at-least", "1h", "job", "--", "sh", "-c",
                                "printf yes >" + (folder / "started") + "; exec sleep 1000"})),
            in->in_environment()};
        REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
        CHECK(in->run({"run", "-n", "--at-least", "1h", "job", "--", "true"}).code == 75);
        const auto shown = in->run({"show", "job"}).out;
        CHECK(shown.find("ago, has not finished\nrests for  59m") != std::string::npos);
        first.send(SIGKILL);
        first.wait();
        // The supervisor frees the lease; the rest stays.
        REQUIRE(eventually([&] {
            return in->run({"run", "-n", "--at-least", "1h", "job", "--", "true"})
                       .err.find("rests for another 59m") != std::string::npos;
        }));
        CHECK(in->run({"run", "-n", "--once", "9", "job", "--", "true"}).code == 75);
        CHECK(in->run({"run", "-n", "another", "--", "true"}).code == 0);
    }
}

TEST_CASE("a command is skipped if it has succeeded recently, and waits through a short rest") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const tool::arguments hourly{"run", "--skip-if-within", "1h", "job", "--", "true"};
        CHECK(in->run(hourly).code == 0);
        const auto again = in->run(hourly);
        CHECK(again.code == 75);
        CHECK(again.err.find("job has run within 1h") != std::string::npos);
        CHECK(in->run({"run", "--at-least", "300ms", "job", "--", "true"}).code == 0);
        CHECK(in->run({"run", "--wait", "20s", "--at-least", "1ms", "job", "--", "true"}).code ==
              0);
    }
}

TEST_CASE("a command is stopped after --at-most, and did not succeed") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto late =
            in->run({"run", "--once", "1", "--at-most", "1s", "job", "--", "sleep", "1000"});
        CHECK(late.code == 70);
        CHECK(in->run({"run", "--once", "1", "job", "--", "true"}).code == 0);
    }
}

TEST_CASE("what does not go together is wrong usage, with one clear line") {
    const auto in = tool::sqlite_tables();
    const std::string long_period(256, 'x');
    for (const tool::arguments& command :
         {tool::arguments{"run", "--once", "", "job", "--", "true"},
          {"run", "--once", long_period, "job", "--", "true"},
          {"run", "--once", "1", "--shared", "job", "--", "true"},
          {"run", "--once", "1", "--limit", "2", "job", "--", "true"},
          {"run", "--once", "1", "--lock", "a", "--lock", "b", "--", "true"},
          {"run", "--at-least", "0", "job", "--", "true"},
          {"run", "--at-least", "-1s", "job", "--", "true"},
          {"run", "--at-most", "soon", "job", "--", "true"},
          {"run", "--skip-if-within", "2y", "job", "--", "true"}}) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == 64);
        CHECK(got.out.empty());
        CHECK_FALSE(got.err.empty());
    }
}

namespace {

/// The commands of the crontabs in a page, with the tool of this build and a command that succeeds.
std::vector<std::string> cron_recipes(const std::string& page) {
    std::vector<std::string> all;
    std::istringstream lines{contents(page)};
    const std::string tool = "/usr/local/bin/rowlock";
    for (std::string line; std::getline(lines, line);) {
        const auto begin = line.find(tool + " run ");
        if (!line.starts_with("0 3 * * * ") || begin == std::string::npos) continue;
        std::string command = line.substr(begin, line.find(" -- ") - begin) + " -- true";
        command.replace(0, tool.size(), ROWLOCK_TOOL_PATH);
        for (auto at = command.find("\\%"); at != std::string::npos; at = command.find("\\%")) {
            command.erase(at, 1);
        }
        all.push_back(command);
    }
    return all;
}

}  // namespace

TEST_CASE("the documented cron recipes print nothing when they skip, and print errors") {
    const auto recipes = cron_recipes(ROWLOCK_SOURCE_DIR "/docs/deploying.md");
    REQUIRE(recipes.size() == 2);
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        auto there = in->in_environment();
        there.variables["ROWLOCK_URL"] += (in->url().find('?') == std::string::npos ? "?" : "&") +
                                          ("rowlock_prefix=" + in->prefix());
        process holder{command_line((*in)({"run", "nightly", "--", "sleep", "1000"})),
                       in->in_environment()};
        REQUIRE(tool::runs_its_command(holder));
        process first{{"sh", "-c", recipes[1]}, there};
        REQUIRE(first.wait() == 0);
        for (const auto& recipe : recipes) {
            CAPTURE(recipe);
            process skipped{{"sh", "-c", recipe}, there};
            CHECK(skipped.wait() == 0);
            CHECK(skipped.err() == "");
            CHECK(skipped.out() == "");
            // Control: an error is told.
            process wrong{{"sh", "-c", recipe}, {}};
            CHECK(wrong.wait() == 78);
            CHECK(wrong.err().find("no database") != std::string::npos);
        }
    }
}

TEST_CASE("--quiet is silent about what does not run now, and about nothing else") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        REQUIRE(in->run({"acquire", "--for", "1h", "a"}).code == 0);
        const auto silent = [&](const tool::arguments& command, int code) {
            CAPTURE(command);
            const auto got = in->run(command);
            CHECK(got.code == code);
            CHECK(got.err == "");
            CHECK(got.out == "");
        };
        silent({"run", "-nq", "a", "--", "true"}, 75);
        silent({"run", "--quiet", "--wait", "300ms", "a", "--", "true"}, 75);
        silent({"run", "-q", "-n", "--busy-exit-code", "3", "a", "--", "true"}, 3);
        silent({"run", "-nqv", "a", "--", "true"}, 75);
        silent({"acquire", "-nq", "--for", "1m", "a"}, 75);
        silent({"acquire", "-nq", "--json", "--for", "1m", "a"}, 75);
        REQUIRE(in->run({"run", "--once", "1", "--at-least", "1h", "b", "--", "true"}).code == 0);
        silent({"run", "-nq", "--once", "1", "b", "--", "true"}, 75);
        silent({"run", "-nq", "--at-least", "1h", "b", "--", "true"}, 75);
        silent({"run", "-nq", "--skip-if-within", "1h", "b", "--", "true"}, 75);
        // The command's own output, and every error.
        CHECK(in->run({"run", "-q", "c", "--", "sh", "-c", "echo no >&2; exit 75"}).err == "no\n");
        CHECK(in->run({"run", "-nq", "--limit", "2", "a", "--", "true"}).err != "");
        CHECK(in->run({"run", "-nq", "c", "--", "/nowhere"}).err != "");
    }
}

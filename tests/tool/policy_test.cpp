// `rowlock policy`: limits on how long a lock is held, and `rowlock reap`, which enforces them.

#include "tool/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/sql/connection.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

namespace {

using namespace std::chrono_literals;
using nlohmann::json;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// The second word that `rowlock acquire` printed.
std::string grant_of(const std::string& printed) {
    const auto space = printed.find(' ');
    REQUIRE(space != std::string::npos);
    return printed.substr(space + 1, printed.find_last_not_of('\n') - space);
}

int requested(const tool::tables& in) {
    const auto got = in.run({"reap", "--json"});
    REQUIRE(got.code == 0);
    return json::parse(got.out)["releases_requested"].get<int>();
}

}  // namespace

TEST_CASE("policy sets, shows and removes a limit") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto shows = [&](const std::string& limit) {
            const auto got = in->run({"policy", "job"});
            CHECK(got.code == 0);
            CHECK(contains(got.out, "name       job\nmax hold   " + limit + "\n"));
        };
        shows("no limit");
        const auto set = in->run({"policy", "job", "--max-hold", "2h"});
        CHECK(set.code == 0);
        CHECK(set.out.empty());
        CHECK(set.err.empty());
        shows("2h00m");
        // Also of a name that nothing holds, and of a semaphore.
        CHECK(contains(in->run({"show", "job"}).out, "max hold   2h00m\n"));
        REQUIRE(in->run({"semaphore", "set", "job", "3"}).code == 0);
        CHECK(contains(in->run({"show", "job"}).out, "max hold   2h00m\n"));
        CHECK(in->run({"policy", "job", "--max-hold", "90s"}).code == 0);
        shows("1m30s");
        CHECK(in->run({"policy", "job", "--no-max-hold"}).code == 0);
        CHECK(in->run({"policy", "job", "--no-max-hold"}).code == 0);
        shows("no limit");
        CHECK_FALSE(contains(in->run({"show", "job"}).out, "max hold"));
    }
}

TEST_CASE(
    "reap asks for what is held longer than its policy allows: a script's lock is not renewed") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto grant = grant_of(in->run({"acquire", "--for", "1h", "job"}).out);
        const auto other = grant_of(in->run({"acquire", "--for", "1h", "other"}).out);
        REQUIRE(in->run({"policy", "job", "--max-hold", "1h"}).code == 0);
        CHECK(requested(*in) == 0);
        REQUIRE(in->run({"policy", "job", "--max-hold", "10ms"}).code == 0);
        CHECK(tool::eventually([&] { return requested(*in) == 1; }));
        CHECK(requested(*in) == 0);
        CHECK(contains(in->run({"show", "job"}).out,
                       "asked      at once: held longer than max_hold\n"));
        const auto holder = json::parse(in->run({"show", "--json", "job"}).out)["holder"];
        CHECK(holder["asked_by"] == "");
        CHECK(holder["reason"] == "held longer than max_hold");
        const auto refused = in->run({"renew", "--for", "1h", "job", grant});
        CHECK(refused.code == 1);
        CHECK(contains(refused.err,
                       "job is not renewed: its release was asked for at once: held "
                       "longer than max_hold"));
        CHECK(in->run({"renew", "--for", "1h", "other", other}).code == 0);
        CHECK(in->run({"release", "job", grant}).code == 0);
    }
}

TEST_CASE("a command that runs under a lock for longer than max_hold is stopped") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        tool::process running{tool::command_line((*in)({"run", "job", "--", "sleep", "1000"})),
                              in->in_environment()};
        tool::process bystander{tool::command_line((*in)({"run", "other", "--", "sleep", "1000"})),
                                in->in_environment()};
        REQUIRE(tool::runs_its_command(running));
        REQUIRE(tool::runs_its_command(bystander));
        REQUIRE(in->run({"policy", "job", "--max-hold", "10ms"}).code == 0);
        CHECK(tool::eventually([&] { return requested(*in) == 1; }));
        CHECK(running.wait() == 70);
        CHECK(in->run({"held", "job"}).code == 1);
        CHECK_FALSE(bystander.is_over());
        CHECK(in->run({"held", "other"}).code == 0);
    }
}

TEST_CASE("policy refuses limits that contradict each other or are out of range") {
    const auto in = tool::sqlite_tables();
    CHECK(in->run({"policy", "job", "--max-hold", "1h", "--no-max-hold"}).code == 64);
    for (const char* limit : {"0", "1ms", "367d", "-1h", "soon"}) {
        CAPTURE(std::string{limit});
        CHECK(in->run({"policy", "job", "--max-hold", limit}).code == 64);
    }
    CHECK(in->run({"policy", "--max-hold", "1h"}).code == 64);
    CHECK(contains(in->run({"policy", "job"}).out, "max hold   no limit\n"));
}

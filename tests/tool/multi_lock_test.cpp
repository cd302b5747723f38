// `rowlock run --lock a --lock b`: a command that runs under all of several locks, or not at all.

#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <memory>
#include <string>

using tool::command_line;
using tool::contents;
using tool::eventually;
using tool::process;
using tool::scratch;

namespace {

/// `rowlock run WORDS… -- COMMAND` that runs until it is asked to end; returns once it has begun.
std::unique_ptr<process> holding(const tool::tables& in, const scratch& folder,
                                 tool::arguments words) {
    words.insert(words.begin(), "run");
    words.insert(words.end(),
                 {"--", "sh", "-c", "printf yes >" + (folder / "started") + "; exec sleep 1000"});
    auto started = std::make_unique<process>(command_line(in(words)), in.in_environment());
    REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
    return started;
}

}  // namespace

TEST_CASE("a command holds all locks that --lock names, and knows their names and tokens") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const tool::arguments show{"run",
                                   "b",
                                   "--lock",
                                   "a b",
                                   "--lock",
                                   "C",
                                   "--",
                                   "sh",
                                   "-c",
                                   "echo \"$ROWLOCK_NAME\"; "
                                   "echo \"$ROWLOCK_TOKEN\""};
        CHECK(in->run(show).out == "C\na b\nb\n1\n1\n1\n");
        CHECK(in->run({"run", "b", "--", "true"}).code == 0);
        CHECK(in->run(show).out == "C\na b\nb\n2\n2\n3\n");
        CHECK(in->run({"run", "--lock", "one", "--", "sh", "-c", "echo $ROWLOCK_NAME"}).out ==
              "one\n");
        CHECK(in->run({"ls"}).out.find("a b") == std::string::npos);
    }
}

TEST_CASE("while a command runs under several locks no other runs under one of them") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        const auto first = holding(*in, folder, {"--lock", "a", "--lock", "b", "--note", "both"});
        for (const char* name : {"a", "b"}) {
            const auto busy = in->run({"run", "-n", name, "--", "true"});
            CHECK(busy.code == 75);
            CHECK(in->run({"show", name}).out.find("both") != std::string::npos);
        }
        const auto busy = in->run({"run", "-n", "--lock", "b", "--lock", "c", "--", "true"});
        CHECK(busy.code == 75);
        CHECK(busy.err.find("b, c") != std::string::npos);
        CHECK(in->run({"run", "-n", "c", "--", "true"}).code == 0);

        // One that waits for two of them is shown in both queues, and runs when both are free.
        process waiting{command_line((*in)(
                            {"run", "--lock", "b", "--lock", "c", "--note", "mine", "--", "true"})),
                        in->in_environment()};
        REQUIRE(in->queue_becomes(1, "c"));
        CHECK(in->run({"show", "c"}).out.find("mine (2 locks at once)") != std::string::npos);
        const auto shown = nlohmann::json::parse(in->run({"show", "--json", "b"}).out);
        CHECK(shown.dump().find("\"locks\":2") != std::string::npos);
        CHECK(in->run({"run", "-n", "c", "--", "true"}).code == 75);  // it comes first
        first->send(SIGTERM);
        CHECK(first->wait() == 128 + SIGTERM);
        CHECK(waiting.wait() == 0);
        CHECK(in->run({"run", "-n", "--lock", "a", "--lock", "c", "--", "true"}).code == 0);
    }
}

TEST_CASE("the loss of one of several locks stops the command, and frees the others") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        const auto first = holding(*in, folder, {"--lock", "a", "--lock", "b", "--ttl", "30s"});
        CHECK(in->run({"break", "b", "--now", "--yes"}).code == 0);
        CHECK(first->wait() == 70);
        CHECK(first->err().find("a, b") != std::string::npos);
        CHECK(in->run({"run", "-n", "--lock", "a", "--lock", "b", "--", "true"}).code == 0);
    }
}

TEST_CASE("a killed rowlock run frees all of its locks at once") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        const auto first = holding(*in, folder, {"--lock", "a", "--lock", "b", "--ttl", "1h"});
        first->send(SIGKILL);
        CHECK(in->run({"run", "--wait", "20s", "--lock", "a", "--lock", "b", "--", "true"}).code ==
              0);
    }
}

TEST_CASE("run refuses several locks that it cannot hold together, with one clear line") {
    const auto in = tool::sqlite_tables();
    tool::arguments many{"run"};
    for (int i = 0; i < 17; ++i) {
        many.insert(many.end(), {"--lock", "name " + std::to_string(i)});
    }
    many.insert(many.end(), {"--", "true"});
    for (const tool::arguments& command :
         {tool::arguments{"run", "--", "true"},
          {"run", "--lock", "a", "--lock", "a", "--", "true"},
          {"run", "a", "--lock", "a", "--", "true"},
          {"run", "a", "--lock", "", "--", "true"},
          {"run", "a", "--lock", "--", "true"},
          {"run", "a", "--lock", "b", "--shared", "--", "true"},
          {"run", "a", "--lock", "b", "--limit", "2", "--", "true"},
          {"run", "a", "--lock", "b", "--owner", "me", "--reclaim", "--", "true"},
          {"run", "a", "b", "--", "true"},
          many}) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == 64);
        CHECK(got.out.empty());
        CHECK_FALSE(got.err.empty());
    }
    // It would wait for the lock that it runs under.
    const auto nested =
        in->run({"run", "--pass-url", "a", "--", ROWLOCK_TOOL_PATH, "run", "--prefix", in->prefix(),
                 "--lock", "a", "--lock", "b", "--", "true"});
    CAPTURE(nested.err);
    CHECK(nested.code == 64);
    CHECK(nested.err.find("it would wait for itself") != std::string::npos);
    // A semaphore's name is not that of a lease.
    CHECK(in->run({"run", "--limit", "2", "limited", "--", "true"}).code == 0);
    const auto other = in->run({"run", "--lock", "a", "--lock", "limited", "--", "true"});
    CHECK(other.code == 64);
    CHECK(other.err.find("\"limited\" is the name of a semaphore") != std::string::npos);
}

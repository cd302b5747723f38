// `rowlock elect` and `rowlock observe`: a command that runs as the leader, and who leads.

#include "support/servers.hpp"
#include "support/tcp_relay.hpp"
#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/election.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using tool::command_line;
using tool::contents;
using tool::eventually;
using tool::process;
using tool::scratch;

namespace {

rowlock::client client_of(const tool::tables& in) {
    return rowlock::client{rowlock::open(in.url()).with_tables({.prefix = in.prefix()})};
}

/// Starts `rowlock elect office OPTIONS… -- sh -c SCRIPT`.
std::unique_ptr<process> candidate(const tool::tables& in, const tool::arguments& options,
                                   const std::string& script) {
    tool::arguments command{"elect", "office"};
    command.insert(command.end(), options.begin(), options.end());
    for (const auto& word : {std::string{"--"}, std::string{"sh"}, std::string{"-c"}, script})
        command.push_back(word);
    return std::make_unique<process>(command_line(in(command)), in.in_environment());
}

/// The command of a leader: writes its term to a file, a line each, and leads until it is stopped.
std::string leads_into(const std::string& path) {
    return "echo $ROWLOCK_TOKEN >>" + path + "; exec sleep 1000";
}

std::vector<std::int64_t> terms_in(const std::string& path) {
    std::istringstream lines{contents(path)};
    std::vector<std::int64_t> all;
    for (std::int64_t term = 0; lines >> term;) all.push_back(term);
    return all;
}

bool has_leader(const tool::tables& in) {
    return in.run({"observe", "--once", "office"}).code == 0;
}

}  // namespace

TEST_CASE("one command leads, and when it ends the candidate of the greatest priority follows") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        auto locks = client_of(*in);
        rowlock::election office{locks, "office"};
        const auto waiting = [&](std::size_t count) {
            return eventually([&] { return office.candidates().size() == count; });
        };
        CHECK_FALSE(has_leader(*in));
        auto first =
            candidate(*in, {"--value", "first"},
                      "echo $ROWLOCK_TOKEN $ROWLOCK_NAME >" + (folder / "first") +
                          "; while [ ! -e " + (folder / "end") + " ]; do sleep 0.02; done; exit 7");
        REQUIRE(eventually([&] { return !contents(folder / "first").empty(); }));
        auto usual = candidate(*in, {"--value", "usual"}, leads_into(folder / "usual"));
        REQUIRE(waiting(1));
        auto best =
            candidate(*in, {"--value", "best", "--priority", "5"}, leads_into(folder / "best"));
        REQUIRE(waiting(2));
        CHECK(in->run({"show", "office"}).out.find("(priority 5)") != std::string::npos);
        REQUIRE(office.leader());
        CHECK(office.leader()->value == "first");
        CHECK(contents(folder / "first") ==
              std::to_string(office.leader()->term.value()) + " office\n");
        const auto first_term = office.leader()->term.value();
        process{{"touch", folder / "end"}}.wait();
        CHECK(first->wait() == 7);
        REQUIRE(eventually([&] { return terms_in(folder / "best").size() == 1; }));
        CHECK(terms_in(folder / "best").front() > first_term);
        CHECK(terms_in(folder / "usual").empty());
        // Its supervisor frees the office of one that was killed.
        best->send(SIGKILL);
        REQUIRE(eventually([&] { return terms_in(folder / "usual").size() == 1; }));
        usual->send(SIGTERM);
        CHECK(usual->wait() == 128 + SIGTERM);
        CHECK_FALSE(has_leader(*in));
        CHECK(terms_in(folder / "usual").size() == 1);
    }
}

TEST_CASE("a leader that is deposed stops its command, and campaigns again with another term") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        auto leader = candidate(*in, {"--ttl", "60s"}, leads_into(folder / "terms"));
        for (std::size_t terms = 1; terms <= 3; ++terms) {
            REQUIRE(eventually([&] { return terms_in(folder / "terms").size() == terms; }));
            if (terms == 3) break;
            CHECK(in->run({"break", "--now", "--yes", "office"}).code == 0);
        }
        const auto terms = terms_in(folder / "terms");
        CHECK(terms[0] < terms[1]);
        CHECK(terms[1] < terms[2]);
        // The supervisors and commands of earlier terms are gone.
        CHECK(eventually([&] { return tool::children_of(leader->id()).size() == 1; }));
        leader->send(SIGTERM);
        CHECK(leader->wait() == 128 + SIGTERM);
        CHECK(leader->err().find("campaigning again") != std::string::npos);
        CHECK(terms_in(folder / "terms").size() == 3);
    }
}

TEST_CASE("a signal that the command uses for its own ends does not end the candidacy") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    auto leader =
        candidate(*in, {"--ttl", "60s"},
                  "trap 'echo x >>" + (folder / "reloads") + "' HUP; echo $ROWLOCK_TOKEN >>" +
                      (folder / "terms") + "; while :; do sleep 0.02; done");
    REQUIRE(eventually([&] { return terms_in(folder / "terms").size() == 1; }));
    leader->send(SIGHUP);
    REQUIRE(eventually([&] { return contents(folder / "reloads") == "x\n"; }));
    CHECK(in->run({"break", "--now", "--yes", "office"}).code == 0);
    REQUIRE(eventually([&] { return terms_in(folder / "terms").size() == 2; }));
    leader->send(SIGTERM);
    CHECK(leader->wait() == 128 + SIGTERM);
}

TEST_CASE("a leader that loses the database stops its command, and leads again when it is back") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    const scratch folder;
    std::string url = in->url();
    const auto port = url.rfind(':') + 1;
    const auto digits = url.find('/', port) - port;
    support::tcp_relay relay{static_cast<std::uint16_t>(std::stoi(url.substr(port, digits)))};
    url.replace(port, digits, std::to_string(relay.port()));
    tool::arguments command{"elect", "office", "--ttl", "5s",
                            "--",    "sh",     "-c",    leads_into(folder / "terms")};
    process leader{command_line((*in)(command)), {.variables = {{"ROWLOCK_URL", url}}}};
    REQUIRE(eventually([&] { return !terms_in(folder / "terms").empty(); }));
    relay.refuse(true);
    relay.cut();
    REQUIRE(eventually([&] { return leader.err().find("campaigning on") != std::string::npos; }));
    relay.refuse(false);
    REQUIRE(eventually([&] { return terms_in(folder / "terms").size() >= 2; }));
    leader.send(SIGTERM);
    CHECK(leader.wait() == 128 + SIGTERM);
}

TEST_CASE("a candidate that waits ends with a signal, and its place is free") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        auto locks = client_of(*in);
        rowlock::election office{locks, "office"};
        const auto term = office.campaign();
        auto waiting = candidate(*in, {}, "echo no");
        REQUIRE(eventually([&] { return office.candidates().size() == 1; }));
        waiting->send(SIGINT);
        CHECK(waiting->wait() == 128 + SIGINT);
        CHECK(waiting->out().empty());
        CHECK(eventually([&] { return office.candidates().empty(); }));
    }
}

TEST_CASE("observe prints each leader on a line, and nothing that steers a terminal") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        auto locks = client_of(*in);
        rowlock::election office{locks, "office", {.value = "red \x1b[31m\nvalue"}};
        process observer{command_line((*in)({"observe", "--poll", "10ms", "office"})),
                         in->in_environment()};
        const auto shows = [&](const std::string& what) {
            return eventually([&] { return observer.out().find(what) != std::string::npos; });
        };
        CHECK(shows("no leader yet\n"));
        auto term = office.campaign();
        CHECK(shows("term 1 is led by "));
        CHECK(shows("red \\x1b[31m\\x0avalue\n"));
        const auto once = in->run({"observe", "--once", "office"});
        CHECK(once.code == 0);
        CHECK(once.out.find("term 1 is led by") != std::string::npos);
        term.step_down();
        CHECK(shows("no leader since term 1\n"));
        CHECK(in->run({"observe", "--once", "office"}).code == 1);
        observer.send(SIGTERM);
        CHECK(observer.wait() == 1000 + SIGTERM);
        CHECK(observer.err().empty());
    }
}

TEST_CASE("what elect and observe cannot do they say") {
    const auto in = tool::sqlite_tables();
    const auto fails = [&](const tool::arguments& command, int code, const std::string& why) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == code);
        CHECK(got.err.find(why) != std::string::npos);
    };
    fails({"elect", "office"}, 64, "no command: rowlock elect NAME -- COMMAND");
    fails({"elect", "office", "--"}, 64, "no command after --: rowlock elect NAME");
    fails({"elect", "--", "true"}, 64, "NAME is required");
    fails({"elect", "--priority", "1001", "office", "--", "true"}, 64, "--priority");
    fails({"elect", "--wait", "0", "office", "--", "true"}, 64, "see rowlock elect --help");
    fails({"elect", "office", "--", "/no/such/command"}, 127, "not found");
    fails({"observe"}, 64, "NAME is required");
    fails({"observe", ""}, 64, "name");
    CHECK_FALSE(has_leader(*in));
    REQUIRE(in->run({"semaphore", "set", "api", "2"}).code == 0);
    fails({"elect", "api", "--", "true"}, 64, "semaphore");
    const auto empty = tool::sqlite_tables(tool::tables_wanted::none);
    CHECK(empty->run({"elect", "office", "--", "true"}).code == 78);
    CHECK(empty->run({"observe", "office"}).code == 78);
    // Under the office itself.
    fails({"elect", "office", "--pass-url", "--", "sh", "-c",
           "exec " + command_line({}).front() + " elect --prefix " + in->prefix() +
               " office -- echo twice"},
          64, "wait for itself");
}

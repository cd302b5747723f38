#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>

using tool::command_line;
using tool::contents;
using tool::eventually;
using tool::process;
using tool::scratch;
using tool::setting;

namespace {

/// A process that holds a lock by `rowlock run` until it is asked to end.
class holder {
public:
    holder(const tool::tables& in, const std::string& name, tool::arguments more = {})
        : process_{command(in, name, std::move(more), folder_), in.in_environment()} {
        REQUIRE(eventually([&] { return contents(folder_ / "started") == "yes"; }));
    }
    process& main() { return process_; }

private:
    static tool::arguments command(const tool::tables& in, const std::string& name,
                                   tool::arguments more, const scratch& folder) {
        tool::arguments all{"run"};
        all.insert(all.end(), more.begin(), more.end());
        all.insert(all.end(), {name, "--", "sh", "-c",
                               "printf yes >" + (folder / "started") + "; exec sleep 1000"});
        return command_line(in(all));
    }

    scratch folder_;
    process process_;
};

tool::answer overlap(const std::string& folder, const std::function<process*(int)>& start) {
    std::vector<std::unique_ptr<process>> all;
    for (int i = 0; i < 8; ++i) all.emplace_back(start(i));
    tool::answer together{0, "", ""};
    for (auto& each : all) {
        together.code += each->wait();
        together.out += each->out();
        together.err += each->err();
    }
    CHECK(contents(folder + "/done").size() == 8);
    return together;
}

const char* const critical_section =
    "mkdir cs || echo OVERLAP; sleep 0.1; rmdir cs; printf x >>done; true";

}  // namespace

// shows: promise-1
TEST_CASE("eight commands under one lock never overlap, and without it they do") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        const auto locked = overlap(folder.path(), [&](int) {
            return new process{
                command_line((*in)({"run", "job", "--", "sh", "-c", critical_section})),
                in->in_environment({.folder = folder.path()})};
        });
        CHECK(locked.code == 0);
        CHECK(locked.out == "");
        CHECK(locked.err == "");
    }
    const scratch folder;
    const auto free = overlap(folder.path(), [&](int) {
        return new process{{"sh", "-c", critical_section}, {.folder = folder.path()}};
    });
    CHECK(free.out.find("OVERLAP") != std::string::npos);
}

TEST_CASE("the command's exit code passes through, and 128 + n for a signal") {
    const auto in = tool::sqlite_tables();
    CHECK(in->run({"run", "a", "--", "true"}).code == 0);
    CHECK(in->run({"run", "a", "--", "sh", "-c", "exit 42"}).code == 42);
    CHECK(in->run({"run", "a", "--", "sh", "-c", "kill -KILL $$"}).code == 128 + SIGKILL);
    CHECK(in->run({"run", "a", "--", "sh", "-c", "kill -TERM $$"}).code == 128 + SIGTERM);
}

TEST_CASE("a command that cannot run is 127 or 126 and frees the lock at once") {
    const auto in = tool::sqlite_tables();
    const auto missing = in->run({"run", "a", "--", "/no/such/program"});
    CHECK(missing.code == 127);
    CHECK(missing.err == "rowlock: the command was not found\n");
    const auto folder = in->run({"run", "--wait", "0", "a", "--", "/"});
    CHECK(folder.code == 126);
    CHECK(folder.err.starts_with("rowlock: the command cannot be executed"));
    CHECK(in->run({"run", "--wait", "0", "a", "--", "true"}).code == 0);
}

TEST_CASE("the command's arguments arrive unchanged") {
    const auto in = tool::sqlite_tables();
    const auto said = in->run({"run", "a", "--", "printf", "<%s>", "[a,b]", "", "--", "{}", "%%",
                               "--help", "-n", "a b\nc", "\"q\""});
    CHECK(said.code == 0);
    CHECK(said.out == "<[a,b]><><--><{}><%%><--help><-n><a b\nc><\"q\">");
}

TEST_CASE("the command knows its token, which grows, and not the database's URL") {
    const auto in = tool::sqlite_tables();
    const tool::arguments show{
        "run", "a",  "--",
        "sh",  "-c", "echo $ROWLOCK_NAME $ROWLOCK_TOKEN; env | grep ^ROWLOCK_URL || true"};
    const setting both{.variables = {{"ROWLOCK_URL_FILE", "/dev/null"}}};
    CHECK(in->run(show, both).out == "a 1\n");
    CHECK(in->run(show, both).out == "a 2\n");
    auto asked = show;
    asked.insert(asked.begin() + 1, "--pass-url");
    // With the names of --prefix.
    CHECK(in->run(asked, both).out ==
          "a 3\nROWLOCK_URL=" + in->url() + "?rowlock_prefix=" + in->prefix() + "\n");
}

TEST_CASE("the command inherits neither rowlock's descriptors nor its signal mask") {
    const auto in = tool::sqlite_tables();
    const auto databases = tool::all_tables();
    const std::string look =
        "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; cd /proc/self/fd; echo *";
    const process* control = nullptr;
    process plain{{"sh", "-c", look}};
    control = &plain;
    REQUIRE(plain.wait() == 0);
    for (const auto& each : databases) {
        CAPTURE(std::string{each->name()});
        CHECK(each->run({"run", "a", "--", "sh", "-c", look}).out == control->out());
    }
    // A signal that nohup ignores stays ignored.
    const setting nohup{.before_exec = [] { std::signal(SIGHUP, SIG_IGN); }};
    const auto ignoring = in->run({"run", "a", "--", "grep", "SigIgn", "/proc/self/status"}, nohup);
    CHECK(ignoring.out == "SigIgn:\t0000000000000001\n");
}

TEST_CASE("a busy lock exits with 75 or --busy-exit-code, after the wait and not before") {
    const auto in = tool::sqlite_tables();
    holder other{*in, "a"};
    const auto at_once = in->run({"run", "--wait", "0", "a", "--", "echo", "ran"});
    CHECK(at_once.code == 75);
    CHECK(at_once.out == "");
    CHECK(at_once.err.starts_with("rowlock: a is held by another"));
    CHECK(in->run({"run", "-n", "--busy-exit-code", "3", "a", "--", "true"}).code == 3);
    const auto start = std::chrono::steady_clock::now();
    CHECK(in->run({"run", "--wait", "400ms", "a", "--", "true"}).code == 75);
    CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds{400});
    CHECK(in->run({"run", "--wait", "0", "b", "--", "true"}).code == 0);
    CHECK_FALSE(other.main().is_over());
}

TEST_CASE("a waiting run gets the lock when its holder ends") {
    const auto in = tool::sqlite_tables();
    holder first{*in, "a"};
    process second{command_line((*in)({"run", "--wait", "25s", "a", "--", "echo", "mine"})),
                   in->in_environment()};
    first.main().send(SIGTERM);
    CHECK(first.main().wait() == 128 + SIGTERM);
    CHECK(second.wait() == 0);
    CHECK(second.out() == "mine\n");
}

TEST_CASE("a signal while waiting ends the wait and leaves the holder alone") {
    const auto in = tool::sqlite_tables();
    holder other{*in, "a"};
    process waiting{command_line((*in)({"run", "a", "--", "echo", "ran"})), in->in_environment()};
    // Its supervisor starts before the wait begins.
    REQUIRE(eventually([&] { return !tool::children_of(waiting.id()).empty(); }));
    waiting.send(SIGTERM);
    CHECK(waiting.wait() == 128 + SIGTERM);
    CHECK(waiting.out() == "");
    CHECK_FALSE(other.main().is_over());
    CHECK(in->run({"show", "a"}).out.find("held") != std::string::npos);
}

TEST_CASE("every signal is forwarded to the command") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    const std::string script =
        "trap 'printf T >>log' TERM; trap 'printf U >>log' USR1; trap 'printf H >>log' HUP;"
        "trap 'exit 9' INT; printf yes >started; while :; do sleep 0.02; done";
    process main{command_line((*in)({"run", "a", "--", "bash", "-c", script})),
                 in->in_environment({.folder = folder.path()})};
    REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
    std::string expected;
    for (const auto& [number, letter] :
         {std::pair{SIGTERM, 'T'}, {SIGTERM, 'T'}, {SIGUSR1, 'U'}, {SIGHUP, 'H'}}) {
        main.send(number);
        expected += letter;
        REQUIRE(eventually([&] { return contents(folder / "log") == expected; }));
    }
    main.send(SIGINT);
    CHECK(main.wait() == 9);
}

TEST_CASE("ls lists a lock's holder with its process, times and note") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        holder one{*in, "deploy/web", {"--note", "release 42", "--owner", "ci"}};
        const auto rows = nlohmann::json::parse(in->run({"ls", "--json"}).out)["locks"];
        REQUIRE(rows.size() == 1);
        const auto& row = rows[0];
        CHECK(row["name"] == "deploy/web");
        CHECK(row["state"] == "held");
        CHECK(row["token"] == "1");
        char host[256] = {};
        gethostname(host, sizeof host - 1);
        CHECK(row["holder"]["host"] == host);
        CHECK(row["holder"]["pid"] == one.main().id());
        CHECK(row["holder"]["note"] == "release 42");
        CHECK(row["holder"]["owner"] == "ci");
        CHECK(row["holder"]["program"] == "rowlock run sh");
        CHECK(row["holder"]["remaining_ms"] > 0);
        CHECK(row["holder"]["remaining_ms"] <= 30'000);
        CHECK(row["holder"]["held_for_ms"] >= 0);
        CHECK(in->run({"ls", "other/"}).out.starts_with("no lock is held in "));
        one.main().send(SIGTERM);
        CHECK(one.main().wait() == 128 + SIGTERM);
        CHECK(one.main().err() == "");
        CHECK(nlohmann::json::parse(in->run({"ls", "--json"}).out)["locks"].empty());
        const auto all = nlohmann::json::parse(in->run({"ls", "--all", "--json"}).out)["locks"];
        REQUIRE(all.size() == 1);
        CHECK(all[0]["state"] == "free");
    }
}

TEST_CASE("--reclaim takes over from a predecessor without waiting for its ttl") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        holder old{*in, "a", {"--owner", "singleton", "--ttl", "1h"}};
        const auto helpers = tool::children_of(old.main().id());
        REQUIRE(helpers.size() == 1);
        const auto commands = tool::children_of(helpers.front());
        // A supervisor that outlives its main process frees the lock, even a stopped one: the
        // kernel continues a stopped process group that is orphaned. So the main process is stopped
        // first and killed last.
        old.main().send(SIGSTOP);
        kill(helpers.front(), SIGKILL);
        old.main().send(SIGKILL);
        old.main().wait();
        // The predecessor and its command must be dead.
        REQUIRE(eventually([&] { return !tool::is_alive(commands.at(0)); }));
        CHECK(in->run({"run", "--wait", "0", "a", "--", "true"}).code == 75);
        const auto next = in->run({"run", "--wait", "0", "--owner", "singleton", "--reclaim", "a",
                                   "--", "sh", "-c", "echo $ROWLOCK_TOKEN"});
        CHECK(next.code == 0);
        // The predecessor had 1. MySQL and MariaDB skip one token (ADR 0031).
        CHECK(next.out == (std::string_view{in->name()} == "MariaDB" ? "3\n" : "2\n"));
    }
}

TEST_CASE("a command whose lock is asked for within a time learns of it, and may finish") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const scratch folder;
        process job{
            command_line((*in)(
                {"run", "--ttl", "30s", "--ask-signal", "USR1", "a", "--", "sh", "-c",
                 "trap 'echo asked >" + (folder / "asked") + "; exit 5' USR1; " + "echo yes >" +
                     (folder / "started") + "; while :; do sleep 0.02; done"})),
            in->in_environment()};
        REQUIRE(eventually([&] { return !contents(folder / "started").empty(); }));
        const auto asked =
            in->run({"break", "--yes", "--within", "1h", "--reason", "red \x1b[31m alert", "a"});
        CHECK(asked.code == 0);
        CHECK(asked.err.find("is asked to finish within ") != std::string::npos);
        CHECK(job.wait() == 5);
        CHECK(contents(folder / "asked") == "asked\n");
        CHECK(job.err().find("a is asked for: rowlock break of ") != std::string::npos);
        CHECK(job.err().find("red \\x1b[31m alert") != std::string::npos);
    }
}

TEST_CASE("a command that does not finish within the time is stopped") {
    for (const auto& in : tool::for_the_tool()) {
        CAPTURE(std::string{in->name()});
        process job{command_line((*in)(
                        {"run", "--ttl", "12s", "--grace", "500ms", "a", "--", "sleep", "1000"})),
                    in->in_environment()};
        REQUIRE(tool::runs_its_command(job));
        const auto asked =
            in->run({"break", "--yes", "--wait", "0", "--within", "6s", "--reason", "backup", "a"});
        CHECK(asked.code == 75);
        CHECK(eventually([&] {
            return in->run({"show", "a"}).out.find("backup") != std::string::npos;
        }));
        CHECK(job.wait() == 70);
        CHECK(job.err().find("the lease on a was lost") != std::string::npos);
    }
}

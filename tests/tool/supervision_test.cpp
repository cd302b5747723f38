// The command after the loss of the lease, of `rowlock` itself or of its supervisor.

#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include "tool/open_transaction.hpp"
#include "tool/stop_between_writes.hpp"
#include "tool/stubborn_run.hpp"
#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using tool::command_line;
using tool::contents;
using tool::eventually;
using tool::look_for_the_living;
using tool::process;
using tool::scratch;
using tool::stop_between_writes;
using tool::stubborn_run;

namespace {

tool::answer next_run(const tool::tables& in, const scratch& folder) {
    return in.run({"run", "--wait", "25s", "a", "--", "sh", "-c", look_for_the_living},
                  {.folder = folder.path()});
}

}  // namespace

// shows: promise-5
TEST_CASE(
    "kill -9 of rowlock: the group is dead before the next command starts, within ttl + 2 s") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto time_until_next = [&] {
            stubborn_run first{*in, {"12s", "--grace", "500ms"}};
            // Control: the next command would detect living processes.
            process control{{"sh", "-c", look_for_the_living}, {.folder = first.folder().path()}};
            control.wait();
            REQUIRE(control.out().find("ALIVE") != std::string::npos);

            first.main().send(SIGKILL);
            const auto start = steady_clock::now();
            const auto next = next_run(*in, first.folder());
            const auto took = steady_clock::now() - start;
            CHECK(next.code == 0);
            CHECK(next.out == "started\n");
            CHECK_FALSE(first.is_alive());
            return took;
        };
        CHECK(support::at_best(12s + 2s, time_until_next) < 12s + 2s);
    }
}

TEST_CASE("a stopped rowlock cannot heartbeat: its supervisor stops the group in time") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"6s", "--grace", "200ms"}};
    stop_between_writes(*in, first.main());
    CHECK(next_run(*in, first.folder()).out == "started\n");
    CHECK_FALSE(first.is_alive());
    first.main().send(SIGCONT);
    CHECK(first.main().wait() == 70);
}

TEST_CASE("kill -9 of the supervisor: rowlock stops the group itself and frees the lock") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"1h"}};
    REQUIRE(kill(first.supervisor(), SIGKILL) == 0);
    CHECK(first.main().wait() == 71);
    CHECK_FALSE(first.is_alive());
    CHECK(first.main().err().find("supervisor") != std::string::npos);
    CHECK(in->run({"run", "--wait", "0", "a", "--", "true"}).code == 0);
}

// shows: promise-5
TEST_CASE("kill -9 of the supervisor beside a stopped rowlock: the whole group dies with it") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"1h"}};
    stop_between_writes(*in, first.main());
    REQUIRE(kill(first.supervisor(), SIGKILL) == 0);
    CHECK(eventually([&] { return !first.is_alive(); }, 20s));
    first.main().send(SIGCONT);
    CHECK(first.main().wait() == 71);
}

// shows: promise-5
TEST_CASE("kill -9 of rowlock and of its supervisor: the whole group dies with the second") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"1h"}};
    REQUIRE(kill(first.supervisor(), SIGSTOP) == 0);  // it must not act on the death of the first
    first.main().send(SIGKILL);
    first.main().wait();
    CHECK(std::ranges::all_of(first.pids(), tool::is_alive));
    REQUIRE(kill(first.supervisor(), SIGKILL) == 0);
    CHECK(eventually([&] { return !first.is_alive(); }, 20s));
}

// shows: promise-5
TEST_CASE("rowlock and its supervisor are stopped: the group is dead before the next command") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"6s", "--grace", "200ms"}};
    stop_between_writes(*in, first.main());
    REQUIRE(kill(first.supervisor(), SIGSTOP) == 0);
    CHECK(std::ranges::all_of(first.pids(), tool::is_alive));
    CHECK(next_run(*in, first.folder()).out == "started\n");
    CHECK_FALSE(first.is_alive());
    first.main().send(SIGCONT);
    CHECK(first.main().wait() == 70);
    CHECK(first.main().err().find("was lost") != std::string::npos);
}

TEST_CASE("rowlock continues its supervisor, and a command whose supervisor was stopped works on") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"6s", "--grace", "200ms"}};
    REQUIRE(kill(first.supervisor(), SIGSTOP) == 0);
    const auto status = "/proc/" + std::to_string(first.supervisor()) + "/status";
    CHECK(eventually([&] { return contents(status).find("State:\tS") != std::string::npos; }));
    CHECK(std::ranges::all_of(first.pids(), tool::is_alive));
}

namespace {

/// A program that cannot be opened until let(): as on a file system that does not answer.
class slow_program {
public:
    slow_program() {
        std::ofstream{path()} << "#!/bin/sh\ntouch ran\n";
        REQUIRE(chmod(path().c_str(), 0700) == 0);
        file_ = open(path().c_str(), O_RDONLY | O_CLOEXEC);
        // Whoever opens it waits for the end of this lease, of which SIGURG tells us; it is
        // ignored.
        REQUIRE(fcntl(file_, F_SETSIG, SIGURG) == 0);
        REQUIRE(fcntl(file_, F_SETLEASE, F_WRLCK) == 0);
    }
    slow_program(const slow_program&) = delete;
    slow_program& operator=(const slow_program&) = delete;
    ~slow_program() { close(file_); }

    [[nodiscard]] std::string path() const { return folder_ / "program"; }
    [[nodiscard]] bool is_waited_for() const { return fcntl(file_, F_GETLEASE) != F_WRLCK; }
    void let() const { REQUIRE(fcntl(file_, F_SETLEASE, F_UNLCK) == 0); }
    [[nodiscard]] bool has_run() const { return std::filesystem::exists(folder_ / "ran"); }
    [[nodiscard]] const scratch& folder() const { return folder_; }

private:
    scratch folder_;
    int file_ = -1;
};

}  // namespace

TEST_CASE(
    "a command whose file takes longer to open than the lease is trusted starts all the same") {
    const auto in = tool::sqlite_tables();
    slow_program program;
    process run{command_line((*in)({"run", "--ttl", "6s", "a", "--", program.path()})),
                in->in_environment({.folder = program.folder().path()})};
    REQUIRE(eventually([&] { return program.is_waited_for(); }));
    CHECK_FALSE(eventually([&] { return run.is_over(); }, 6s));  // its first trust has passed
    CHECK(in->run({"held", "a"}).code == 0);
    CHECK_FALSE(program.has_run());
    program.let();
    CHECK(run.wait() == 0);
    CHECK(program.has_run());
}

// shows: fault-break-now
TEST_CASE("a broken lock stops the running command, exit code 70") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        stubborn_run first{*in, {"60s", "--grace", "300ms"}};
        const auto broken = in->run({"break", "--now", "--yes", "a"});
        CHECK(broken.code == 0);
        CHECK(broken.out.starts_with("a was taken from its holder, "));
        CHECK(first.main().wait() == 70);
        CHECK_FALSE(first.is_alive());
        CHECK(first.main().err().find("forced release") != std::string::npos);
        CHECK(in->run({"break", "--now", "--yes", "a"}).out.starts_with("a was free in "));
    }
}

// shows: fault-break
TEST_CASE("break asks: the next command starts once the holder's command has ended") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        stubborn_run first{*in, {"60s", "--grace", "500ms"}};
        process next{command_line((*in)({"run", "a", "--", "sh", "-c", look_for_the_living})),
                     in->in_environment({.folder = first.folder().path()})};
        REQUIRE(in->queue_becomes(1, "a"));
        const auto broken = in->run({"break", "--yes", "a"});
        CHECK(broken.code == 0);
        CHECK(broken.out.starts_with("a was released by its holder in "));
        CHECK(broken.err.find("rowlock run bash") != std::string::npos);
        CHECK(broken.err.find("1 waits, next is rowlock run sh, pid " +
                              std::to_string(next.id())) != std::string::npos);
        CHECK(next.wait() == 0);
        CHECK(next.out() == "started\n");
        CHECK(first.main().wait() == 70);
        CHECK(first.main().err().find("release requested") != std::string::npos);
    }
}

// shows: fault-break
TEST_CASE("break asks: the command is asked to stop long before its holder's next heartbeat") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        process first{command_line((*in)({"run", "--ttl", "60s", "a", "--", "sleep", "1000"})),
                      in->in_environment({})};
        REQUIRE(tool::runs_its_command(first));
        const auto start = steady_clock::now();
        const auto broken = in->run({"break", "--yes", "a"});
        CHECK(broken.code == 0);
        CHECK(broken.out.starts_with("a was released by its holder in "));
        CHECK(first.wait() == 70);
        CHECK(steady_clock::now() - start < 15s);
    }
}

TEST_CASE("break --now stops the old command long before its holder's next heartbeat") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        process first{command_line((*in)({"run", "--ttl", "60s", "a", "--", "sleep", "1000"})),
                      in->in_environment({})};
        REQUIRE(tool::runs_its_command(first));
        const auto start = steady_clock::now();
        CHECK(in->run({"break", "--now", "--yes", "a"}).code == 0);
        CHECK(first.wait() == 70);
        CHECK(steady_clock::now() - start < 15s);
    }
}

TEST_CASE("break --now lets the next command start beside the old one (control)") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"120s", "--grace", "20s"}};
    REQUIRE(in->run({"break", "--now", "--yes", "a"}).code == 0);
    CHECK(next_run(*in, first.folder()).out.find("ALIVE") != std::string::npos);
}

TEST_CASE("a holder that cannot be reached loses a broken lock when its session would expire") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"6s", "--grace", "200ms"}};
    stop_between_writes(*in, first.main());
    const auto impatient = in->run({"break", "--yes", "--wait", "0", "a"});
    CHECK(impatient.code == 75);
    CHECK(impatient.err.find("was asked to stop and has not yet") != std::string::npos);
    const auto broken = in->run({"break", "--yes", "a"});
    CHECK(broken.code == 0);
    CHECK(broken.out.starts_with("a was taken from a dead session: rowlock run bash, pid " +
                                 std::to_string(first.main().id()) + " on "));
    CHECK(next_run(*in, first.folder()).out == "started\n");
    first.main().send(SIGCONT);
    CHECK(first.main().wait() == 70);
}

TEST_CASE("break says that a holder was dead, or did not stop, and not that it released the lock") {
    const auto all = tool::all_tables();
    for (const auto& in : all) {
        CAPTURE(std::string{in->name()});
        const auto source = rowlock::open(in->url()).with_tables({.prefix = in->prefix()});
        const std::string past =
            in->url().starts_with("postgresql:") ? "clock_timestamp() - interval '1 minute'" : "1";
        const auto outcome = [&](const tool::arguments& more) {
            tool::arguments command{"break", "--yes", "--json", "a"};
            command.insert(command.end(), more.begin(), more.end());
            const auto got = in->run(command);
            CAPTURE(got.err);
            CHECK(got.code == 0);
            return got.out;
        };
        if (in == all.front()) {
            // Lives, and keeps the lease although it knows. A shorter ttl passes on a busy machine.
            rowlock::client stubborn{source, {.ttl = 4s}};
            const auto held = stubborn.acquire("a");
            CHECK(outcome({}).find("\"overdue\"") != std::string::npos);
        }
        for (const tool::arguments& more : {tool::arguments{}, {"--now"}}) {
            REQUIRE(in->run({"acquire", "--for", "1h", "a"}).code == 0);
            source.connect(support::soon())
                ->query("update " + in->prefix() + "session set expires_at = " + past +
                            ", owner = 'a service'",
                        support::soon());
            CHECK(outcome(more).find(more.empty() ? "\"expired\"" : "\"taken\"") !=
                  std::string::npos);
        }
        REQUIRE(in->run({"acquire", "--for", "1h", "a"}).code == 0);
        source.connect(support::soon())
            ->query("update " + in->prefix() + "session set expires_at = " + past, support::soon());
        CHECK(in->run({"break", "--yes", "--now", "a"})
                  .out.starts_with("a was taken from a dead session"));
    }
}

TEST_CASE("a lock taken by `rowlock acquire` cannot be requested, and break says so") {
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"acquire", "--for", "1h", "a"}).code == 0);
    const auto refused = in->run({"break", "--yes", "a"});
    CHECK(refused.code == 75);
    CHECK(refused.err.find("--now") != std::string::npos);
    CHECK(in->run({"show", "a"}).out.find(" (fixed)\n") != std::string::npos);
    CHECK(in->run({"break", "--now", "--yes", "a"}).code == 0);
}

TEST_CASE("break and show name the transaction that keeps a lock, and what ends it") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        for (const bool now : {false, true}) {
            rowlock::client holder{rowlock::open(in->url()).with_tables({.prefix = in->prefix()})};
            std::optional held{holder.acquire("a")};
            tool::open_transaction keeps{*in};
            if (!now && !in->url().starts_with("sqlite:")) {
                // Once it is old enough to be none of rowlock's.
                CHECK(eventually([&] { return keeps.is_named_in(in->run({"show", "a"}).out); }));
                CHECK(in->run({"show", "--json", "a"}).out.find("\"ordinary\"") !=
                      std::string::npos);
            }
            tool::arguments command{"break", "--yes", "a"};
            if (now) command.emplace_back("--now");
            process breaks{command_line((*in)(command)), in->in_environment()};
            CHECK(eventually([&] { return keeps.is_named_in(breaks.err()); }));
            CHECK_FALSE(breaks.is_over());
            keeps.end();
            if (!now) {
                REQUIRE(eventually([&] { return held->lost().stop_requested(); }));
                held.reset();
            }
            CHECK(breaks.wait() == 0);
            CHECK(in->run({"show", "a"}).out.find("blocked by") == std::string::npos);
        }
    }
}

TEST_CASE("a break that a transaction keeps from its work ends with what to type") {
    const auto all = tool::all_tables();
    std::vector<std::unique_ptr<rowlock::client>> clients;
    std::vector<rowlock::lease> leases;
    std::vector<std::unique_ptr<tool::open_transaction>> transactions;
    std::vector<std::unique_ptr<process>> breaks;
    for (const auto& in : all) {
        clients.push_back(std::make_unique<rowlock::client>(
            rowlock::open(in->url()).with_tables({.prefix = in->prefix()}),
            rowlock::client_options{.ttl = 60s}));
        leases.push_back(clients.back()->acquire("a"));
        transactions.push_back(std::make_unique<tool::open_transaction>(*in));
        breaks.push_back(std::make_unique<process>(
            command_line((*in)({"break", "--now", "--yes", "a"})), in->in_environment()));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        CAPTURE(std::string{all[i]->name()});
        const int code = breaks[i]->wait();
        const auto said = breaks[i]->err();
        CAPTURE(said);
        REQUIRE(said.find("a is kept by a transaction: ") != std::string::npos);
        // Busy only if nothing was done. MariaDB may answer after the tool's deadline.
        const bool answered = said.find("nothing was done") != std::string::npos;
        CHECK(answered == (said.find("no answer came") == std::string::npos));
        CHECK(code == (answered ? 75 : 69));
        CHECK(transactions[i]->is_named_in(said.substr(said.find("a is kept by"))));
        CHECK(leases[i].held());
        CHECK(all[i]->run({"held", "a"}).code == 0);
        transactions[i]->end();
    }
}

TEST_CASE(
    "a holder in an outage reports its duration, the reason, and when the command will be "
    "stopped") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    std::string url = in->url();
    const auto port = url.rfind(':') + 1;
    const auto digits = url.find('/', port) - port;
    auto relay = std::make_unique<support::tcp_relay>(
        static_cast<std::uint16_t>(std::stoi(url.substr(port, digits))));
    url.replace(port, digits, std::to_string(relay->port()));
    process first{command_line((*in)({"run", "--ttl", "9s", "a", "--", "sleep", "1000"})),
                  {.variables = {{"ROWLOCK_URL", url}}}};
    REQUIRE(tool::runs_its_command(first));
    relay.reset();  // connections are refused from now on
    CHECK(first.wait() == 70);
    const auto said = first.err();
    CAPTURE(said);
    CHECK(said.find("database unreachable for ") != std::string::npos);
    CHECK(said.find("the command will be stopped in ") != std::string::npos);
}

TEST_CASE("a broken lock stops the command even if the supervisor is stopped") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"12s", "--grace", "500ms"}};
    REQUIRE(kill(first.supervisor(), SIGSTOP) == 0);
    CHECK(in->run({"break", "--now", "--yes", "a"}).code == 0);
    CHECK(first.main().wait() == 70);
    CHECK_FALSE(first.is_alive());
}

TEST_CASE("the exit code arrives even if the supervisor ends with signals still to forward") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    process main{command_line((*in)({"run", "--ttl", "1h", "a", "--", "sh", "-c",
                                     "echo $$ >pid; exec sleep 1000"})),
                 in->in_environment({.folder = folder.path()})};
    REQUIRE(eventually([&] { return tool::pids_in(folder / "pid").size() == 1; }));
    const pid_t command = tool::pids_in(folder / "pid").at(0);
    const pid_t supervisor = tool::children_of(main.id()).at(0);
    REQUIRE(kill(supervisor, SIGSTOP) == 0);
    REQUIRE(kill(command, SIGTERM) == 0);
    REQUIRE(eventually([&] { return !tool::is_alive(command); }));
    for (const int each : {SIGUSR1, SIGUSR2, SIGHUP}) {
        main.send(each);
        REQUIRE(eventually([&] {
            const auto status = contents("/proc/" + std::to_string(main.id()) + "/status");
            return status.find("ShdPnd:\t0000000000000000") != std::string::npos &&
                   status.find("State:\tS") != std::string::npos;
        }));
    }
    REQUIRE(kill(supervisor, SIGCONT) == 0);
    CHECK(main.wait() == 128 + SIGTERM);
}

TEST_CASE("a command has its grace to clean up after SIGTERM") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    const std::string script =
        "trap 'printf cleaned >log; exit 0' TERM; printf yes >started; while :; do sleep 0.02; "
        "done";
    process main{command_line((*in)(
                     {"run", "--ttl", "60s", "--grace", "10s", "a", "--", "bash", "-c", script})),
                 in->in_environment({.folder = folder.path()})};
    REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
    CHECK(in->run({"break", "--now", "--yes", "a"}).code == 0);
    CHECK(main.wait() == 70);
    CHECK(contents(folder / "log") == "cleaned");
}

TEST_CASE("processes that the command leaves in its group are stopped before the lock is free") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    const std::string script =
        "trap '' TERM; sleep 1000 & echo $! >pids; (exec setsid sleep 1000) & echo $! >daemon; "
        "until [ \"$(ps -o sid= -p $(cat daemon) | tr -d ' ')\" = \"$(cat daemon)\" ]; do :; done; "
        "exit 4";
    const auto first =
        in->run({"run", "--ttl", "60s", "--grace", "500ms", "a", "--", "bash", "-c", script},
                {.folder = folder.path()});
    CHECK(first.code == 4);
    CHECK(in->run({"run", "--wait", "0", "a", "--", "sh", "-c", look_for_the_living},
                  {.folder = folder.path()})
              .out == "started\n");
    // As documented, a process in its own session is not stopped.
    const pid_t daemon = tool::pids_in(folder / "daemon").at(0);
    CHECK(tool::is_alive(daemon));
    kill(daemon, SIGKILL);
}

TEST_CASE("a process whose first thread has ended counts as living, and is stopped") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    const std::string script =
        ROWLOCK_HEADLESS_PATH " log & until [ -s log ]; do :; done; sleep 0.1; exit 4";
    CHECK(in->run({"run", "--ttl", "60s", "--grace", "500ms", "a", "--", "sh", "-c", script},
                  {.folder = folder.path()})
              .code == 4);
    const auto written = contents(folder / "log").size();
    CHECK(written > 0);
    CHECK(in->run({"run", "a", "--", "sleep", "0.3"}).code == 0);  // it runs under the next lease
    CHECK(contents(folder / "log").size() == written);
}

TEST_CASE("kill -9 of a waiting rowlock leaves no process behind") {
    const auto in = tool::sqlite_tables();
    stubborn_run first{*in, {"60s", "--grace", "300ms"}};
    process waiting{command_line((*in)({"run", "a", "--", "true"})), in->in_environment()};
    REQUIRE(eventually([&] { return !tool::children_of(waiting.id()).empty(); }));
    const pid_t supervisor = tool::children_of(waiting.id()).at(0);
    waiting.send(SIGKILL);
    CHECK(waiting.wait() == 1000 + SIGKILL);
    CHECK(eventually([&] { return !tool::is_alive(supervisor); }));
}

namespace {

/// A run with a long ttl, whose command ends when it is asked to.
class obedient_run {
public:
    obedient_run(const tool::tables& in, const std::string& name)
        : main_{command_line(in({"run", "--ttl", "60s", name, "--", "sh", "-c",
                                 "echo $$ >pid; exec sleep 1000"})),
                in.in_environment({.folder = folder_.path()})} {
        REQUIRE(eventually([&] { return tool::pids_in(folder_ / "pid").size() == 1; }));
        command_ = tool::pids_in(folder_ / "pid").at(0);
        supervisor_ = tool::children_of(main_.id()).at(0);
    }
    process& main() { return main_; }
    [[nodiscard]] pid_t command() const noexcept { return command_; }
    [[nodiscard]] pid_t supervisor() const noexcept { return supervisor_; }

private:
    scratch folder_;
    process main_;
    pid_t command_ = 0;
    pid_t supervisor_ = 0;
};

}  // namespace

TEST_CASE("kill -9 of rowlock: a waiter gets the lock as soon as the group is dead") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        obedient_run first{*in, "a"};
        obedient_run bystander{*in, "b"};
        process next{command_line((*in)({"run", "--wait", "50s", "a", "--", "echo", "began"})),
                     in->in_environment()};
        REQUIRE(in->queue_becomes(1, "a"));
        first.main().send(SIGKILL);
        const auto start = steady_clock::now();
        CHECK(next.wait() == 0);
        CHECK(steady_clock::now() - start < 20s);  // a tool starts and ends on a busy machine
        CHECK_FALSE(tool::is_alive(first.command()));
        CHECK(eventually([&] { return !tool::is_alive(first.supervisor()); }));
        // Another run keeps its lock.
        CHECK(in->run({"run", "--wait", "0", "b", "--", "true"}).code == 75);
        CHECK(tool::is_alive(bystander.command()));
    }
}

TEST_CASE("kill -9 of rowlock after its command has ended and before the lock is released") {
    const auto in = tool::sqlite_tables();
    obedient_run first{*in, "a"};
    stop_between_writes(*in, first.main());
    REQUIRE(kill(first.command(), SIGKILL) == 0);
    REQUIRE(eventually([&] { return !tool::is_alive(first.command()); }));
    CHECK(in->run({"run", "--wait", "0", "a", "--", "true"}).code == 75);
    first.main().send(SIGKILL);
    CHECK(in->run({"run", "--wait", "20s", "a", "--", "true"}).code == 0);
}

TEST_CASE("kill -9 of a waiting rowlock deletes its queue entry") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        obedient_run first{*in, "a"};
        process waiting{command_line((*in)({"run", "-v", "--ttl", "60s", "a", "--", "true"})),
                        in->in_environment()};
        // By then the supervisor knows the session: the same thread tells both, in this order.
        REQUIRE(
            eventually([&] { return waiting.err().find("in the queue") != std::string::npos; }));
        REQUIRE(in->queue_becomes(1, "a"));
        waiting.send(SIGKILL);
        CHECK(in->queue_becomes(0, "a"));
    }
}

TEST_CASE("a supervisor that cannot reach the database ends, and the lock expires") {
    const auto in = tool::sqlite_tables();
    obedient_run first{*in, "a"};
    const std::string file = in->url().substr(in->url().find(':') + 1);
    REQUIRE(rename(file.c_str(), (file + ".away").c_str()) == 0);
    first.main().send(SIGKILL);
    CHECK(eventually([&] { return !tool::is_alive(first.supervisor()); }));
    CHECK_FALSE(tool::is_alive(first.command()));
    REQUIRE(rename((file + ".away").c_str(), file.c_str()) == 0);
    CHECK(in->run({"run", "--wait", "0", "a", "--", "true"}).code == 75);
}

TEST_CASE("the command inherits no socket of its supervisor, and no process shows the URL") {
    const auto in = tool::sqlite_tables();
    const auto seen = in->run({"run", "a", "--", "sh", "-c",
                               "ls -l /proc/$$/fd; env; tr '\\0' ' ' </proc/$PPID/cmdline"});
    CHECK(seen.code == 0);
    CHECK(seen.out.find("socket:") == std::string::npos);
    CHECK(seen.out.find("anon_inode") == std::string::npos);
    CHECK(seen.out.find(in->url()) == std::string::npos);
}

// shows: passwords
TEST_CASE(
    "the command finds the URL in no process of rowlock, by environment, arguments or memory") {
    const scratch folder;
    REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
    const std::string url = "sqlite:" + (folder / "sEcrEt.db");
    REQUIRE(tool::rowlock({"migrate", "--url", url}, {.unprivileged = true}).code == 0);
    // The control is a process of the same user that hides nothing.
    const std::string script =
        "find() { for f in environ cmdline; do tr '\\0' '\\n' </proc/$2/$f | grep -q 's[E]crEt' && "
        "echo $1 $f; done; while read -r range rights rest; do case $rights in rw*) ;; *) "
        "continue;; esac; from=$((0x${range%-*} / 4096)); to=$((0x${range#*-} / 4096)); "
        "dd if=/proc/$2/mem bs=4096 skip=$from count=$((to - from)) | grep -qa 's[E]crEt' && "
        "echo $1 mem; done </proc/$2/maps; }; "
        "up() { sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$1/stat; }; "
        "word=s; plain=${word}EcrEt sleep 1000 & "
        "until [ \"$(tr -d '\\0' </proc/$!/cmdline)\" = sleep1000 ]; do :; done; "
        "exec 2>/dev/null; find control $!; kill $!; "
        "find supervisor $PPID; find main $(up $PPID); "
        "sed 's/^[0-9]* (\\(.*\\)).*/\\1/' /proc/$PPID/stat /proc/$(up $PPID)/stat";
    const auto check = [&](tool::arguments options, const tool::environment& variables) {
        options.insert(options.begin(), "run");
        options.insert(options.end(), {"a", "--", "bash", "-c", script});
        const auto seen = tool::rowlock(options, {.variables = variables, .unprivileged = true});
        CAPTURE(seen.err);
        CHECK(seen.code == 0);
        CHECK(seen.out.find("control environ\n") != std::string::npos);
        CHECK(seen.out.find("control mem\n") != std::string::npos);
        CHECK(seen.out.ends_with("\nrowlock-guard\nrowlock\n"));
        CHECK(seen.out.find("supervisor ") == std::string::npos);
        CHECK(seen.out.find("main ") == std::string::npos);
    };
    check({}, {{"ROWLOCK_URL", url}});
    check({"--url", url}, {});
    check({"--url=" + url}, {{"ROWLOCK_URL", "sqlite:/sEcrEt"}});
}

TEST_CASE("a rowlock within the command's group is seen where /proc hides what hides its memory") {
    if (geteuid() != 0) {
        MESSAGE("skipped: mounting another /proc needs root");
        return;
    }
    const scratch folder;
    const std::string url = "sqlite:" + (folder / "locks.db");
    const std::string copy =
        folder / "rowlock";  // nobody may be unable to enter the build's folder
    std::filesystem::copy_file(ROWLOCK_TOOL_PATH, copy);
    REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
    const tool::setting hidden{
        .folder = folder.path(), .unprivileged = true, .before_exec = [] {
            if (unshare(CLONE_NEWNS) != 0 ||
                mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                mount("proc", "/proc", "proc", 0, "hidepid=2") != 0) {
                _exit(125);
            }
        }};
    REQUIRE(tool::rowlock({"migrate", "--url", url}, hidden).code == 0);
    const std::string inner =
        copy + " run --ttl 1h --url " + url +
        " b -- sh -c 'trap \"sleep 1; exit\" TERM; echo $$ >pid; while :; do sleep 0.1; done'";
    const auto outer = tool::rowlock(
        {"run", "--ttl", "1h", "--url", url, "a", "--", "sh", "-c",
         inner + " & until [ -s pid ]; do :; done; [ -d /proc/$! ] || echo hidden; exit 4"},
        hidden);
    CHECK(outer.code == 4);
    CHECK(outer.out == "hidden\n");  // control
    REQUIRE(tool::pids_in(folder / "pid").size() == 1);
    CHECK_FALSE(tool::is_alive(tool::pids_in(folder / "pid").at(0)));
}

// shows: passwords
TEST_CASE("the environment of a process of rowlock does not show the URL to root either") {
    const auto in = tool::sqlite_tables();
    for (const tool::arguments& command :
         {tool::arguments{"run", "a", "--", "sleep", "1000"}, {"reap", "--every", "1h"}}) {
        CAPTURE(command.front());
        process one{command_line((*in)(command)), in->in_environment()};
        const auto file = "/proc/" + std::to_string(one.id()) + "/environ";
        CHECK(eventually([&] {
            const auto seen = contents(file);  // empty for a user who may not read it
            return seen.find("locks.db") == std::string::npos &&
                   (seen.find("ROWLOCK_URL=") != std::string::npos || getuid() != 0);
        }));
    }
}

// --- at a terminal ------------------------------------------------------------------------------

namespace {

/// A session with a terminal, in which one command line of bash runs as the foreground job.
class terminal {
public:
    terminal(const tool::tables& in, const std::string& script, const std::string& folder) {
        session_ = forkpty(&master_, nullptr, nullptr, nullptr);
        REQUIRE(session_ >= 0);
        if (session_ == 0) {
            setenv("ROWLOCK_URL", in.url().c_str(), 1);
            setenv("ROWLOCK", ROWLOCK_TOOL_PATH, 1);
            if (chdir(folder.c_str()) != 0) _exit(125);
            execlp("bash", "bash", "--norc", "-c", script.c_str(), static_cast<char*>(nullptr));
            _exit(125);
        }
    }
    terminal(const terminal&) = delete;
    terminal& operator=(const terminal&) = delete;
    ~terminal() {
        close(master_);
        kill(session_, SIGKILL);
        if (!over_) waitpid(session_, nullptr, 0);
    }

    void type(const std::string& keys) const {
        REQUIRE(write(master_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
    }
    int wait() {
        int status = 0;
        REQUIRE(eventually([&] { return waitpid(session_, &status, WNOHANG) == session_; }));
        over_ = true;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }

private:
    int master_ = -1;
    pid_t session_ = -1;
    bool over_ = false;
};

}  // namespace

TEST_CASE("Ctrl-C goes to the command, and the terminal comes back to the shell") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    terminal shell{*in,
                   "\"$ROWLOCK\" run a -- sh -c 'printf yes >started; exec sleep 1000'; "
                   "echo $? >code; read line; echo \"$line\" >line",
                   folder.path()};
    REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
    shell.type("\x03");
    REQUIRE(eventually([&] { return contents(folder / "code") == "130\n"; }));
    shell.type("hello\n");
    REQUIRE(eventually([&] { return contents(folder / "line") == "hello\n"; }));
}

TEST_CASE("the command may read the terminal, also if its standard input is not a terminal") {
    const auto in = tool::sqlite_tables();
    for (const std::string input : {"", "</dev/null"}) {
        CAPTURE(input);
        const scratch folder;
        terminal shell{
            *in,
            "\"$ROWLOCK\" run a -- sh -c 'printf yes >started; read line </dev/tty; echo "
            "\"$line\" >line; exit 5' " +
                input + "; echo $? >code",
            folder.path()};
        REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
        shell.type("typed\n");
        CHECK(eventually([&] { return contents(folder / "code") == "5\n"; }));
        CHECK(contents(folder / "line") == "typed\n");
    }
}

TEST_CASE("Ctrl-Z does not stop a holder") {
    const auto in = tool::sqlite_tables();
    const scratch folder;
    terminal shell{*in,
                   "\"$ROWLOCK\" run a -- bash -c 'printf yes >started; read line; "
                   "printf \"$line\" >line'; echo $? >code",
                   folder.path()};
    REQUIRE(eventually([&] { return contents(folder / "started") == "yes"; }));
    shell.type("\x1a");
    shell.type("awake\n");
    CHECK(eventually([&] { return contents(folder / "code") == "0\n"; }));
    CHECK(contents(folder / "line") == "awake");
}

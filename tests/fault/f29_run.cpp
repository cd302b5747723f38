// F29: `rowlock run` and its processes under signals.

#include "fault/frame.hpp"
#include "tool/stubborn_run.hpp"
#include "tool/tool.hpp"

#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using tool::command_line;
using tool::process;
using tool::scratch;
using tool::stubborn_run;
using steady = std::chrono::steady_clock;

constexpr const char* ttl = "9s";
const std::vector<std::string> with_short_grace{ttl, "--grace", "300ms"};
/// Far less than the ttl: the lock is released, and does not expire.
constexpr milliseconds bound = 3s;

/// Waits for the lock, and checks for live processes as soon as it has it.
class successor {
public:
    successor(const tool::tables& in, const scratch& folder)
        : process_{command_line(in(
                       {"run", "--wait", "25s", "a", "--", "sh", "-c", tool::look_for_the_living})),
                   in.in_environment({.folder = folder.path()})} {
        // It has enqueued once `ls` shows it.
        const bool waits = tool::eventually([&] {
            const auto listed = in.run({"show", "--json", "a"});
            return listed.out.find("\"position\"") != std::string::npos ||
                   listed.out.find("\"waiting\":1") != std::string::npos ||
                   listed.out.find("\"waiting\": 1") != std::string::npos;
        });
        if (!waits)
            throw fault::not_prepared{"no waiter is queued: " +
                                      in.run({"show", "--json", "a"}).out};
    }
    [[nodiscard]] bool has_begun() const { return !process_.out().empty(); }
    void check(trial& in, steady::time_point from, const std::string& after) {
        const bool began =
            tool::eventually([&] { return process_.out().find("started") != std::string::npos; });
        in.must(began, after + ": the next command does not start");
        in.took(steady::now() - from, after + ", until the next command began");
        in.must(process_.out().find("ALIVE") == std::string::npos,
                after + ": the next command began while the former lived");
        in.must(process_.wait() == 0, after + ": the next command failed");
    }

private:
    process process_;
};

void kill_rowlock(trial& in, const tool::tables& tables) {
    stubborn_run first{tables, with_short_grace};
    successor next{tables, first.folder()};
    first.main().send(SIGKILL);
    next.check(in, steady::now(), "kill -9 of rowlock");
    in.must(!first.is_alive(), "kill -9 of rowlock: a process still runs");
    in.made();
}

/// Kills a run with a long ttl, whose lock must not stay held for that long.
void kill_a_long_run(trial& in, const tool::tables& tables) {
    stubborn_run first{tables, {"60s", "--grace", "300ms"}};
    successor next{tables, first.folder()};
    first.main().send(SIGKILL);
    if (!tool::eventually([&] { return !first.is_alive(); })) in.violation("something lives on");
    const auto dead = steady::now();
    next.check(in, dead, "kill -9 of rowlock with a long ttl");
    in.took(steady::now() - dead, "from the death of the group until the next command is over", 1s);
    in.made();
}

void kill_supervisor(trial& in, const tool::tables& tables) {
    stubborn_run first{tables, with_short_grace};
    successor next{tables, first.folder()};
    kill(first.supervisor(), SIGKILL);
    next.check(in, steady::now(), "kill -9 of the supervisor");
    in.must(first.main().wait() == 71, "kill -9 of the supervisor: another exit code than 71");
    in.must(!first.is_alive(), "kill -9 of the supervisor: a process still runs");
    in.made();
}

/// The command ignores signals, and keeps the lock for as long as it lives.
void ignore_signals(trial& in, const tool::tables& tables) {
    stubborn_run first{tables, with_short_grace};
    successor next{tables, first.folder()};
    for (const int each : {SIGTERM, SIGINT, SIGTERM}) {
        first.main().send(each);
        std::this_thread::sleep_for(200ms);
    }
    in.must(first.is_alive() && !next.has_begun(), "a signal that was ignored ended the lease");
    kill(first.pids().back(), SIGKILL);  // the command itself
    next.check(in, steady::now(), "kill -9 of the command");
    in.must(first.main().wait() == 128 + SIGKILL, "the command's end by a signal is not reported");
    in.must(!first.is_alive(), "the command's children still run");
    in.made();
}

/// The command ends on the signal with its own exit code, and leaves children behind.
void obey_a_signal(trial& in, const tool::tables& tables, int signal) {
    const scratch folder;
    const std::string script =
        "trap 'exit 7' TERM INT; (trap '' TERM INT HUP; echo $BASHPID >>pids; exec sleep 1000) & "
        "until [ -s pids ]; do sleep 0.01; done; echo yes >started; while :; do sleep 0.05; done";
    process main{command_line(tables(
                     {"run", "--ttl", ttl, "--grace", "300ms", "a", "--", "bash", "-c", script})),
                 tables.in_environment({.folder = folder.path()})};
    if (!tool::eventually([&] { return tool::contents(folder / "started") == "yes\n"; })) {
        in.violation("the command does not start");
        return;
    }
    successor next{tables, folder};
    main.send(signal);
    next.check(in, steady::now(), "signal " + std::to_string(signal));
    in.must(main.wait() == 7, "the exit code did not pass through");
    in.made();
}

void signal_runs(trial& in, const std::function<std::unique_ptr<tool::tables>()>& make) {
    const auto tables = make();
    if (!tables) {
        in.skip("no server");
        return;
    }
    for (int i = 0; i < in.rounds(); ++i) {
        kill_rowlock(in, *tables);
        kill_a_long_run(in, *tables);
        kill_supervisor(in, *tables);
        ignore_signals(in, *tables);
        obey_a_signal(in, *tables, SIGTERM);
        obey_a_signal(in, *tables, SIGINT);
    }
}

/// The control: flock(1), which is killed as well.
void kill_flock(trial& in) {
    const scratch folder;
    const std::string script =
        "trap '' TERM INT HUP; echo $$ >>pids; echo yes >started; while :; do sleep 0.1; done";
    process wrapper{{"flock", "-o", folder / "lock", "bash", "-c", script},
                    {.folder = folder.path()}};
    if (!tool::eventually([&] { return tool::contents(folder / "started") == "yes\n"; })) {
        throw std::runtime_error{"flock does not start"};
    }
    process next{{"flock", "-o", folder / "lock", "sh", "-c", tool::look_for_the_living},
                 {.folder = folder.path()}};
    wrapper.send(SIGKILL);
    next.wait();
    if (next.out().find("ALIVE") != std::string::npos) {
        in.violation("the next command began while the former lived");
    }
    for (const auto each : tool::pids_in(folder / "pids")) kill(each, SIGKILL);
}

fault::row f29_on(const char* where, const std::function<std::unique_ptr<tool::tables>()>& make) {
    return {.id = std::string{"F29/"} + where,
            .what = "signals to rowlock run, its supervisor, and commands that ignore them",
            .quick_rounds = 1,
            .full_rounds = 25,
            .bound = bound,
            .run = [make](trial& in) { signal_runs(in, make); },
            .control = kill_flock};
}

const fault::registered f29_postgresql{
    f29_on("postgresql", [] { return tool::server_tables(support::server::postgresql); })};
const fault::registered f29_mariadb{
    f29_on("mariadb", [] { return tool::server_tables(support::server::mariadb); })};
const fault::registered f29_sqlite{f29_on("sqlite", [] { return tool::sqlite_tables(); })};

}  // namespace

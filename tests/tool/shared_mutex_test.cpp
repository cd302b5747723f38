// `rowlock run --shared`, `--exclusive` and `--limit`, and `rowlock shared`.
// shows: promise-12, promise-13

#include "tool/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using rowlock::lock_mode;

namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// A client on the tool's tables.
rowlock::sql::connection_source tables_of(const tool::tables& in) {
    return rowlock::open(in.url()).with_tables({.prefix = in.prefix()});
}

}  // namespace

TEST_CASE("run --shared runs beside readers and not beside a writer, run --exclusive alone") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const tool::arguments& command) { return in->run(command); };
        CHECK(contains(run({"shared", "ls"}).out, "no shared_mutexes"));
        CHECK(run({"shared", "show", "page"}).code == 1);
        CHECK(contains(run({"run", "--shared", "page", "--", "echo", "read"}).out, "read"));
        rowlock::client locks{tables_of(*in)};
        rowlock::shared_mutex page{locks, "page"};
        {
            const auto reading = page.acquire(lock_mode::shared, {.note = "a \x1b[31m report"});
            CHECK(run({"run", "-n", "--shared", "page", "--", "true"}).code == 0);
            const auto busy = run({"run", "-n", "--exclusive", "page", "--", "echo", "written"});
            CHECK(busy.code == 75);
            CHECK(busy.out.empty());
            const auto shown = run({"shared", "show", "page"});
            CHECK(contains(shown.out, "state      shared\nreaders    1\n"));
            CHECK(contains(shown.out, "a \\x1b[31m report"));
            const auto json = run({"shared", "show", "page", "--json"}).out;
            CHECK(contains(json, "\"mode\": \"shared\""));
        }
        {
            const auto writing = page.acquire(lock_mode::exclusive);
            CHECK(run({"run", "-n", "--shared", "page", "--", "true"}).code == 75);
            CHECK(contains(run({"shared", "show", "page"}).out, "state      exclusive\n"));
            CHECK(contains(run({"ls", "pa"}).out, "held"));
            CHECK(contains(run({"shared", "ls", "pa"}).out, "no shared_mutexes"));
        }
        const auto tokens =
            run({"run", "--exclusive", "page", "--", "sh", "-c", "echo $ROWLOCK_TOKEN"});
        CHECK(std::stoll(tokens.out) > 0);
        // What is free, and was used in no other way, is shown as any lock.
        CHECK(contains(run({"shared", "ls", "pa"}).out, "no shared_mutexes"));
        CHECK(contains(run({"ls", "--all", "pa"}).out, "free"));
    }
}

TEST_CASE("run --limit runs up to so many at a time, by weight, and keeps an operator's capacity") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const tool::arguments& command) { return in->run(command); };
        CHECK(run({"run", "--limit", "3", "billing", "--", "true"}).code == 0);
        rowlock::client locks{tables_of(*in)};
        rowlock::semaphore billing{locks, "billing"};
        CHECK(billing.inspect()->capacity == 3);
        const auto held = billing.acquire(2);
        CHECK(run({"run", "-n", "--limit", "3", "billing", "--", "true"}).code == 0);
        CHECK(run({"run", "-n", "--limit", "3", "--weight", "2", "billing", "--", "true"}).code ==
              75);
        billing.set_capacity(4);
        const auto other =
            run({"run", "-n", "--limit", "3", "--weight", "2", "billing", "--", "echo", "export"});
        CHECK(other.code == 64);
        CHECK(other.out == "");
        CHECK(contains(other.err, "billing allows 4, and this command says --limit 3"));
        const auto more =
            run({"run", "-n", "--limit", "4", "--weight", "2", "billing", "--", "echo", "export"});
        CHECK(more.code == 0);
        CHECK(contains(more.out, "export"));
        CHECK(billing.inspect()->used == 2);
        CHECK(run({"run", "--limit", "4", "--weight", "5", "billing", "--", "true"}).code == 64);
    }
}

TEST_CASE("a plain run and --shared exclude each other, and a semaphore's name is refused") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const tool::arguments& command) { return in->run(command); };
        const auto is_busy = [&](const tool::arguments& command) {
            const auto got = run(command);
            CAPTURE(got.err);
            CHECK(got.code == 75);
            CHECK(got.out.empty());
        };
        const auto is_refused = [&](const tool::arguments& command, const std::string& why) {
            const auto got = run(command);
            CAPTURE(got.err);
            CHECK(got.code == 64);
            CHECK(got.out.empty());
            CHECK(contains(got.err, why));
        };
        rowlock::client locks{tables_of(*in)};
        rowlock::shared_mutex page{locks, "page"};
        {
            const auto reading = page.acquire(lock_mode::shared);
            is_busy({"run", "-n", "page", "--", "echo", "ran"});
            is_busy({"run", "-n", "--lock", "page", "--lock", "other", "--", "echo", "ran"});
            is_refused({"run", "--limit", "2", "page", "--", "echo", "ran"},
                       "is the name of a lock that is held or waited for");
            CHECK(reading.held());
        }
        CHECK(run({"run", "--wait", "20s", "page", "--", "true"}).code == 0);
        {
            const auto lease = locks.acquire("page");
            is_busy({"run", "-n", "--shared", "page", "--", "echo", "ran"});
            is_busy({"run", "-n", "--exclusive", "page", "--", "echo", "ran"});
            is_refused({"run", "--limit", "2", "page", "--", "echo", "ran"},
                       "is the name of a lock that is held or waited for");
            CHECK(lease.held());
        }
        for (const auto* const mode : {"--shared", "--exclusive"}) {
            CHECK(run({"run", "--wait", "20s", mode, "page", "--", "true"}).code == 0);
        }
        rowlock::semaphore{locks, "billing"}.create(2);
        is_refused({"run", "billing", "--", "echo", "ran"}, "is the name of a semaphore");
        is_refused({"run", "--shared", "billing", "--", "echo", "ran"},
                   "is the name of a semaphore");
    }
}

TEST_CASE("a command that runs under a hold does not wait for it") {
    const auto in = tool::sqlite_tables();
    const std::string tool = tool::command_line({}).front();
    const std::vector<std::string> ways{"", "--shared", "--exclusive"};
    for (const auto& outer : ways) {
        for (const auto& inner : ways) {
            CAPTURE(outer);
            CAPTURE(inner);
            tool::arguments command{"run", "--pass-url"};
            if (!outer.empty()) command.push_back(outer);
            command.insert(command.end(),
                           {"page", "--", tool, "run", "--prefix", in->prefix(), "--wait", "10s"});
            if (!inner.empty()) command.push_back(inner);
            command.insert(command.end(), {"page", "--", "true"});
            const auto nested = in->run(command);
            CAPTURE(nested.err);
            CHECK(nested.code == 64);
            CHECK(contains(nested.err, "wait for itself"));
        }
    }
}

TEST_CASE("a command does not wait for permits that it runs under") {
    const auto in = tool::sqlite_tables();
    const std::string tool = tool::command_line({}).front();
    const auto nested = [&](const std::string& limit) {
        return in->run({"run", "--pass-url", "--limit", limit, "billing", "--", tool, "run",
                        "--prefix", in->prefix(), "--limit", limit, "billing", "--", "true"});
    };
    const auto refused = nested("1");
    CHECK(refused.code == 64);
    CHECK(contains(refused.err, "wait for itself"));
    CHECK(in->run({"semaphore", "set", "billing", "2"}).code == 0);
    CHECK(nested("2").code == 0);
}

TEST_CASE("run refuses modes and limits that do not go together") {
    const auto in = tool::sqlite_tables();
    for (const tool::arguments& command :
         {tool::arguments{"run", "--shared", "--exclusive", "page", "--", "true"},
          {"run", "--shared", "--limit", "2", "page", "--", "true"},
          {"run", "--shared", "--owner", "me", "--reclaim", "page", "--", "true"},
          {"run", "--limit", "0", "page", "--", "true"},
          {"run", "--limit", "many", "page", "--", "true"},
          {"run", "--weight", "2", "page", "--", "true"},
          {"run", "--limit", "2", "--weight", "-1", "page", "--", "true"}}) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == 64);
        CHECK(got.out.empty());
    }
}

TEST_CASE("ls and show know every kind of lock") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const tool::arguments& command) { return in->run(command); };
        CHECK(contains(run({"ls"}).out, "no lock is held"));
        rowlock::client locks{tables_of(*in)};
        rowlock::shared_mutex page{locks, "page"};
        rowlock::semaphore billing{locks, "billing"};
        billing.set_capacity(3);
        CHECK(contains(run({"ls"}).out, "no lock is held"));
        CHECK(contains(run({"ls", "--all"}).out, "billing"));
        const auto reading = page.acquire(lock_mode::shared, {.note = "a \x1b[31m report"});
        const auto held = billing.acquire(2);
        const auto lease = locks.acquire("nightly");
        const auto listed = run({"ls"});
        CHECK(listed.code == 0);
        for (const char* each : {"nightly", "page", "shared", "billing", "SEMAPHORE"}) {
            CAPTURE(std::string{each});
            CHECK(contains(listed.out, each));
        }
        CHECK_FALSE(contains(run({"ls", "--waiting"}).out, "page"));
        const auto shown = run({"show", "page"});
        CHECK(contains(shown.out, "kind       shared_mutex"));
        CHECK(contains(shown.out, "a \\x1b[31m report"));
        CHECK_FALSE(contains(shown.out, "never locked"));
        CHECK(contains(run({"show", "billing"}).out, "used       2"));
        CHECK(run({"show", "nothing"}).code == 1);
    }
}

TEST_CASE("break asks for, or takes, one hold of a shared_mutex or a semaphore") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto run = [&](const tool::arguments& command) { return in->run(command); };
        rowlock::client locks{tables_of(*in)};
        rowlock::shared_mutex page{locks, "page"};
        const auto first = page.acquire(lock_mode::shared);
        const auto second = page.acquire(lock_mode::shared);
        const auto which = run({"break", "--yes", "--now", "page"});
        CHECK(which.code == 64);
        CHECK(contains(which.err, "--token"));
        const auto token = std::to_string(first.token().value());
        CHECK(
            contains(run({"break", "--yes", "--now", "--token", token, "page"}).out, "was taken"));
        CHECK(tool::eventually([&] { return !first.held(); }));
        CHECK(second.held());
        CHECK(contains(run({"break", "--yes", "--now", "--token", token, "page"}).out,
                       "not held by that holder"));

        // The token of a hold from before its upgrade is known as well.
        {
            rowlock::shared_mutex index{locks, "index"};
            auto hold = index.acquire(lock_mode::upgradeable);
            const auto before = std::to_string(hold.token().value());
            hold.upgrade();
            CHECK(contains(run({"break", "--yes", "--now", "--token", before, "index"}).out,
                           "was taken"));
            CHECK(tool::eventually([&] { return !hold.held(); }));
        }

        // A command under a semaphore is stopped, and its permits come back.
        tool::process command{
            tool::command_line((*in)({"run", "--limit", "2", "billing", "--", "sleep", "1000"})),
            in->in_environment()};
        rowlock::semaphore billing{locks, "billing"};
        REQUIRE(tool::eventually([&] {
            const auto seen = billing.inspect();
            return seen && seen->used == 1;
        }));
        CHECK(contains(run({"break", "--yes", "billing"}).out, "was released by its holder"));
        CHECK(command.wait() == 70);
        CHECK(billing.inspect()->used == 0);
        CHECK(contains(run({"break", "--yes", "billing"}).out, "was free"));
    }
}

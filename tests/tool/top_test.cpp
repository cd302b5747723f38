// `rowlock top` and `rowlock ls` on a terminal: in tmux, whose screen the test reads.

#include "cli/table.hpp"
#include "tool/screen.hpp"
#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

bool contains(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

/// A client of the test on the tables of the tool.
std::unique_ptr<rowlock::client> client_of(const tool::tables& in) {
    return std::make_unique<rowlock::client>(
        rowlock::open(in.url()).with_tables({.prefix = in.prefix()}));
}

/// One that waits until it is destroyed.
std::unique_ptr<tool::process> waiter_of(const tool::tables& in, const std::string& name) {
    auto one = std::make_unique<tool::process>(tool::command_line(in({"run", name, "--", "true"})),
                                               in.in_environment());
    REQUIRE(in.queue_becomes(1, name));
    return one;
}

}  // namespace

TEST_CASE("top shows what is held and waited for, the longest wait first, and fits the terminal") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto locks = client_of(*in);
        const auto alpha = locks->acquire("alpha", {.note = std::string(200, 'n')});
        const auto beta = locks->acquire("beta");
        const auto mode = rowlock::shared_mutex{*locks, "page"}.acquire(rowlock::lock_mode::shared);
        rowlock::semaphore limit{*locks, "limit"};
        limit.set_capacity(3);
        const auto permits = limit.acquire(2);
        const auto waits = waiter_of(*in, "beta");
        const tool::screen top{*in, {"top", "--every", "100ms"}};
        REQUIRE(top.shows("4 held, 1 waiting"));
        const auto text = top.text();
        CHECK(text.find("beta") < text.find("alpha"));
        CHECK(contains(text, "2 of 3 permits"));
        CHECK(contains(text, "1 reading"));
        CHECK(contains(text, "q quit"));
        std::istringstream lines{text};
        for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
        top.type("q");
        CHECK(top.is_over());
    }
}

TEST_CASE("top is used by keys: choose, show, filter, order") {
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto alpha = locks->acquire("alpha");
    const auto beta = locks->acquire("beta", {.note = "the nightly job"});
    const tool::screen top{*in, {"top", "--every", "100ms"}};
    REQUIRE(top.shows("2 held"));
    top.type("o");
    CHECK(top.shows("by time held"));
    top.type("o");
    CHECK(top.shows("by waiters"));
    top.type("o");
    CHECK(top.shows("by name"));
    top.type("j");
    top.type("Enter");
    CHECK(top.shows("the nightly job"));
    top.type("x");
    CHECK(top.shows("2 held"));
    top.type("/");
    top.type("al");
    CHECK(top.shows("filter: al_"));
    top.type("Enter");
    CHECK(top.shows("1 held"));
    CHECK(top.hides("beta"));
    top.type("C-c");
    CHECK(top.is_over());
}

TEST_CASE("top breaks the lock that was chosen, after a question") {
    const auto in = tool::sqlite_tables();
    tool::process holder{tool::command_line((*in)({"run", "nightly", "--", "sleep", "1000"})),
                         in->in_environment()};
    REQUIRE(tool::runs_its_command(holder));
    const tool::screen top{*in, {"top", "--every", "100ms"}};
    REQUIRE(top.shows("1 held"));
    top.type("b");
    CHECK(top.shows("Break the lock? [y/N]"));
    top.type("n");
    top.type("Enter");
    CHECK(top.shows("nothing was done"));
    top.type("x");
    REQUIRE(top.shows("1 held"));
    CHECK_FALSE(holder.is_over());
    top.type("b");
    CHECK(top.shows("Break the lock? [y/N]"));
    top.type("y");
    top.type("Enter");
    CHECK(top.shows("was released by its holder"));
    CHECK(holder.wait() != 0);
    top.type("x");
    CHECK(top.shows("no lock is held"));
    top.type("q");
    CHECK(top.is_over());
}

TEST_CASE("top says as of when it shows what it does while the database cannot be read") {
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"acquire", "--for", "1h", "nightly"}).code == 0);
    const auto execute = [&](const std::string& sql) {
        const auto deadline = std::chrono::steady_clock::now() + 30s;
        rowlock::open(in->url()).connect(deadline)->query(sql, deadline);
    };
    const tool::screen top{*in, {"top", "--every", "100ms"}};
    REQUIRE(top.shows("1 held"));
    CHECK_FALSE(contains(top.text(), "as of"));
    execute("alter table rowlock_ticket rename to hidden");
    CHECK(top.shows("cannot read"));
    CHECK(top.shows("as of "));
    const auto clock_of = [](const std::string& text) {
        return text.substr(text.find("as of "), std::string{"as of 00:00:00"}.size());
    };
    const auto stopped = clock_of(top.text());
    std::this_thread::sleep_for(1'100ms);  // a clock that ran would show another second
    CHECK(clock_of(top.text()) == stopped);
    execute("alter table hidden rename to rowlock_ticket");
    CHECK(top.hides("as of "));
    top.type("q");
    CHECK(top.is_over());
}

TEST_CASE("top shows names of other programs without obeying them, and needs a terminal") {
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto hostile = locks->acquire("evil \xE2\x80\xAE name");
    const tool::screen top{*in, {"top", "--every", "100ms"}};
    CHECK(top.shows("1 held"));
    CHECK(contains(top.text(), "evil \\u{202e} name"));
    const auto refused = in->run({"top"});
    CHECK(refused.code == 64);
    CHECK(contains(refused.err, "needs a terminal"));
}

TEST_CASE("ls fits the terminal, and writes everything to a file") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto locks = client_of(*in);
        const auto held = locks->acquire("reports/" + std::string(60, 'x'), {.note = "a note"});
        const tool::screen list{*in, {"ls"}, true};
        REQUIRE(list.shows("NAME"));
        const auto text = list.text();
        CHECK(contains(text, "reports/" + std::string(60, 'x')));
        CHECK(contains(text, "HELD"));
        CHECK_FALSE(contains(text, "TOKEN"));
        CHECK_FALSE(contains(text, "LONGEST"));  // no queue: nothing to show
        const auto whole = in->run({"ls"}).out;
        CHECK(contains(whole, "reports/" + std::string(60, 'x')));
        CHECK(contains(whole, "LONGEST"));
        CHECK(contains(whole, "a note"));
    }
}

TEST_CASE("a name is cut last, in the middle, and only where even the name alone is too long") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto locks = client_of(*in);
        const auto held =
            locks->acquire("nightly-reports-of-all-shops-eu-west", {.note = "a note"});
        const auto waits = waiter_of(*in, "nightly-reports-of-all-shops-eu-west");
        for (const char* command : {"ls", "waits"}) {
            CAPTURE(command);
            {
                const tool::screen list{*in, {command}, true};
                CHECK(list.shows("nightly-reports-of-all-shops-eu-west"));
            }
            const tool::screen narrow{*in, {command}, true, 34};
            CHECK(narrow.shows("…"));
            CHECK(contains(narrow.text(), "nig"));
            CHECK(contains(narrow.text(), "est"));
        }
        const tool::screen live{*in, {"top"}, true, 50};
        CHECK(live.shows("eu-west"));
    }
}

TEST_CASE("on any width a table keeps to it, and columns go before a name is cut") {
    using rowlock::cli::table;
    const std::string name = "nightly-reports-of-all-shops-eu-west";
    const std::vector<std::string> headings{"NAME", "STATE", "TOKEN", "HOST", "HELD", "NOTE"};
    const std::vector<std::vector<std::string>> rows{
        {name, "held", "123456", "a-host-with-a-long-name", "4m12s", "some note of it"},
        {"b", "expired", "1", "another-host", "1h00m", ""}};
    CHECK(contains(table(headings, rows, 0), "a-host-with-a-long-name"));
    for (std::size_t width = 15; width < 130; ++width) {
        CAPTURE(width);
        const auto text = table(headings, rows, width);
        CAPTURE(text);
        std::istringstream lines{text};
        for (std::string line; std::getline(lines, line);) {
            CHECK(rowlock::cli::width_of(line) <= width);
        }
        CHECK(contains(text, "nig"));
        CHECK(contains(text, name) == (width >= name.size()));
        CHECK((contains(text, name) || contains(text, "west")));
        if (width < 80) CHECK_FALSE(contains(text, "TOKEN"));
    }
    CHECK(rowlock::cli::cut_middle("nightly-reports-eu-west", 20) == "nightly-re…s-eu-west");
}

TEST_CASE("texts are as wide as the terminal shows them, and are cut between characters") {
    using rowlock::cli::cut;
    using rowlock::cli::cut_middle;
    using rowlock::cli::width_of;
    CHECK(width_of("Größe") == 5);
    CHECK(width_of("e\u0301t\u00e9") == 3);  // a combining accent
    CHECK(width_of("\u591c\u9593") == 4);    // two wide characters
    CHECK(width_of("\U0001f512") == 2);      // a lock
    CHECK(cut("\u591c\u9593\u591c", 4) == "\u591c…");
    CHECK(cut_middle("e\u0301e\u0301e\u0301e\u0301", 3) == "e\u0301…e\u0301");
    for (std::size_t width = 1; width < 12; ++width) {
        for (const std::string text :
             {"\u591c\u9593-\u591c\u9593-x", "ae\u0301io\U0001f512\U0001f512zz"}) {
            CHECK(width_of(cut(text, width)) <= width);
            CHECK(width_of(cut_middle(text, width)) <= width);
        }
    }
}

TEST_CASE("ls sorts, and chooses by host and by age") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto locks = client_of(*in);
        const auto alpha = locks->acquire("alpha");
        const auto beta = locks->acquire("beta");
        const auto waits = waiter_of(*in, "beta");
        const auto order_of = [&](const tool::arguments& command) {
            const auto text = in->run(command).out;
            const auto a = text.find("alpha");
            const auto b = text.find("beta");
            return std::pair{a != std::string::npos, b != std::string::npos && b < a};
        };
        CHECK(order_of({"ls"}) == std::pair{true, false});
        CHECK(order_of({"ls", "--sort", "wait"}) == std::pair{true, true});
        CHECK(order_of({"ls", "--sort", "waiters"}) == std::pair{true, true});
        CHECK(order_of({"ls", "--sort", "held"}) == std::pair{true, false});
        const auto first = in->run({"ls", "--sort", "wait", "--limit", "1"});
        CHECK(contains(first.out, "beta"));
        CHECK_FALSE(contains(first.out, "alpha"));
        CHECK(contains(first.err, "more than 1"));
        CHECK(in->run({"ls", "--older-than", "1h"}).out.starts_with("no lock"));
        CHECK(contains(in->run({"ls", "--older-than", "1ms"}).out, "alpha"));
        CHECK(in->run({"ls", "--host", "elsewhere"}).out.starts_with("no lock"));
        CHECK(in->run({"ls", "--sort", "colour"}).code == 64);
    }
}

TEST_CASE("ls --watch lists again and again until a signal ends it") {
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto alpha = locks->acquire("alpha");
    tool::process watch{tool::command_line((*in)({"ls", "--watch", "--every", "50ms"})),
                        in->in_environment()};
    REQUIRE(tool::eventually([&] { return contains(watch.out(), "alpha"); }));
    const auto beta = locks->acquire("beta");
    CHECK(tool::eventually([&] { return contains(watch.out(), "beta"); }));
    watch.send(2);
    CHECK(watch.wait() == 130);
}

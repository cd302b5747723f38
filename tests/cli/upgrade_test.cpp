// The tool of an earlier release beside this one, on the same tables: before, during and after the
// migration. scripts/upgrade builds the earlier one, and says where it is in ROWLOCK_EARLIER_TOOL,
// and in ROWLOCK_EARLIER whether it "works" on the tables of this one or is "refused".

#include "cli/tool.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    REQUIRE_MESSAGE(value != nullptr, name, " is not set: run scripts/upgrade");
    return value;
}

bool contains(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

/// Commands of the earlier tool.
class earlier_tool {
public:
    explicit earlier_tool(const tool::tables& in)
        : in_{in}, path_{from_environment("ROWLOCK_EARLIER_TOOL")} {}

    [[nodiscard]] std::unique_ptr<tool::process> start(tool::arguments command) const {
        auto all = in_(std::move(command));
        all.insert(all.begin(), path_);
        return std::make_unique<tool::process>(all, in_.in_environment());
    }
    [[nodiscard]] tool::answer run(const tool::arguments& command) const {
        const auto made = start(command);
        const int code = made->wait();
        return {code, made->out(), made->err()};
    }

private:
    const tool::tables& in_;
    const std::string path_;
};

/// A command that says that it has begun, and ends when it is asked to.
class job {
public:
    explicit job(std::string name) : name_{std::move(name)} {}
    [[nodiscard]] tool::arguments command(const std::string& part) const {
        return {"sh", "-c",
                "echo x >> " + begun_by(part) + "; while [ ! -e " + ended() +
                    " ]; do sleep 0.05; done"};
    }
    [[nodiscard]] bool has_begun(const std::string& part) const {
        return !tool::contents(begun_by(part)).empty();
    }
    void end() const { std::ofstream{ended()} << "x"; }

private:
    [[nodiscard]] std::string begun_by(const std::string& part) const {
        return folder_ / (name_ + part);
    }
    [[nodiscard]] std::string ended() const { return folder_ / (name_ + "-ended"); }

    const tool::scratch folder_;
    const std::string name_;
};

tool::arguments run_under(const std::string& lock, const tool::arguments& command) {
    tool::arguments all{"run", "--ttl", "15s", lock, "--"};
    all.insert(all.end(), command.begin(), command.end());
    return all;
}

}  // namespace

TEST_CASE("a later client refuses tables of an earlier release, and says what to run") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        const earlier_tool earlier{*in};
        REQUIRE(earlier.run({"migrate"}).code == 0);
        const auto refused = in->run({"run", "a", "--", "true"});
        CHECK(refused.code != 0);
        CHECK(contains(refused.err, "run `rowlock migrate`"));
        CHECK(earlier.run({"run", "a", "--", "true"}).code == 0);
    }
}

TEST_CASE(
    "an earlier client that holds a lock, and one that waits, keep at it through the migration") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        const earlier_tool earlier{*in};
        REQUIRE(earlier.run({"migrate"}).code == 0);
        const job first{"first"};
        const job second{"second"};
        const auto holder = earlier.start(run_under("a", first.command("-1")));
        REQUIRE(tool::eventually([&] { return first.has_begun("-1"); }));
        const auto waiter = earlier.start(run_under("a", second.command("-2")));
        REQUIRE(tool::eventually([&] { return contains(earlier.run({"show", "a"}).out, "1"); }));

        REQUIRE(in->run({"migrate"}).code == 0);
        // Longer than its ttl: by heartbeats on the new tables.
        const auto until = std::chrono::steady_clock::now() + 17s;
        while (std::chrono::steady_clock::now() < until) {
            REQUIRE_FALSE(holder->is_over());
            CHECK(in->run({"run", "--wait", "100ms", "a", "--", "true"}).code != 0);
            CHECK_FALSE(second.has_begun("-2"));
        }
        first.end();
        CHECK(holder->wait() == 0);
        CHECK(tool::eventually([&] { return second.has_begun("-2"); }));
        second.end();
        CHECK(waiter->wait() == 0);
        CHECK(in->run({"run", "a", "--", "true"}).code == 0);
    }
}

TEST_CASE("an earlier client that starts on later tables works with them or is refused") {
    const bool works = from_environment("ROWLOCK_EARLIER") == "works";
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        const earlier_tool earlier{*in};
        REQUIRE(in->run({"migrate"}).code == 0);
        const job work{"work"};
        work.end();
        const auto answer = earlier.run(run_under("a", work.command("-1")));
        CHECK((answer.code == 0) == works);
        CHECK(work.has_begun("-1") == works);  // a command never runs without its lock
        if (!works) CHECK(contains(answer.err, "upgrade rowlock"));
        CHECK(in->run({"run", "a", "--", "true"}).code == 0);
    }
}

TEST_CASE("the later tool takes its tables back to those of the earlier release") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        const earlier_tool earlier{*in};
        REQUIRE(earlier.run({"migrate"}).code == 0);
        const auto status = earlier.run({"migrate", "--status"}).out;  // "version 14 of 14"
        const auto version = status.substr(8, status.find(' ', 8) - 8);
        REQUIRE(in->run({"migrate"}).code == 0);
        REQUIRE(in->run({"run", "a", "--", "true"}).code == 0);
        REQUIRE(in->run({"migrate", "--down-to", version, "--yes"}).code == 0);
        CHECK(earlier.run({"migrate", "--status"}).code == 0);
        CHECK(earlier.run({"run", "a", "--", "true"}).code == 0);
    }
}

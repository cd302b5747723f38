// What `migrate`, `reap` and `doctor` say while they work for long: in tmux, whose screen the test
// reads.

#include "tool/screen.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>

using namespace std::chrono_literals;

namespace {

/// Keeps every other writer of a SQLite file waiting until it is destroyed.
class blocker {
public:
    explicit blocker(const tool::tables& in)
        : db_{rowlock::open(in.url()).connect(std::chrono::steady_clock::now() + 30s)} {
        query("begin immediate");
    }
    ~blocker() { query("rollback"); }
    blocker(const blocker&) = delete;
    blocker& operator=(const blocker&) = delete;

private:
    void query(const char* sql) { db_->query(sql, std::chrono::steady_clock::now() + 30s); }

    std::unique_ptr<rowlock::sql::connection> db_;
};

}  // namespace

TEST_CASE(
    "migrate, reap and doctor say on a terminal what they are at, and take it back at the end") {
    struct expected {
        const char* command;
        const char* progress;
        const char* end;
    };
    for (const auto& [command, progress, end] :
         {expected{"reap", "ending expired sessions … ", "sessions ended"},
          expected{"migrate", "waiting for the database … ", "applied migration"},
          expected{"doctor", "checking rights … ", "connection"}}) {
        CAPTURE(std::string{command});
        CHECK(tool::eventually([&] {
            const auto in = tool::sqlite_tables();
            REQUIRE(in->run({"migrate", "--down-to", "0", "--yes"}).code == 0);
            if (std::string{command} != "migrate") REQUIRE(in->run({"migrate"}).code == 0);
            auto held = std::make_unique<blocker>(*in);
            const tool::screen terminal{*in, {command}, true};
            const bool shown = terminal.shows(progress, 15s);
            held = nullptr;
            return shown && terminal.shows(end, 15s) && terminal.hides(progress);
        }));
    }
}

TEST_CASE("they say nothing of it elsewhere") {
    CHECK(tool::eventually([] {
        const auto in = tool::sqlite_tables();
        auto held = std::make_unique<blocker>(*in);
        tool::process reap{tool::command_line((*in)({"reap"})), in->in_environment()};
        // Control: a terminal has the line by then.
        const tool::screen terminal{*in, {"reap"}, true};
        const bool shown = terminal.shows("ending expired sessions … ", 15s);
        held = nullptr;
        const bool ended = reap.wait() == 0;  // it waits for some seconds only
        CHECK(reap.out().find("…") == std::string::npos);
        CHECK((!ended || reap.err() == ""));
        return shown && ended;
    }));
}

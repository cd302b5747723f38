// Who waits for a lock: the tool stands in line, and shows who does.

#include "cli/tool.hpp"
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

json parsed(const tool::tables& in, const tool::arguments& command) {
    const auto got = in.run(command);
    CAPTURE(got.err);
    REQUIRE(got.code == 0);
    REQUIRE(json::accept(got.out));
    return json::parse(got.out);
}

std::size_t waiting(const tool::tables& in, const std::string& name) {
    return parsed(in, {"show", "--json", name})["queue"].size();
}

/// `rowlock acquire a`; where given, the command line goes on with `more`.
std::unique_ptr<tool::process> start_acquire(const tool::tables& in, tool::arguments more = {}) {
    tool::arguments command{"acquire", "--for", "1h"};
    command.insert(command.end(), more.begin(), more.end());
    command.push_back("a");
    return std::make_unique<tool::process>(tool::command_line(in(command)), in.in_environment());
}

/// Starts one and waits until it stands in the queue as the last of `place`.
std::unique_ptr<tool::process> stand_in_line(const tool::tables& in, std::size_t place,
                                             tool::arguments more = {}) {
    auto one = start_acquire(in, std::move(more));
    REQUIRE(tool::eventually([&] { return waiting(in, "a") == place; }));
    return one;
}

struct grant {
    long long token = 0;
    std::string id;
};

grant read_grant(const std::string& text) {
    grant got;
    std::istringstream{text} >> got.token >> got.id;
    return got;
}

grant take(const tool::tables& in) {
    const auto got = in.run({"acquire", "--for", "1h", "a"});
    REQUIRE(got.code == 0);
    return read_grant(got.out);
}

/// Nobody holds, nobody waits, and no session is left for the reaper.
void check_nothing_is_left(const tool::tables& in) {
    const auto row = parsed(in, {"show", "--json", "a"});
    CHECK(row["state"] == "free");
    CHECK(row["queue"].empty());
    CHECK(parsed(in, {"reap", "--json"})["sessions_deleted"] == 0);
}

}  // namespace

TEST_CASE("those who wait with acquire are served in the order in which they came") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        grant now = take(*in);
        std::vector<std::unique_ptr<tool::process>> line;
        for (std::size_t i = 1; i <= 3; ++i) line.push_back(stand_in_line(*in, i));
        for (const auto& next : line) {
            CHECK_FALSE(next->is_over());
            // Nobody passes them, not even where it does not wait.
            CHECK(in->run({"acquire", "--for", "1h", "--wait", "0", "a"}).code == 75);
            CHECK(in->run({"release", "a", now.id}).code == 0);
            REQUIRE(next->wait() == 0);
            const grant got = read_grant(next->out());
            CHECK(got.token == now.token + 1);
            CHECK(parsed(*in, {"show", "--json", "a"})["holder"]["grant_id"].dump() == got.id);
            now = got;
        }
        CHECK(in->run({"release", "a", now.id}).code == 0);
        check_nothing_is_left(*in);
    }
}

TEST_CASE("a grant that was waited for lasts as long as was asked, although nobody renews it") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        const auto next = stand_in_line(*in, 1, {"--json"});
        CHECK(in->run({"release", "a", first.id}).code == 0);
        REQUIRE(next->wait() == 0);
        const auto told = json::parse(next->out());
        CHECK(told["expires_in_ms"] <= 3'600'000);
        CHECK(told["expires_in_ms"] > 3'500'000);
        const auto holder = parsed(*in, {"show", "--json", "a"})["holder"];
        CHECK(holder["remaining_ms"] > 3'500'000);
        CHECK(holder["program"] == "rowlock acquire");
    }
}

TEST_CASE("a waiter that slept through its grant does not return it, but stands in line again") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        tool::process sleeper{
            tool::command_line((*in)({"acquire", "--for", "700ms", "--json", "a"})),
            in->in_environment()};
        REQUIRE(tool::eventually([&] { return waiting(*in, "a") == 1; }));
        sleeper.send(SIGSTOP);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        const auto now = [&] { return parsed(*in, {"show", "--json", "a"}); };
        REQUIRE(tool::eventually([&] { return now()["token"] == first.token + 1; }));
        REQUIRE(tool::eventually([&] { return now()["state"] == "free"; }));
        sleeper.send(SIGCONT);
        REQUIRE(sleeper.wait() == 0);
        const auto told = json::parse(sleeper.out());
        CHECK(told["token"] == first.token + 2);
        CHECK(told["expires_in_ms"] > 0);
    }
}

TEST_CASE("a wait that ends by its time or a signal leaves no place behind") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        CHECK(in->run({"acquire", "--for", "1h", "--wait", "300ms", "a"}).code == 75);
        CHECK(waiting(*in, "a") == 0);
        const auto one = stand_in_line(*in, 1);
        const auto two = stand_in_line(*in, 2);
        one->send(SIGTERM);
        CHECK(one->wait() == 128 + SIGTERM);
        CHECK(one->out() == "");
        CHECK(waiting(*in, "a") == 1);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        REQUIRE(two->wait() == 0);
        CHECK(in->run({"release", "a", read_grant(two->out()).id}).code == 0);
        check_nothing_is_left(*in);
    }
}

TEST_CASE("a waiting acquire that is killed stands in the way for half a minute at most") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        const auto one = stand_in_line(*in, 1);
        one->send(SIGKILL);
        one->wait();
        const auto ttl_of = [&](const json& session) {
            const auto until = std::chrono::steady_clock::now() + tool::patience;
            const auto db = rowlock::open(in->url()).connect(until);
            return db
                ->query(
                    "select ttl_us from " + in->prefix() + "session where id = " + session.dump(),
                    until)
                .integer(0, 0);
        };
        // The lease would have lasted an hour; its session lives longer, the waiter's does not.
        const auto left = parsed(*in, {"show", "--json", "a"});
        REQUIRE(left["queue"].size() == 1);
        CHECK(ttl_of(left["queue"][0]["session"]) == 30'000'000);
        CHECK(ttl_of(left["holder"]["session"]) > 3'600'000'000);
        CHECK(in->run({"release", "a", first.id}).code == 0);
    }
}

TEST_CASE("a waiting run has its turn in line with the others") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        const auto one = stand_in_line(*in, 1);
        tool::process run{tool::command_line(
                              (*in)({"run", "--note", "nightly", "a", "--", "sh", "-c", "exit 7"})),
                          in->in_environment()};
        REQUIRE(tool::eventually([&] { return waiting(*in, "a") == 2; }));
        const auto queue = parsed(*in, {"show", "--json", "a"})["queue"];
        CHECK(queue[0]["position"] == 1);
        CHECK(queue[0]["pid"] == one->id());
        CHECK(queue[1]["position"] == 2);
        CHECK(queue[1]["pid"] == run.id());
        CHECK(queue[1]["note"] == "nightly");
        CHECK(queue[1]["program"] == "rowlock run sh");
        CHECK(queue[1]["waited_ms"] >= 0);
        CHECK(queue[1]["ticket"] > queue[0]["ticket"]);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        REQUIRE(one->wait() == 0);
        CHECK_FALSE(run.is_over());
        CHECK(in->run({"release", "a", read_grant(one->out()).id}).code == 0);
        CHECK(run.wait() == 7);
        check_nothing_is_left(*in);
    }
}

TEST_CASE("show and ls tell who waits, where, for how long, and why") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        CHECK(in->run({"ls", "--waiting"}).out == "nobody waits for a lock\n");
        const grant first = take(*in);
        REQUIRE(in->run({"acquire", "--for", "1h", "b"}).code == 0);
        CHECK(in->run({"ls", "--waiting"}).out == "nobody waits for a lock\n");
        const auto one = stand_in_line(*in, 1, {"--note", "red \x1b[31m"});

        const auto rows = parsed(*in, {"ls", "--waiting", "--json"});
        REQUIRE(rows.size() == 1);
        CHECK(rows[0]["name"] == "a");
        CHECK(rows[0]["state"] == "held");
        CHECK(rows[0]["waiting"] == 1);
        CHECK(rows[0]["longest_wait_ms"] >= 0);
        CHECK(parsed(*in, {"ls", "--json"}).size() == 2);
        const auto listed = in->run({"ls", "--waiting"}).out;
        CHECK(listed.find("WAITING") != std::string::npos);
        CHECK(listed.find("\nb ") == std::string::npos);

        const auto shown = in->run({"show", "a"}).out;
        CHECK(shown.find("waiting    1\n") != std::string::npos);
        CHECK(shown.find("POSITION") != std::string::npos);
        CHECK(shown.find(std::to_string(one->id())) != std::string::npos);
        CHECK(shown.find("red \\x1b[31m") != std::string::npos);
        CHECK(shown.find('\x1b') == std::string::npos);
        CHECK(in->run({"show", "b"}).out.find("waiting    0\n") != std::string::npos);
        CHECK(in->run({"ls", "--waiting", "--all"}).code == 64);
    }
}

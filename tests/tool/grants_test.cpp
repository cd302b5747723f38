// `rowlock acquire`, `renew` and `release`: a lease for a shell script.

#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sstream>
#include <string>

namespace {

using namespace std::chrono_literals;

struct grant {
    long long token = 0;
    std::string id;
};

grant acquire(const tool::tables& in, tool::arguments more) {
    more.insert(more.begin(), "acquire");
    const auto got = in.run(more);
    CAPTURE(got.err);
    REQUIRE(got.code == 0);
    std::istringstream text{got.out};
    grant read;
    REQUIRE(static_cast<bool>(text >> read.token >> read.id));
    return read;
}

}  // namespace

TEST_CASE(
    "acquire takes a lock that outlives the process, and release with its grant id frees it") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = acquire(*in, {"--for", "1h", "a"});
        CHECK(first.token == 1);
        CHECK(in->run({"acquire", "--for", "1h", "--wait", "0", "a"}).code == 75);
        CHECK(in->run({"run", "--wait", "0", "a", "--", "true"}).code == 75);
        CHECK(in->run({"release", "a", "12345"}).code == 1);
        CHECK(in->run({"acquire", "--for", "1h", "--wait", "100ms", "a"}).code == 75);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        CHECK(in->run({"release", "a", first.id}).code == 1);

        const grant second = acquire(*in, {"--for", "1h", "--wait", "0", "a"});
        CHECK(second.token == 2);
        // A repeated release never frees a newer grant.
        CHECK(in->run({"release", "a", first.id}).code == 1);
        CHECK(in->run({"acquire", "--for", "1h", "--wait", "0", "a"}).code == 75);
        CHECK(in->run({"release", "a", second.id}).code == 0);
        // No row is left for the reaper.
        const auto reaped = nlohmann::json::parse(in->run({"reap", "--json"}).out);
        CHECK(reaped["sessions_deleted"] == 0);
    }
}

TEST_CASE("an acquired lock frees itself at its deadline, not before") {
    for (const auto& in : tool::for_the_tool()) {
        CAPTURE(std::string{in->name()});
        acquire(*in, {"--for", "10m", "a"});
        const auto row = nlohmann::json::parse(in->run({"show", "--json", "a"}).out);
        CHECK(row["holder"]["remaining_ms"] <= 600'000);
        CHECK(row["holder"]["program"] == "rowlock acquire");
        in->let_pass(5min);
        CHECK(in->run({"run", "-n", "a", "--", "true"}).code == 75);
        in->let_pass(6min);
        CHECK(in->run({"run", "-n", "a", "--", "sh", "-c", "echo $ROWLOCK_TOKEN"}).out == "2\n");
    }
}

TEST_CASE("acquire waits until the lock is released, or a signal comes") {
    const auto in = tool::sqlite_tables();
    const grant first = acquire(*in, {"--for", "1h", "a"});
    tool::process impatient{tool::command_line((*in)({"acquire", "--for", "1h", "a"})),
                            in->in_environment()};
    tool::process patient{tool::command_line((*in)({"acquire", "--for", "1h", "a"})),
                          in->in_environment()};
    // It has blocked its signals before it opens the database.
    REQUIRE(tool::eventually([&] {
        const auto maps = "/proc/" + std::to_string(impatient.id()) + "/maps";
        return tool::contents(maps).find("-shm") != std::string::npos;
    }));
    impatient.send(SIGTERM);
    CHECK(impatient.wait() == 128 + SIGTERM);
    CHECK(impatient.out() == "");
    CHECK(in->run({"release", "a", first.id}).code == 0);
    CHECK(patient.wait() == 0);
    CHECK(patient.out().starts_with("2 "));
}

TEST_CASE("renew moves the deadline of what acquire took, of a lease with a new token") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto remaining = [&] {
            const auto row = nlohmann::json::parse(in->run({"show", "--json", "a"}).out);
            return row["holder"]["remaining_ms"].get<long long>();
        };
        const grant first = acquire(*in, {"--for", "60s", "a"});
        CHECK(remaining() <= 60'000);
        const auto got = in->run({"renew", "--for", "1h", "--json", "a", first.id});
        CAPTURE(got.err);
        REQUIRE(got.code == 0);
        const auto renewed = nlohmann::json::parse(got.out);
        CHECK(renewed["grant_id"] == first.id);
        CHECK(std::stoll(renewed["token"].get<std::string>()) > first.token);
        CHECK(renewed["expires_in_ms"] > 3'500'000);
        CHECK(renewed["expires_in_ms"] <= 3'600'000);
        CHECK(remaining() > 3'500'000);
        CHECK(in->run({"run", "-n", "a", "--", "true"}).code == 75);

        CHECK(in->run({"renew", "--for", "1h", "a", "12345"}).code == 1);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        CHECK(in->run({"renew", "--for", "1h", "a", first.id}).code == 1);

        // Asked for it: with a time, and at once.
        const grant second = acquire(*in, {"--for", "1h", "a"});
        const auto ask = [&](tool::arguments more) {
            const auto shown = nlohmann::json::parse(in->run({"show", "--json", "a"}).out);
            more.insert(more.begin(), {"break", "--yes", "--token",
                                       shown["token"].get<std::string>(), "--wait", "1ms"});
            static_cast<void>(in->run(more));
        };
        ask({"--within", "30m", "--reason", "a deploy", "a"});
        const auto refused = in->run({"renew", "--for", "2h", "a", second.id});
        CHECK(refused.code == 1);
        CHECK(refused.err.find("a deploy") != std::string::npos);
        CHECK(remaining() <= 3'600'000);
        CHECK(in->run({"release", "a", second.id}).code == 0);
        const grant third = acquire(*in, {"--for", "1h", "a"});
        ask({"a"});
        CHECK(in->run({"renew", "--for", "2h", "a", third.id}).code == 1);
        CHECK(in->run({"release", "a", third.id}).code == 0);
    }
}

TEST_CASE("a renewal never shortens a lock, be it a lease, permits or a mode") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto stays = [&](const char* name, tool::arguments how) {
            CAPTURE(std::string{name});
            how.insert(how.end(), {"--for", "1h", name});
            const grant got = acquire(*in, how);
            // The second shows what the first has left.
            for (int i = 0; i < 2; ++i) {
                const auto done = in->run({"renew", "--for", "1s", "--json", name, got.id});
                CAPTURE(done.err);
                REQUIRE(done.code == 0);
                CHECK(nlohmann::json::parse(done.out)["expires_in_ms"] > 3'500'000);
            }
            CHECK(in->run({"release", name, got.id}).code == 0);
        };
        stays("a", {});
        stays("api", {"--limit", "1"});
        stays("page", {"--exclusive"});
    }
}

TEST_CASE("renew keeps a lock that was taken out of its queue, and permits and modes") {
    for (const auto& in : tool::for_the_tool()) {
        CAPTURE(std::string{in->name()});
        const grant before = acquire(*in, {"--for", "1h", "a"});
        tool::process next{tool::command_line((*in)({"acquire", "--for", "10s", "a"})),
                           in->in_environment()};
        REQUIRE(in->queue_becomes(1, "a"));
        CHECK(in->run({"release", "a", before.id}).code == 0);
        REQUIRE(next.wait() == 0);
        const auto out = next.out();
        CHECK(in->run({"renew", "--for", "1h", "a",
                       out.substr(out.find(' ') + 1, out.find('\n') - out.find(' ') - 1)})
                  .code == 0);

        const grant permit = acquire(*in, {"--for", "10s", "--limit", "1", "api"});
        CHECK(in->run({"renew", "--for", "1h", "api", permit.id}).out ==
              std::to_string(permit.token) + " " + permit.id + "\n");
        const grant mode = acquire(*in, {"--for", "10s", "--exclusive", "page"});
        CHECK(in->run({"renew", "--for", "1h", "page", mode.id}).code == 0);
        const grant dies = acquire(*in, {"--for", "10s", "--exclusive", "leaf"});
        in->let_pass(60s);
        // The control: what is not renewed is over.
        CHECK(in->run({"run", "--wait", "25s", "--shared", "leaf", "--", "true"}).code == 0);
        CHECK(in->run({"renew", "--for", "1h", "leaf", dies.id}).code == 1);
        CHECK(in->run({"run", "-n", "--limit", "1", "api", "--", "true"}).code == 75);
        CHECK(in->run({"run", "-n", "--shared", "page", "--", "true"}).code == 75);
        CHECK(in->run({"release", "api", permit.id}).code == 0);
        CHECK(in->run({"release", "page", mode.id}).code == 0);
    }
}

TEST_CASE("release does not free what a running process holds") {
    const auto in = tool::sqlite_tables();
    const tool::scratch folder;
    tool::process main{tool::command_line((*in)(
                           {"run", "a", "--", "sh", "-c", "printf yes >started; exec sleep 1000"})),
                       in->in_environment({.folder = folder.path()})};
    REQUIRE(tool::eventually([&] { return tool::contents(folder / "started") == "yes"; }));
    const auto row = nlohmann::json::parse(in->run({"show", "--json", "a"}).out);
    const auto refused = in->run({"release", "a", row["holder"]["grant_id"]});
    CHECK(refused.code == 64);
    CHECK(refused.err.find("rowlock break") != std::string::npos);
    CHECK_FALSE(main.is_over());
    main.send(SIGTERM);
    CHECK(main.wait() == 128 + SIGTERM);
}

TEST_CASE("durations may be written in every unit") {
    const auto in = tool::sqlite_tables();
    const struct {
        const char* text;
        long long milliseconds;
    } durations[] = {{"15500ms", 15'500}, {"90", 90'000},     {"90s", 90'000},
                     {"1.5h", 5'400'000}, {"2m", 120'000},    {"2h", 7'200'000},
                     {"1d", 86'400'000},  {"10.25s", 10'250}, {"20min", 1'200'000}};
    int leases = 0;
    for (const auto& each : durations) {
        CAPTURE(each.text);
        const auto passed = [&] {
            const auto name = std::to_string(++leases);
            const auto got = in->run({"acquire", "--for", each.text, "--json", name});
            REQUIRE(nlohmann::json::accept(got.out));
            // Counted from when the statement was sent, which precedes the grant.
            const long long left = nlohmann::json::parse(got.out)["expires_in_ms"];
            CHECK(left <= each.milliseconds);
            return each.milliseconds - left;
        };
        CHECK(support::at_best(200LL, passed) < 200);
    }
}

TEST_CASE(
    "a grant whose deadline passes before it is known is retried three times, then an error") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    std::string url = in->url();
    const auto port = url.rfind(':') + 1;
    const auto digits = url.find('/', port) - port;
    support::tcp_relay slow{static_cast<std::uint16_t>(std::stoi(url.substr(port, digits)))};
    slow.delay(support::tcp_relay::direction::answers, 50ms);
    url.replace(port, digits, std::to_string(slow.port()));
    const tool::environment far{{"ROWLOCK_URL", url}};
    const auto acquire_briefly = (*in)({"acquire", "--for", "20ms", "--wait", "2m", "a"});
    const auto got = tool::rowlock(acquire_briefly, {.variables = far});
    CHECK(got.code == 69);
    CHECK(got.out == "");
    CHECK(got.err.find("own deadline") != std::string::npos);
    // The same in the queue.
    const grant first = acquire(*in, {"--for", "1h", "a"});
    tool::process waiter{tool::command_line(acquire_briefly), {.variables = far}};
    // A second waiter, which is granted the lease after the first one's deadline.
    tool::process other{tool::command_line(acquire_briefly), {.variables = far}};
    REQUIRE(in->queue_becomes(2, "a"));
    CHECK(in->run({"release", "a", first.id}).code == 0);
    for (tool::process* each : {&waiter, &other}) {
        CHECK(each->wait() == got.code);
        CHECK(each->err().find("own deadline") != std::string::npos);
        CHECK(each->err().find("waiting on") == std::string::npos);
        CHECK(each->err().find("queue entry") == std::string::npos);
    }
    CHECK(nlohmann::json::parse(in->run({"show", "--json", "a"}).out)["waiting"] == 0);
    CHECK(in->run({"acquire", "--for", "1h", "--wait", "10s", "a"}).code == 0);
}

TEST_CASE("without the row of the token floor acquire fails, and the doctor says what is missing") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto until = std::chrono::steady_clock::now() + 30s;
        const auto db = rowlock::open(in->url()).connect(until);
        db->query("delete from " + in->prefix() + "token_floor", until);
        const auto got = in->run({"acquire", "--for", "1h", "--wait", "0", "a"});
        CHECK((got.code == 76 || got.code == 78));
        CHECK(got.err.find("token floor") != std::string::npos);
        const auto examined = in->run({"doctor"});
        CHECK(examined.code == 1);
        CHECK(examined.out.find("fail  token floor") != std::string::npos);
    }
}

// shows: promise-12, promise-13
TEST_CASE("acquire --limit takes permits, and --shared and --exclusive a shared_mutex") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto code = [&](const tool::arguments& command) { return in->run(command).code; };
        const grant first = acquire(*in, {"--for", "1h", "--limit", "3", "--weight", "2", "api"});
        CHECK(code({"acquire", "--for", "1h", "-n", "--limit", "3", "--weight", "2", "api"}) == 75);
        const grant second = acquire(*in, {"--for", "1h", "-n", "--limit", "3", "api"});
        CHECK(second.token > first.token);
        CHECK(in->run({"semaphore", "show", "api"}).out.find("used       3") != std::string::npos);
        CHECK(code({"run", "-n", "--limit", "3", "api", "--", "true"}) == 75);
        CHECK(code({"release", "api", second.id}) == 0);
        CHECK(code({"release", "api", second.id}) == 1);
        CHECK(code({"release", "api", first.id}) == 0);
        CHECK(in->run({"semaphore", "show", "api"}).out.find("used       0") != std::string::npos);

        const grant reading = acquire(*in, {"--for", "1h", "--shared", "page"});
        const grant beside = acquire(*in, {"--for", "1h", "-n", "--shared", "page"});
        CHECK(code({"acquire", "--for", "1h", "-n", "--exclusive", "page"}) == 75);
        CHECK(code({"release", "page", reading.id}) == 0);
        CHECK(code({"release", "page", beside.id}) == 0);
        const grant writing = acquire(*in, {"--for", "1h", "--exclusive", "page"});
        CHECK(code({"acquire", "--for", "1h", "-n", "--shared", "page"}) == 75);
        CHECK(code({"release", "page", writing.id}) == 0);
        // No session is left for the reaper.
        CHECK(nlohmann::json::parse(in->run({"reap", "--json"}).out)["sessions_deleted"] == 0);
    }
}

TEST_CASE("acquire waits for permits, in line, and the entry of a waiter that gives up is gone") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant all = acquire(*in, {"--for", "1h", "--limit", "2", "--weight", "2", "api"});
        tool::process waiting{
            tool::command_line((*in)({"acquire", "--for", "1h", "--limit", "2", "api"})),
            in->in_environment()};
        const auto waiters = [&] {
            return nlohmann::json::parse(
                       in->run({"semaphore", "show", "--json", "api"}).out)["queue"]
                .size();
        };
        REQUIRE(in->queue_becomes(1, "api"));
        CHECK(in->run({"acquire", "--for", "1h", "--limit", "2", "--wait", "200ms", "api"}).code ==
              75);
        CHECK(waiters() == 1);
        CHECK(in->run({"release", "api", all.id}).code == 0);
        CHECK(waiting.wait() == 0);
        CHECK(in->run({"semaphore", "show", "api"}).out.find("used       1") != std::string::npos);
    }
}

TEST_CASE("permits and modes that were acquired free themselves at their deadline, not before") {
    for (const auto& in : tool::for_the_tool()) {
        CAPTURE(std::string{in->name()});
        acquire(*in, {"--for", "10s", "--exclusive", "page"});
        CHECK(in->run({"acquire", "--for", "1h", "-n", "--shared", "page"}).code == 75);
        acquire(*in, {"--for", "10s", "--limit", "1", "api"});
        CHECK(in->run({"acquire", "--for", "1h", "-n", "--limit", "1", "api"}).code == 75);
        in->let_pass(20s);
        acquire(*in, {"--for", "1h", "--wait", "30s", "--shared", "page"});
        acquire(*in, {"--for", "1h", "--wait", "30s", "--limit", "1", "api"});
    }
}

TEST_CASE("acquire refuses kinds that exclude each other, and waits for one lock in each kind") {
    const auto in = tool::sqlite_tables();
    const auto refused = [&](const tool::arguments& command, const char* why) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == 64);
        CHECK(got.err.find(why) != std::string::npos);
    };
    refused({"acquire", "--for", "1h", "--shared", "--limit", "2", "a"}, "exclude each other");
    refused({"acquire", "--for", "1h", "--weight", "2", "a"}, "--weight needs --limit");
    refused({"acquire", "--for", "1h", "--limit", "2", "--weight", "3", "a"}, "never be granted");
    // One name is one lock.
    const auto is_busy = [&](const tool::arguments& command) {
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == 75);
        CHECK(got.out.empty());
    };
    const auto* const in_use = "is the name of a lock that is held or waited for";
    const grant reading = acquire(*in, {"--for", "1h", "--shared", "page"});
    is_busy({"acquire", "--for", "1h", "-n", "page"});
    is_busy({"acquire", "--for", "1h", "--wait", "100ms", "page"});
    refused({"acquire", "--for", "1h", "--limit", "2", "page"}, in_use);
    const grant sole = acquire(*in, {"--for", "1h", "nightly"});
    is_busy({"acquire", "--for", "1h", "-n", "--shared", "nightly"});
    is_busy({"acquire", "--for", "1h", "--wait", "100ms", "--exclusive", "nightly"});
    refused({"acquire", "--for", "1h", "--limit", "2", "nightly"}, in_use);
    refused({"run", "--limit", "2", "nightly", "--", "true"}, in_use);
    refused({"semaphore", "set", "nightly", "2"}, in_use);
    // A release serves who waits, in whatever kind.
    tool::process writer{tool::command_line((*in)({"acquire", "--for", "1h", "page"})),
                         in->in_environment()};
    tool::process reader{
        tool::command_line((*in)({"acquire", "--for", "1h", "--shared", "nightly"})),
        in->in_environment()};
    REQUIRE(in->queue_becomes(1, "page"));
    REQUIRE(in->queue_becomes(1, "nightly"));
    CHECK(in->run({"release", "page", reading.id}).code == 0);
    CHECK(in->run({"release", "nightly", sole.id}).code == 0);
    CHECK(writer.wait() == 0);
    CHECK(reader.wait() == 0);
    is_busy({"acquire", "--for", "1h", "-n", "--shared", "page"});
    is_busy({"acquire", "--for", "1h", "-n", "nightly"});
    // The first that uses a limit makes it; others name the same.
    acquire(*in, {"--for", "1h", "--limit", "2", "api"});
    refused({"acquire", "--for", "1h", "--limit", "3", "api"}, "allows 2, and this command");
    refused({"acquire", "--for", "1h", "api"}, "semaphore: use --limit");
    refused({"run", "api", "--", "touch", "ran"}, "is the name of a semaphore");
    refused({"acquire", "--for", "1h", "--shared", "api"}, "is the name of a semaphore");
}

namespace {

/// From now on the database refuses every new session, for a reason of its own.
void refuse_sessions(const tool::tables& in) {
    const std::string table = in.prefix() + "session";
    const std::string trigger = in.prefix() + "audit";
    const std::string url = in.url();
    const std::string sql =
        url.starts_with("postgresql:")
            ? "alter table " + table + " add constraint audit_is_closed check (false) not valid"
        : url.starts_with("sqlite:")
            ? "create trigger " + trigger + " before insert on " + table +
                  " begin select raise(abort, 'audit_is_closed'); end"
            : "create trigger " + trigger + " before insert on " + table +
                  " for each row signal sqlstate '45000' set message_text = 'audit_is_closed'";
    rowlock::open(url).connect(support::soon())->query(sql, support::soon());
}

}  // namespace

TEST_CASE("an error says what the server said, with its number") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        refuse_sessions(*in);
        const char* const number = in->url().starts_with("postgresql:") ? "SQLSTATE 23514"
                                   : in->url().starts_with("sqlite:")
                                       ? "error 1811"
                                       : "SQLSTATE 45000, error 1644";
        for (const tool::arguments& command : {tool::arguments{"run", "a", "--", "true"},
                                               {"run", "-nq", "a", "--", "true"},
                                               {"run", "--limit", "2", "b", "--", "true"},
                                               {"acquire", "--for", "1m", "a"},
                                               {"acquire", "--json", "--for", "1m", "a"}}) {
            CAPTURE(command);
            const auto got = in->run(command);
            CAPTURE(got.err);
            CHECK(got.code == 76);
            CHECK(got.err.find("audit_is_closed") != std::string::npos);
            CHECK(got.err.find(number) != std::string::npos);
            CHECK(got.err.find("server_message()") == std::string::npos);
            CHECK(std::ranges::count(got.err, '\n') == 1);
        }
    }
}

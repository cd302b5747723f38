// Queues of the tool: its commands wait in them, and show them.

#include "support/blocked.hpp"
#include "support/waits.hpp"
#include "tool/stop_between_writes.hpp"
#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <csignal>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
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

std::int64_t waiting(const tool::tables& in) {
    return in.count("rowlock_ticket where name = 'a'");
}

/// Starts `rowlock acquire a`, with the options `more`.
std::unique_ptr<tool::process> start_acquire(const tool::tables& in, tool::arguments more = {}) {
    tool::arguments command{"acquire", "--for", "1h"};
    command.insert(command.end(), more.begin(), more.end());
    command.push_back("a");
    return std::make_unique<tool::process>(tool::command_line(in(command)), in.in_environment());
}

/// Starts one and waits until it is the last of `place` waiters.
std::unique_ptr<tool::process> stand_in_line(const tool::tables& in, std::int64_t place,
                                             tool::arguments more = {}) {
    auto one = start_acquire(in, std::move(more));
    REQUIRE(in.queue_becomes(place, "a"));
    return one;
}

/// Starts a command that waits for a lease, and waits until it does.
std::unique_ptr<tool::process> stand_in_line_of(const tool::tables& in, const std::string& name) {
    auto one = std::make_unique<tool::process>(tool::command_line(in({"run", name, "--", "true"})),
                                               in.in_environment());
    REQUIRE(in.queue_becomes(1, name));
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

/// Checks that there is no holder, no waiter, and no session for the reaper.
void check_nothing_is_left(const tool::tables& in) {
    const auto row = parsed(in, {"show", "--json", "a"});
    CHECK(row["state"] == "free");
    CHECK(row["queue"].empty());
    CHECK(parsed(in, {"reap", "--json"})["sessions_deleted"] == 0);
}

/// The test's own connection.
class hand {
public:
    explicit hand(const tool::tables& in)
        : prefix_{in.prefix()}, db_{rowlock::open(in.url()).connect(soon())} {}

    void run(const std::string& text) { db_->query(text, soon()); }
    std::int64_t number(const std::string& query) {
        return db_->query(query, soon()).integer(0, 0);
    }
    [[nodiscard]] std::string table(const std::string& name) const { return prefix_ + name; }

    /// Waits until a statement waits for a row or another lock of these tables.
    bool blocks_somebody() { return support::waiting_for_rows(*db_, prefix_); }

private:
    static rowlock::sql::deadline soon() {
        return std::chrono::steady_clock::now() + tool::patience;
    }

    std::string prefix_;
    std::unique_ptr<rowlock::sql::connection> db_;
};

/// The databases with rows that can be locked.
std::vector<std::unique_ptr<tool::tables>> server_tables() {
    std::vector<std::unique_ptr<tool::tables>> all;
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        if (auto in = tool::server_tables(which)) all.push_back(std::move(in));
    }
    return all;
}

}  // namespace

TEST_CASE("waiting acquires are served in the order of their arrival") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        grant now = take(*in);
        std::vector<std::unique_ptr<tool::process>> line;
        for (int i = 1; i <= 3; ++i) line.push_back(stand_in_line(*in, i));
        for (const auto& next : line) {
            CHECK_FALSE(next->is_over());
            // No acquire overtakes them, not even one that does not wait.
            CHECK(in->run({"acquire", "--for", "1h", "--wait", "0", "a"}).code == 75);
            CHECK(in->run({"release", "a", now.id}).code == 0);
            REQUIRE(next->wait() == 0);
            const grant got = read_grant(next->out());
            CHECK(got.token == now.token + 1);
            CHECK(parsed(*in, {"show", "--json", "a"})["holder"]["grant_id"] == got.id);
            now = got;
        }
        CHECK(in->run({"release", "a", now.id}).code == 0);
        check_nothing_is_left(*in);
    }
}

TEST_CASE("a grant after a wait lasts as long as requested, without heartbeats") {
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

TEST_CASE(
    "a waiter that was stopped beyond its grant's deadline does not return it, but queues again") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        tool::process mysql_wait_thread{
            tool::command_line((*in)({"acquire", "--for", "1s", "--json", "a"})),
            in->in_environment()};
        REQUIRE(in->queue_becomes(1, "a"));
        tool::stop_between_writes(*in, mysql_wait_thread);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        const auto now = [&] { return parsed(*in, {"show", "--json", "a"}); };
        REQUIRE(in->becomes(1, "rowlock_lock where token = " + std::to_string(first.token + 1)));
        REQUIRE(tool::eventually([&] { return now()["state"] == "free"; }));
        mysql_wait_thread.send(SIGCONT);
        REQUIRE(mysql_wait_thread.wait() == 0);
        const auto told = json::parse(mysql_wait_thread.out());
        CHECK(std::stoll(told["token"].get<std::string>()) > first.token + 1);
        CHECK(told["expires_in_ms"] > 0);
    }
}

TEST_CASE("a wait that ends by its time limit or a signal leaves no queue entry behind") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        CHECK(in->run({"acquire", "--for", "1h", "--wait", "300ms", "a"}).code == 75);
        CHECK(waiting(*in) == 0);
        const auto one = stand_in_line(*in, 1);
        const auto two = stand_in_line(*in, 2);
        one->send(SIGTERM);
        CHECK(one->wait() == 128 + SIGTERM);
        CHECK(one->out() == "");
        CHECK(waiting(*in) == 1);
        CHECK(in->run({"release", "a", first.id}).code == 0);
        REQUIRE(two->wait() == 0);
        CHECK(in->run({"release", "a", read_grant(two->out()).id}).code == 0);
        check_nothing_is_left(*in);
    }
}

TEST_CASE("a waiting acquire that is killed blocks the queue for half a minute at most") {
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
                ->query("select ttl_us from " + in->prefix() +
                            "session where id = " + session.get<std::string>(),
                        until)
                .integer(0, 0);
        };
        // The holder's session outlives its lease of an hour. The waiter's has a short ttl.
        const auto left = parsed(*in, {"show", "--json", "a"});
        REQUIRE(left["queue"].size() == 1);
        CHECK(ttl_of(left["queue"][0]["session"]) == 30'000'000);
        CHECK(ttl_of(left["holder"]["session"]) > 3'600'000'000);
        CHECK(in->run({"release", "a", first.id}).code == 0);
    }
}

TEST_CASE("a waiting run is served in queue order with the others") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const grant first = take(*in);
        const auto one = stand_in_line(*in, 1);
        tool::process run{tool::command_line(
                              (*in)({"run", "--note", "nightly", "a", "--", "sh", "-c", "exit 7"})),
                          in->in_environment()};
        REQUIRE(in->queue_becomes(2, "a"));
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

TEST_CASE("show and ls list waiters with their process, position, waiting time and note") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        CHECK(in->run({"ls", "--waiting"}).out.starts_with("no lock is waited for in "));
        const grant first = take(*in);
        REQUIRE(in->run({"acquire", "--for", "1h", "b"}).code == 0);
        CHECK(in->run({"ls", "--waiting"}).out.starts_with("no lock is waited for in "));
        const auto one = stand_in_line(*in, 1, {"--note", "red \x1b[31m"});

        const auto rows = parsed(*in, {"ls", "--waiting", "--json"})["locks"];
        REQUIRE(rows.size() == 1);
        CHECK(rows[0]["name"] == "a");
        CHECK(rows[0]["state"] == "held");
        CHECK(rows[0]["waiting"] == 1);
        CHECK(rows[0]["longest_wait_ms"] >= 0);
        CHECK(parsed(*in, {"ls", "--json"})["locks"].size() == 2);
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

TEST_CASE("a queue entry behind the watermark is still served") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    const grant first = take(*in);
    const auto one = stand_in_line(*in, 1);
    // As if tickets that were drawn much later had been served before this one was committed.
    hand{*in}.run("update " + in->prefix() + "lock set served = 100000");
    CHECK(in->run({"release", "a", first.id}).code == 0);
    CHECK(one->wait() == 0);
}

TEST_CASE("a signal that arrives while a free lock is acquired releases it") {
    for (const auto& in : server_tables()) {
        CAPTURE(std::string{in->name()});
        CHECK(in->run({"release", "a", take(*in).id}).code == 0);
        hand other{*in};
        REQUIRE(tool::eventually([&] {
            other.run("begin");
            other.run("select * from " + other.table("lock") + " where name = 'a' for update");
            const auto start = std::chrono::steady_clock::now();
            const auto one = start_acquire(*in);
            REQUIRE(hand{*in}.blocks_somebody());
            one->send(SIGTERM);
            other.run("rollback");
            const auto took = std::chrono::steady_clock::now() - start;
            const int code = one->wait();
            if (took > std::chrono::seconds{4}) {  // its statement has 5 s
                if (code == 0) in->run({"release", "a", read_grant(one->out()).id});
                return false;
            }
            CHECK(code == 128 + SIGTERM);
            CHECK(one->out() == "");
            return true;
        }));
        check_nothing_is_left(*in);
    }
}

TEST_CASE("a signal that arrives while the grant is printed does not change the exit code") {
    const auto in = tool::sqlite_tables();
    const tool::scratch folder;
    const std::string path = folder / "pipe";
    REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
    const int pipe = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(pipe >= 0);
    while (::write(pipe, "x", 1) == 1) continue;
    tool::process one{tool::command_line((*in)({"acquire", "--for", "1h", "a"})),
                      in->in_environment({.standard_output = path})};
    // Wait until it blocks in write(2) on standard output.
    const std::string call = "/proc/" + std::to_string(one.id()) + "/syscall";
    const std::string writing = std::to_string(SYS_write) + " 0x1 ";
    REQUIRE(tool::eventually([&] { return tool::contents(call).starts_with(writing); }));
    one.send(SIGTERM);
    char rest[4096];
    while (::read(pipe, rest, sizeof rest) > 0) continue;
    CHECK(one.wait() == 0);
    CHECK(parsed(*in, {"show", "--json", "a"})["state"] == "held");
    ::close(pipe);
}

TEST_CASE("a waiter keeps trying a lease whose row is locked, and can be stopped meanwhile") {
    struct locked {
        std::unique_ptr<tool::tables> in;
        hand other;
        std::unique_ptr<tool::process> stopped{};
        std::unique_ptr<tool::process> patient{};
    };
    std::vector<locked> all;
    for (auto& in : server_tables()) {
        CAPTURE(std::string{in->name()});
        REQUIRE(in->run({"acquire", "--for", "3s", "a"}).code == 0);
        // A lock like that of a fenced transaction that outlives its lease.
        hand other{*in};
        all.push_back({std::move(in), std::move(other)});
        auto& each = all.back();
        each.other.run("begin");
        each.other.run("select * from " + each.other.table("lock") +
                       " where name = 'a' for update");
        each.stopped = stand_in_line(*each.in, 1);
        each.patient = stand_in_line(*each.in, 2);
    }
    // Longer than the retries of one statement last.
    if (!all.empty()) std::this_thread::sleep_for(std::chrono::seconds{11});
    for (auto& each : all) {
        CAPTURE(std::string{each.in->name()});
        CHECK_FALSE(each.stopped->is_over());
        each.stopped->send(SIGTERM);
        CHECK(each.stopped->wait() == 128 + SIGTERM);
        CHECK(waiting(*each.in) == 1);
        CHECK_FALSE(each.patient->is_over());
        each.other.run("rollback");
        CHECK(each.patient->wait() == 0);
    }
}

TEST_CASE("a waiter that cannot confirm its grant says how to free it") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    const grant first = take(*in);
    const auto one = stand_in_line(*in, 1);
    hand other{*in};
    other.run("create function " + other.table("cut") +
              "() returns trigger language plpgsql as "
              "'begin perform pg_terminate_backend(pg_backend_pid()); return new; end'");
    other.run("create trigger cut before update on " + other.table("session") +
              " for each row when (new.ttl_us <> old.ttl_us) execute function " +
              other.table("cut") + "()");
    CHECK(in->run({"release", "a", first.id}).code == 0);
    CHECK(one->wait() == 69);
    const std::string id = parsed(*in, {"show", "--json", "a"})["holder"]["grant_id"];
    CHECK(one->err().find("`rowlock release a " + id + "` frees it") != std::string::npos);
    other.run("drop function " + other.table("cut") + "() cascade");
    CHECK(in->run({"release", "a", id}).code == 0);
}

namespace {

/// How long after the statement that has read its wake-up a waiter returns.
std::chrono::steady_clock::duration return_after_read_wake_up(const tool::tables& in) {
    const grant first = take(in);
    const auto one = stand_in_line(in, 1);
    hand other{in};
    // Polls stop after taking their snapshot while the gate is closed.
    other.run("create table " + other.table("closed") + " ()");
    other.run("begin");
    other.run("alter table " + other.table("lock") + " rename to " + other.table("rows"));
    other.run("create function " + other.table("gate") +
              "() returns boolean language plpgsql volatile as 'begin while exists (select from " +
              other.table("closed") +
              ") loop perform pg_sleep(0.005); end loop; return true; end'");
    other.run("create view " + other.table("lock") + " as select * from " + other.table("rows") +
              " where " + other.table("gate") + "()");
    other.run("commit");
    // Wait until its polls are half a second to a second apart.
    std::this_thread::sleep_for(std::chrono::seconds{5});
    other.run("insert into " + other.table("closed") + " default values");
    REQUIRE(tool::eventually([&] {
        return other.number(
                   "select count(*) from pg_stat_activity where wait_event = 'PgSleep' "
                   "and query like '%" +
                   other.table("ticket") + "%'") > 0;
    }));
    other.run("with w as (delete from " + other.table("ticket") + " returning *) update " +
              other.table("rows") +
              " set session = w.session, grant_id = w.grant_id, token = token + 1,"
              " deadline = clock_timestamp() + interval '1 hour' from w");
    other.run(
        "select pg_notify('rowlock_' || wake_address, words || ' ' || "
        "left(encode(sha256(convert_to(wake_secret || words, 'UTF8')), 'hex'), 32)) from "
        "(select m.*, l.grant_id || ' ' || l.token || ' 0' as words from " +
        other.table("rows") + " l join " + other.table("session") + " m on m.id = l.session) t");
    const auto opened = std::chrono::steady_clock::now();
    other.run("delete from " + other.table("closed"));
    REQUIRE(one->wait() == 0);
    const auto took = std::chrono::steady_clock::now() - opened;
    other.run("drop view " + other.table("lock"));
    other.run("drop function " + other.table("gate"));
    other.run("drop table " + other.table("closed"));
    other.run("alter table " + other.table("rows") + " rename to " + other.table("lock"));
    CHECK(read_grant(one->out()).token == first.token + 1);
    return took;
}

}  // namespace

TEST_CASE("a wake-up that a statement has read is not lost") {
    if (!tool::server_tables(support::server::postgresql, tool::tables_wanted::none)) return;
    // Its next poll is half a second to a second later.
    constexpr std::chrono::milliseconds bound{400};
    const auto once = [] {
        const auto in = tool::server_tables(support::server::postgresql);
        REQUIRE(in);
        return return_after_read_wake_up(*in);
    };
    CHECK(support::at_best(bound, once) < bound);
}

TEST_CASE(
    "a waiting run says who has the lock, and its place, if it is asked to or at a terminal") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        tool::process holder{
            tool::command_line((*in)({"run", "--note", "month end", "a", "--", "sleep", "1000"})),
            in->in_environment()};
        REQUIRE(tool::runs_its_command(holder));
        tool::process silent{tool::command_line((*in)({"run", "a", "--", "true"})),
                             in->in_environment()};
        REQUIRE(in->queue_becomes(1, "a"));
        tool::process verbose{tool::command_line((*in)({"run", "-v", "a", "--", "true"})),
                              in->in_environment()};
        CHECK(tool::eventually([&] {
            const auto text = verbose.err();
            return text.starts_with("rowlock: waiting for a: rowlock run sleep, pid ") &&
                   text.find("\"month end\", for ") != std::string::npos &&
                   text.find("number 2 in the queue") != std::string::npos;
        }));
        const auto busy = in->run({"run", "-n", "a", "--", "true"});
        CHECK(busy.code == 75);
        CHECK(busy.err.starts_with("rowlock: a is held by another: rowlock run sleep, pid "));
        CHECK(silent.err().empty());
        holder.send(SIGTERM);
        CHECK(silent.wait() == 0);
        CHECK(verbose.wait() == 0);
        CHECK(silent.err().empty());
    }
}

TEST_CASE("waits shows who waits for whom: position, time, holder") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        CHECK(in->run({"waits"}).out.starts_with("no lock is waited for in "));
        const auto held = take(*in);
        const auto first = stand_in_line(*in, 1, {"--note", "the first"});
        const auto second = stand_in_line(*in, 2);
        REQUIRE(in->run({"acquire", "--for", "1h", "--exclusive", "page"}).code == 0);
        tool::process reader{tool::command_line((*in)({"run", "--shared", "page", "--", "true"})),
                             in->in_environment()};
        REQUIRE(in->queue_becomes(1, "page"));
        const auto shown = in->run({"waits"});
        CAPTURE(shown.out);
        CHECK(shown.code == 0);
        CHECK(shown.err == "");
        for (const auto& said :
             {"rowlock acquire[" + std::to_string(first->id()) + "]@", std::string{"the first"},
              "rowlock run true[" + std::to_string(reader.id()) + "]@",
              std::string{"shared_mutex"}}) {
            CHECK(shown.out.find(said) != std::string::npos);
        }
        CHECK(shown.out.find("DEADLOCK") != std::string::npos);
        CHECK(shown.out.find("cycle 1") == std::string::npos);
        const auto said = parsed(*in, {"waits", "--json", "a"});
        REQUIRE(said["locks"].size() == 1);
        const auto& lock = said["locks"][0];
        CHECK(lock["name"] == "a");
        CHECK(lock["kind"] == "lease");
        CHECK(lock["holders"][0]["grant_id"] == held.id);
        REQUIRE(lock["queue"].size() == 2);
        CHECK(lock["queue"][0]["pid"] == first->id());
        CHECK(lock["queue"][1]["pid"] == second->id());
        CHECK(lock["queue"][1]["position"] == 2);
        CHECK(lock["queue"][0]["waited_ms"] >= lock["queue"][1]["waited_ms"]);
        CHECK(said["cycles"].empty());
    }
}

TEST_CASE("waits marks a deadlock, and its exit code is 1") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const rowlock::client_options patient{.deadlock_detection =
                                                  rowlock::deadlock_detection::off};
        const auto source = rowlock::open(in->url()).with_tables({.prefix = in->prefix()});
        rowlock::client one{source, patient};
        rowlock::client two{source, patient};
        std::barrier both_held{2};
        const auto cross = [&](rowlock::client& locks, const char* holds, const char* wants) {
            return std::jthread{[&locks, &both_held, holds, wants](const std::stop_token& stop) {
                const auto held = locks.acquire(holds);
                both_held.arrive_and_wait();
                static_cast<void>(locks.acquire(wants, stop));
            }};
        };
        const auto free = one.acquire("apart");
        const auto outsider = stand_in_line_of(*in, "apart");
        std::jthread first = cross(one, "ledger", "stock");
        std::jthread second = cross(two, "stock", "ledger");
        REQUIRE(tool::eventually([&] { return in->run({"waits"}).code == 1; }));
        const auto shown = in->run({"waits"});
        CAPTURE(shown.out);
        CHECK(shown.out.find("cycle 1: ") != std::string::npos);
        CHECK(in->run({"waits", "apart"}).code == 0);
        CHECK(in->run({"waits", "apart"}).out.find("cycle") == std::string::npos);
        const auto got = in->run({"waits", "--json"});
        CHECK(got.code == 1);
        const auto said = json::parse(got.out);
        REQUIRE(said["cycles"].size() == 1);
        CHECK(said["cycles"][0]["entries"].size() == 2);
        for (const auto& lock : said["locks"]) {
            CHECK(lock["queue"][0].contains("cycle") == (lock["name"] != "apart"));
        }
        first.request_stop();
        second.request_stop();
    }
}

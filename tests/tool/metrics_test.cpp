// `rowlock metrics`: what it measures, the file that it replaces, the rights that it needs.
// tests/tool/monitoring_test.cpp has promtool's view of it.

#include "support/tcp_listener.hpp"
#include "tool/tool.hpp"
#include "tool/watcher.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;

namespace {

std::string measure(const tool::tables& in) {
    const auto got = in.run({"metrics"});
    CAPTURE(got.err);
    CHECK(got.code == 0);
    CHECK(got.err == "");
    return got.out;
}

/// The value of a sample; -1 if there is none.
double value_of(const std::string& text, const std::string& sample) {
    const auto at = ("\n" + text).find("\n" + sample + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + sample.size()));
}

sql::result execute(const std::string& url, const std::string& sql) {
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    return rowlock::open(url).connect(deadline)->query(sql, deadline);
}

/// Lets the sessions of an owner have expired so long ago, unless they have ended.
void expire(const tool::tables& in, const std::string& owner, std::chrono::seconds ago) {
    const auto url = in.url();
    const std::string seconds = std::to_string(ago.count());
    const std::string now =
        url.starts_with("postgresql") ? "clock_timestamp() - interval '" + seconds + " s'"
        : url.starts_with("sqlite")
            ? "cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000 - " +
                  seconds + "000000"
            : "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - " + seconds + "000000";
    execute(url, "update " + in.prefix() + "session set expires_at = " + now + " where owner = '" +
                     owner + "'");
}

/// A client whose session no heartbeat and no poll disturbs during a test.
class quiet_client {
public:
    quiet_client(const tool::tables& in, const std::string& owner)
        : locks{rowlock::open(in.url()).with_tables({.prefix = in.prefix()}),
                {.ttl = 1h, .poll_interval = 24h, .owner = owner}} {}

    /// From now on a thread of it waits for that lease.
    void wait_for(const std::string& name) {
        waiter_ = std::jthread{[this, name](const std::stop_token& stop) {
            static_cast<void>(locks.acquire(name, stop));
        }};
        REQUIRE(tool::eventually([&] { return locks.stats().queued == 1; }));
    }

    client locks;

private:
    std::jthread waiter_;
};

unsigned mode_of(const std::string& path) {
    struct stat seen {};
    REQUIRE(stat(path.c_str(), &seen) == 0);
    return seen.st_mode & 07777u;
}

std::vector<std::string> files_in(const std::string& folder) {
    std::vector<std::string> all;
    for (const auto& each : std::filesystem::directory_iterator{folder}) {
        all.push_back(each.path().filename());
    }
    return all;
}

bool is_whole(const std::string& text) {
    return text.starts_with("# HELP rowlock_database_held ") && text.ends_with("\n") &&
           text.find("rowlock_database_doctor_verdict{check=\"schema\"} 0\n") != std::string::npos;
}

}  // namespace

TEST_CASE("metrics counts what is held, what waits, and what dead clients left") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto none = measure(*in);
        for (const char* sample :
             {"rowlock_database_held{kind=\"lease\"}", "rowlock_database_waiting{kind=\"lease\"}",
              "rowlock_database_oldest_wait_seconds{kind=\"semaphore\"}",
              "rowlock_database_permits", "rowlock_database_sessions{state=\"live\"}",
              "rowlock_database_oldest_expired_session_seconds"}) {
            CAPTURE(std::string{sample});
            CHECK(value_of(none, sample) == 0);
        }

        CHECK(value_of(none, "rowlock_database_reaper_round_age_seconds") == -1);
        REQUIRE(in->run({"reap"}).code == 0);
        const double round_age =
            value_of(measure(*in), "rowlock_database_reaper_round_age_seconds");
        CHECK(round_age >= 0);
        CHECK(round_age < 60);

        quiet_client holder{*in, "holder"};
        quiet_client waiter{*in, "waiter"};
        quiet_client dead{*in, "dead"};
        const auto held = holder.locks.acquire("a\"b\\c/\xc3\xa9");  // a name never shows
        semaphore limit{holder.locks, "limit"};
        limit.create(5);
        const auto two = limit.acquire(2);
        shared_mutex catalogue{holder.locks, "catalogue"};
        const auto reading = catalogue.acquire(lock_mode::shared);
        auto writing = shared_mutex{holder.locks, "other"}.acquire(lock_mode::upgradeable);
        writing.upgrade();  // two rows, one hold
        const auto gone = dead.locks.acquire("gone");
        const auto lost_permit = semaphore{dead.locks, "limit"}.acquire();
        static_cast<void>(holder.locks.acquire("free"));
        waiter.wait_for("a\"b\\c/\xc3\xa9");
        // A waiter of a dead client would open another session and wait on.
        execute(in->url(), "insert into " + in->prefix() +
                               "ticket (name, session, grant_id, enqueued_at) select name, "
                               "(select id from " +
                               in->prefix() + "session where owner = 'dead'), grant_id + 1, " +
                               "enqueued_at from " + in->prefix() + "ticket");
        expire(*in, "dead", 100s);

        const auto some = measure(*in);
        CHECK(value_of(some, "rowlock_database_held{kind=\"lease\"}") == 1);
        CHECK(value_of(some, "rowlock_database_held{kind=\"semaphore\"}") == 1);
        CHECK(value_of(some, "rowlock_database_held{kind=\"shared_mutex\"}") == 2);
        CHECK(value_of(some, "rowlock_database_expired{kind=\"lease\"}") == 1);
        CHECK(value_of(some, "rowlock_database_expired{kind=\"semaphore\"}") == 1);
        CHECK(value_of(some, "rowlock_database_expired{kind=\"shared_mutex\"}") == 0);
        CHECK(value_of(some, "rowlock_database_waiting{kind=\"lease\"}") == 1);
        CHECK(value_of(some, "rowlock_database_dead_entries{kind=\"lease\"}") == 1);
        CHECK(value_of(some, "rowlock_database_oldest_wait_seconds{kind=\"lease\"}") > 0);
        CHECK(value_of(some, "rowlock_database_oldest_wait_seconds{kind=\"lease\"}") < 100);
        CHECK(value_of(some, "rowlock_database_names{kind=\"lease\"}") == 3);
        CHECK(value_of(some, "rowlock_database_names{kind=\"semaphore\"}") == 1);
        CHECK(value_of(some, "rowlock_database_names{kind=\"shared_mutex\"}") == 2);
        CHECK(value_of(some, "rowlock_database_permits") == 5);
        CHECK(value_of(some, "rowlock_database_permits_used") == 2);
        CHECK(value_of(some, "rowlock_database_sessions{state=\"live\"}") == 2);
        CHECK(value_of(some, "rowlock_database_sessions{state=\"expired\"}") == 1);
        CHECK(value_of(some, "rowlock_database_sessions{state=\"ended\"}") == 0);
        const double expired = value_of(some, "rowlock_database_oldest_expired_session_seconds");
        CHECK(expired >= 100);
        CHECK(expired < 200);
        CHECK(some.find("a\"b") == std::string::npos);
        CHECK(some.find("catalogue") == std::string::npos);

        REQUIRE(in->run({"reap"}).code == 0);
        const auto reaped = measure(*in);
        CHECK(value_of(reaped, "rowlock_database_expired{kind=\"lease\"}") == 0);
        CHECK(value_of(reaped, "rowlock_database_expired{kind=\"semaphore\"}") == 0);
        CHECK(value_of(reaped, "rowlock_database_dead_entries{kind=\"lease\"}") == 0);
        CHECK(value_of(reaped, "rowlock_database_sessions{state=\"expired\"}") == 0);
    }
}

TEST_CASE(
    "metrics has the doctor's verdicts about the database, and not those about its own user") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto verdict = [&](const std::string& check) {
            return value_of(measure(*in),
                            "rowlock_database_doctor_verdict{check=\"" + check + "\"}");
        };
        CHECK(verdict("schema") == 0);
        CHECK(verdict("token floor") == 0);
        CHECK(verdict("durability") == 0);
        for (const char* check : {"rights", "round trip", "wake-ups", "history", "leases"}) {
            CAPTURE(std::string{check});
            CHECK(verdict(check) == -1);
        }
        execute(in->url(), "delete from " + in->prefix() + "token_floor");
        CHECK(verdict("token floor") == 2);
    }
}

TEST_CASE("metrics needs no more rights than migrate --print-grants --read-only prints") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        const tool::watcher watcher{*in, which};
        const auto got = watcher.run({"metrics"});
        CAPTURE(got.err);
        CHECK(got.code == 0);
        CHECK(is_whole(got.out));
        CHECK(got.out.find("} 2\n") == std::string::npos);  // no check fails for want of rights
        CHECK(watcher.run({"ls"}).code == 0);
        CHECK(watcher.run({"acquire", "--for", "1m", "a"}).code == 77);  // a control
    }
}

TEST_CASE("metrics --output replaces the file as a whole, readable by all, and leaves no other") {
    const auto in = tool::sqlite_tables();
    const tool::scratch folder;
    const auto file = folder / "rowlock.prom";
    const auto write = [&] {
        return in->run({"metrics", "--output", file}, {.before_exec = [] { umask(077); }});
    };
    const auto first = write();
    CHECK(first.code == 0);
    CHECK(first.out == "");
    CHECK(is_whole(tool::contents(file)));
    CHECK(mode_of(file) == 0644);
    std::ifstream reader{file};  // has the old file open
    std::string start(10, '\0');
    reader.read(start.data(), 10);
    chmod(file.c_str(), 0600);
    CHECK(write().code == 0);
    CHECK(mode_of(file) == 0644);
    std::string rest{std::istreambuf_iterator<char>{reader}, {}};
    CHECK(is_whole(start + rest));
    CHECK(files_in(folder.path()) == std::vector<std::string>{"rowlock.prom"});
}

TEST_CASE("a reader sees a whole file while several tools write it at the same time") {
    const auto in = tool::sqlite_tables();
    const tool::scratch folder;
    const auto file = folder / "rowlock.prom";
    REQUIRE(in->run({"metrics", "-o", file}).code == 0);
    std::vector<std::unique_ptr<tool::process>> writers;
    for (int i = 0; i < 6; ++i) {
        writers.push_back(std::make_unique<tool::process>(
            tool::command_line((*in)({"metrics", "-o", file})), in->in_environment()));
    }
    int reads = 0;
    for (const auto& each : writers) {
        do {
            ++reads;
            REQUIRE(is_whole(tool::contents(file)));
        } while (!each->is_over());
        CHECK(each->wait() == 0);
    }
    CHECK(reads >= 6);
    CHECK(files_in(folder.path()) == std::vector<std::string>{"rowlock.prom"});
}

TEST_CASE("metrics that cannot be measured or written leave the old file and say why") {
    const auto in = tool::sqlite_tables();
    const tool::scratch folder;
    const auto file = folder / "rowlock.prom";
    std::ofstream{file} << "old\n";
    const auto fails = [&](const tool::answer& got, int code, const std::string& said) {
        CAPTURE(said);
        CAPTURE(got.err);
        CHECK(got.code == code);
        CHECK(got.out == "");
        CHECK(got.err.find(said) != std::string::npos);
        CHECK(tool::contents(file) == "old\n");
        CHECK(files_in(folder.path()) == std::vector<std::string>{"rowlock.prom"});
    };
    const support::closed_port none;
    const std::string down =
        "postgresql://me:sEcrEt@127.0.0.1:" + std::to_string(none.port()) + "/db";
    const auto unreachable = tool::rowlock({"metrics", "--url", down, "-o", file});
    fails(unreachable, 69, "rowlock: ");
    CHECK(unreachable.err.find("sEcrEt") == std::string::npos);
    if (const auto empty =
            tool::server_tables(support::server::postgresql, tool::tables_wanted::none)) {
        fails(empty->run({"metrics", "-o", file}), 78, "rowlock migrate");
    }
    fails(in->run({"metrics", "-o", folder / "no/such/file.prom"}), 74, "No such file");
    fails(in->run({"metrics", "-o", ""}), 64, "--output needs the name of a file");
    fails(in->run({"metrics", "-o", folder.path()}), 64, "is not");
    fails(in->run({"metrics", "-o", "/dev/null"}), 64, "leave --output out");
    const tool::scratch elsewhere;
    std::filesystem::create_symlink(file, elsewhere / "link.prom");
    fails(in->run({"metrics", "-o", elsewhere / "link.prom"}), 64, "is not");
    // A limit on the size of files: writing fails in the middle. SQLite has files of its own.
    if (const auto server = tool::server_tables(support::server::postgresql)) {
        const auto limit_files = [] {
            signal(SIGXFSZ, SIG_IGN);
            const rlimit little{100, 100};
            setrlimit(RLIMIT_FSIZE, &little);
        };
        const auto full = server->run({"metrics", "-o", file}, {.before_exec = limit_files});
        CHECK(full.code == 74);
        CHECK(tool::contents(file) == "old\n");
        CHECK(files_in(folder.path()) == std::vector<std::string>{"rowlock.prom"});
    }
}

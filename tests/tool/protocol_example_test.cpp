// examples/protocol/lease.py, a client of docs/protocol.md in Python, beside rowlock's clients.

#include "support/queues.hpp"
#include "tool/tool.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <future>
#include <memory>
#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::eventually;

namespace {

bool has_python() {
    tool::process asked{{ROWLOCK_PYTHON, "-c", "import sqlite3"}};
    if (asked.wait() == 0) return true;
    support::miss_program("python3 with sqlite3", "python3");
    return false;
}

/// A new SQLite file, and a client of rowlock's.
class scene {
public:
    /// The program, whose command notes its token under this name, and runs until the test ends it,
    /// or is over.
    [[nodiscard]] std::unique_ptr<tool::process> hold(const std::string& as,
                                                      const std::string& wait = "0",
                                                      const std::string& ttl = "30") const {
        const auto path = folder_ / as;
        return start(
            wait,
            {"sh", "-c",
             "echo $LEASE_TOKEN > " + path + ".new; mv " + path + ".new " + path +
                 "; until test -e " + path + ".end || ! test -e " + path + "; do sleep 0.02; done"},
            ttl);
    }
    [[nodiscard]] std::unique_ptr<tool::process> start(const std::string& wait,
                                                       const tool::arguments& command,
                                                       const std::string& ttl = "30") const {
        tool::arguments all{ROWLOCK_PYTHON, ROWLOCK_PROTOCOL_EXAMPLE, folder_ / "locks.db", "job",
                            wait};
        all.insert(all.end(), command.begin(), command.end());
        return std::make_unique<tool::process>(all,
                                               tool::setting{.variables = {{"LEASE_TTL", ttl}}});
    }
    [[nodiscard]] bool is_held(const std::string& as) const {
        return ::access((folder_ / as).c_str(), F_OK) == 0;
    }
    /// The token that the command noted.
    [[nodiscard]] std::int64_t token(const std::string& as) const {
        REQUIRE(eventually([&] { return is_held(as); }, tool::patience));
        return std::stoll(tool::contents(folder_ / as));
    }
    sql::result query(const std::string& text) const {
        return source_.connect(support::soon())->query(text, support::soon());
    }
    void end(const std::string& as) const { std::ofstream{folder_ / as + ".end"}; }
    [[nodiscard]] bool waits(std::int64_t entries) {
        return eventually(
            [&] { return static_cast<std::int64_t>(locks.waiters("job").size()) == entries; },
            tool::patience);
    }

private:
    tool::scratch folder_;
    sql::connection_source source_ = [this] {
        auto made = open("sqlite:" + (folder_ / "locks.db"));
        migrate(made);
        return made;
    }();

public:
    client locks{source_};
};

}  // namespace

TEST_CASE("a client in Python and rowlock's exclude each other, and tokens rise over both") {
    if (!has_python()) return;
    scene at;
    auto ours = at.locks.try_acquire("job");
    REQUIRE(ours);
    CHECK(at.start("0", {"true"})->wait() == 75);
    const auto before = ours->token().value();
    ours->release();
    const auto other = at.hold("one");
    CHECK(at.token("one") > before);
    CHECK_FALSE(at.locks.try_acquire("job"));
    at.end("one");
    CHECK(other->wait() == 0);
    ours = at.locks.try_acquire("job");
    REQUIRE(ours);
    CHECK(ours->token().value() > at.token("one"));
    ours->release();
    CHECK(at.start("0", {"sh", "-c", "exit 3"})->wait() == 3);
}

TEST_CASE("a client in Python is served in its turn, and serves the next") {
    if (!has_python()) return;
    scene at;
    auto ours = at.locks.acquire("job");
    const auto first = at.hold("first", "60");
    REQUIRE(at.waits(1));
    const auto second = at.hold("second", "60");
    REQUIRE(at.waits(2));
    auto last = std::async(std::launch::async, [&] { return acquire_soon(at.locks, "job"); });
    REQUIRE(at.waits(3));
    ours.release();
    const auto token = at.token("first");
    CHECK_FALSE(at.is_held("second"));
    at.end("first");
    CHECK(first->wait() == 0);
    CHECK(at.token("second") > token);
    at.end("second");
    CHECK(second->wait() == 0);
    CHECK(last.get().token().value() > at.token("second"));
}

TEST_CASE("a client in Python that was killed is replaced after its ttl, one that lives is not") {
    if (!has_python()) return;
    scene at;
    const auto dead = at.hold("dead", "0", "600");
    const auto token = at.token("dead");
    dead->send(SIGKILL);
    CHECK(dead->wait() == 1000 + SIGKILL);
    const auto alive = at.hold("alive", "60", "12");
    REQUIRE(at.waits(1));
    CHECK_FALSE(at.is_held("alive"));
    at.query("update rowlock_session set expires_at = 1 where ttl_us = 600000000");
    CHECK(at.token("alive") > token);
    auto next = std::async(std::launch::async, [&] { return acquire_soon(at.locks, "job"); });
    REQUIRE(at.waits(1));
    // Its expiry moves on with its heartbeats.
    const auto expiry = [&] {
        return at.query("select expires_at from rowlock_session where ttl_us = 12000000")
            .integer(0, 0);
    };
    const auto before = expiry();
    CHECK(eventually([&] { return expiry() > before + 3'000'000; }, tool::patience));
    CHECK(next.wait_for(0s) == std::future_status::timeout);
    at.end("alive");
    CHECK(alive->wait() == 0);
    CHECK(next.get().token().value() > at.token("alive"));
    at.end("dead");
}

TEST_CASE("a client in Python whose lease is broken, or asked for, stops its command") {
    if (!has_python()) return;
    for (const bool broken : {true, false}) {
        CAPTURE(broken);
        scene at;
        const auto other = at.hold("one", "0", "9");
        const auto token = at.token("one");
        if (broken) {
            CHECK(at.locks.force_release("job"));
        } else {
            CHECK(at.locks.request_release("job", fencing_token{token}, {.within = 1h}));
        }
        const int code = other->wait();
        CHECK(code == (broken ? 70 : 128 + SIGTERM));
        CHECK(acquire_soon(at.locks, "job").token().value() > token);
        at.end("one");
    }
}

TEST_CASE("a client in Python refuses names, files and tables that are not right") {
    if (!has_python()) return;
    const scene at;
    const auto refused = [&](const std::string& file, const std::string& name) {
        tool::process one{{ROWLOCK_PYTHON, ROWLOCK_PROTOCOL_EXAMPLE, file, name, "0", "true"}};
        const int code = one.wait();
        CHECK(one.err().find("Traceback") == std::string::npos);
        return code == 1;
    };
    const tool::scratch other;
    CHECK(refused(other / "missing.db", "job"));
    const auto source = open("sqlite:" + (other / "locks.db"));
    migrate(source);
    const auto db = source.connect(std::chrono::steady_clock::now() + 30s);
    const auto record = [&](const std::string& change) {
        db->query("update rowlock_migration set version = " + change,
                  std::chrono::steady_clock::now() + 30s);
    };
    record("2");
    CHECK(refused(other / "locks.db", "job"));
    record("1");
    CHECK_FALSE(refused(other / "locks.db", "größe ☾ a'b\"c"));
    for (const std::string name : {"", "a\nb", "\x7f", "\xC2\x85", "\xff"}) {
        CAPTURE(name);
        CHECK(refused(other / "locks.db", name));
    }
    CHECK(refused(other / "locks.db", std::string(256, 'x')));
    CHECK_FALSE(refused(other / "locks.db", std::string(255, 'x')));
}

// F11, F12 and F36: servers that stop, crash, or are killed, and come back.

#include "fault/frame.hpp"
#include "fault/users.hpp"
#include "support/interception.hpp"
#include "support/own_server.hpp"
#include "support/queues.hpp"
#include "tool/tool.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <future>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;
using support::own_server;
using support::server;
using support::soon;

constexpr milliseconds poll = 1000ms;  // the default

struct ending {
    const char* what;
    void (own_server::*how)();
};
/// A fast shutdown, an immediate one, and SIGKILL.
constexpr std::array endings{ending{"stopped", &own_server::stop},
                             ending{"crashed", &own_server::crash},
                             ending{"killed", &own_server::kill}};

std::unique_ptr<own_server> migrated(server which, support::own_server_settings how = {}) {
    auto made = own_server::start(which, std::move(how));
    if (made) rowlock::migrate(rowlock::open(made->url()));
    return made;
}

/// Checks that holders and waiters keep their leases and entries over the restart.
void restart_with_a_line(trial& in, own_server& one, const ending& how, int round) {
    const auto source = rowlock::open(one.url());
    rowlock::client holder{source, {.ttl = 60s, .heartbeat = 10s}};
    rowlock::client waiter{source, {.ttl = 60s, .heartbeat = 10s, .poll_interval = poll}};
    const auto name = "restart-" + std::to_string(round);
    auto held = holder.acquire(name);
    // A session that was opened a moment before a crash is lost, and its waiters fail. The grant
    // makes this one durable. Its queue entry need not be.
    { [[maybe_unused]] const auto warm = waiter.acquire(name + "-warm"); }
    auto next = std::async(std::launch::async, [&] {
        auto lease = support::acquire_soon(waiter, name);
        return std::pair{std::move(lease), steady::now()};
    });
    if (!support::eventually([&] { return holder.waiters(name).size() == 1; })) {
        throw fault::not_prepared{"no waiter is queued"};
    }
    (one.*how.how)();
    one.start_again();
    in.must(held.held(), std::string{"the holder lost its lock when the server was "} + how.what);
    held.release();
    const auto from = steady::now();
    const auto [lease, at] = next.get();
    in.took(at - from, std::string{"until the next was granted, server "} + how.what);
    in.must(lease.token().value() > held.token().value(), "the token did not grow");
}

void restart(trial& in, server which) {
    const auto one = migrated(which);
    if (!one) return in.skip("the server's programs are missing");
    const auto source = rowlock::open(one->url());
    fault::users all{{.sources = {source, source}, .options = {.ttl = 6s, .poll_interval = poll}}};
    if (!all.go_on(20, 90s)) throw std::runtime_error{"nothing is granted"};
    for (int i = 0; i < in.rounds(); ++i) {
        restart_with_a_line(in, *one, endings.at(static_cast<std::size_t>(i) % endings.size()), i);
        in.made();
        in.must(all.go_on(20, 90s), "the users do not go on");
    }
    all.stop();
    in.violations(stress::overlapping_beliefs(all.past()));
    in.violations(stress::token_regressions(all.past()));
    in.note(std::to_string(all.grants()) + " grants");
}

// --- F12 ----------------------------------------------------------------------------------------

/// Settings with which a crash loses commits. (With wal_writer_flush_after = 0 PostgreSQL 18 wakes
/// the WAL writer for each of them.)
support::own_server_settings forgetful(server which) {
    if (which == server::mariadb) return {.arguments = {"--innodb-flush-log-at-trx-commit=0"}};
    return {.arguments = {"-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s", "-c",
                          "wal_writer_flush_after=1GB", "-c", "fsync=off"}};
}

std::string doctors_word(const std::string& url, const std::string& about) {
    const auto got = tool::rowlock({"doctor", "--json"}, {.variables = {{"ROWLOCK_URL", url}}});
    const auto report = nlohmann::json::parse(got.out, nullptr, false);
    if (report.is_discarded()) return "nothing: " + got.err;
    for (const auto& each : report["checks"]) {
        if (each["check"] == about) return each["verdict"];
    }
    return "nothing about it";
}

void forget(trial& in, server which) {
    const auto one = migrated(which, forgetful(which));
    if (!one) return in.skip("the server's programs are missing");
    auto url = one->url();
    in.must(doctors_word(url, "durability") == "fail",
            "the doctor says " + doctors_word(url, "durability"));
    if (which == server::postgresql) {
        url += "?rowlock_pooler=transaction";
        in.must(doctors_word(url, "durability") == "fail",
                "the doctor reports no problem with a pooler");
    }
    one->stop();  // makes the migrations durable
    one->start_again();
    for (int i = 0; i < in.rounds(); ++i) {
        std::int64_t greatest = 0;
        {
            rowlock::client locks{rowlock::open(url), {.ttl = 3s}};
            const auto until = steady::now() + 300ms;
            while (steady::now() < until) greatest = locks.acquire("job").token().value();
            one->kill();
        }
        one->start_again();
        rowlock::client locks{rowlock::open(url), {.ttl = 3s}};
        const auto token = support::acquire_soon(locks, "job").token().value();
        in.made();
        if (token <= greatest) in.unprotected("a token that was given out again");
    }
}

// --- F36 ----------------------------------------------------------------------------------------

constexpr milliseconds ttl = 60s;
constexpr milliseconds heartbeat = 1s;

void tell_kept(trial& in, rowlock::sql::connection& db) {
    const auto kept = db.query(
        "select l.name, s.beats, s.expires_at from rowlock_lock l "
        "join rowlock_session s on s.id = l.session where not s.ended",
        soon());
    for (std::size_t row = 0; row < kept.rows(); ++row) {
        in.note(std::string{kept.text(row, 0)} + " after " + std::string{kept.text(row, 1)} +
                " heartbeats, to " + std::string{kept.text(row, 2)});
    }
}

/// Releases that the crash lost, and an acquire whose caller never saw its grant.
void lose_releases(trial& in, server which) {
    support::own_server_settings how;
    if (which == server::postgresql) {
        how.arguments = {"-c", "wal_writer_delay=10s", "-c", "wal_writer_flush_after=1GB"};
    }
    const auto one = migrated(which, how);
    if (!one) return in.skip("the server's programs are missing");
    constexpr int names = 20;
    for (int i = 0; i < in.rounds(); ++i) {
        support::interception network;
        auto patience = rowlock::retry_policy{};
        patience.attempts = 1;
        rowlock::client locks{rowlock::open(one->url()), {.ttl = ttl, .heartbeat = heartbeat}};
        rowlock::client hasty{network.wrap(rowlock::open(one->url())),
                              {.ttl = ttl, .heartbeat = heartbeat, .retry = patience}};
        std::vector<rowlock::lease> all;
        for (int k = 0; k < names; ++k) all.push_back(locks.acquire("lock-" + std::to_string(k)));
        { [[maybe_unused]] const auto session = hasty.acquire("warm"); }
        network.after([](std::string_view statement) {
            if (statement == "acquire" || statement == "take" || statement == "insert_lease") {
                support::interception::lose_reply();
            }
        });
        bool unknown = false;
        try {
            [[maybe_unused]] const auto never = hasty.try_acquire("given up " + std::to_string(i));
        } catch (const rowlock::error& failure) {
            unknown = failure.kind() == rowlock::errc::outcome_unknown;
        }
        network.after([](std::string_view) {});
        in.must(unknown, "the reply was not lost");
        for (auto& each : all) each.release();
        one->kill();
        one->start_again();
        const auto from = steady::now();
        const auto db = rowlock::open(one->url()).connect(soon());
        const auto held = [&] {
            return db
                ->query(
                    "select count(*) from rowlock_lock l join rowlock_session s on s.id = "
                    "l.session where not s.ended",
                    soon())
                .integer(0, 0);
        };
        if (const auto lost = held(); lost > 0) {
            in.unprotected("rows that a live session names and does not hold",
                           static_cast<int>(lost));
        }
        if (!in.must(support::eventually([&] { return held() == 0; }),
                     "a row stays held by a session that does not hold it")) {
            tell_kept(in, *db);
        }
        in.took(steady::now() - from, "until all rows were free");
        in.must(locks.stats().lost == 0, "the session was lost");
        in.made();
    }
}

void add_rows(const char* name, server which) {
    const auto with = [&](const char* fault) { return std::string{fault} + "/" + name; };
    fault::rows().push_back({.id = with("F11"),
                             .what = "the server is stopped, crashes, is killed, and comes back",
                             .quick_rounds = 3,
                             .full_rounds = 60,
                             .bound = poll,
                             .run = [which](trial& in) { restart(in, which); },
                             .neighbours = fault::beside::none});
    fault::rows().push_back({.id = with("F12"),
                             .what = "the same with settings that forget commits",
                             .quick_rounds = 1,
                             .full_rounds = 20,
                             .run = [which](trial& in) { forget(in, which); },
                             .control_inside = true});
    fault::rows().push_back({.id = with("F36"),
                             .what = "kill -9 of the server behind releases and a lost grant",
                             .quick_rounds = 2,
                             .full_rounds = 50,
                             .bound = heartbeat,
                             .run = [which](trial& in) { lose_releases(in, which); },
                             // MariaDB flushes releases.
                             .control_inside = which == server::postgresql,
                             .neighbours = fault::beside::none});
}

const bool registered = [] {
    add_rows("postgresql", server::postgresql);
    add_rows("mariadb", server::mariadb);
    return true;
}();

}  // namespace

// Roles of whole servers of the test's own: a synchronous standby that does not answer, for which
// all commits wait, and a primary that is made read-only.

#include "support/failure.hpp"
#include "support/own_server.hpp"
#include "support/tcp_relay.hpp"
#include "support/unhurried.hpp"
#include "support/waits.hpp"
#include <rowlock/double_barrier.hpp>
#include <rowlock/latch.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::soon;

namespace {

/// Makes commits wait for a missing standby.
class missing_standby {
public:
    explicit missing_standby(const sql::connection_source& source) : source_{source} {
        run("set synchronous_commit = local");
        run("alter system set synchronous_standby_names = 'nobody'");
        reload("nobody");
        REQUIRE(eventually([&] { return a_commit_waits(); }));
    }
    ~missing_standby() {
        run("alter system reset synchronous_standby_names");
        reload("");
    }
    missing_standby(const missing_standby&) = delete;
    missing_standby& operator=(const missing_standby&) = delete;

    /// The server's processes whose commits wait, without heartbeats.
    [[nodiscard]] std::vector<pid_t> waiting() {
        const auto rows =
            run("select pid from pg_stat_activity where wait_event = 'SyncRep' and "
                "query not like '/* rowlock heartbeat%'");
        std::vector<pid_t> all;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            all.push_back(static_cast<pid_t>(rows.integer(row, 0)));
        }
        return all;
    }

private:
    sql::result run(const std::string& text) { return admin_->query(text, soon()); }
    /// Whether a commit waits. Commits wait once the checkpointer has read the new setting, which
    /// other processes may show earlier.
    bool a_commit_waits() {
        const auto db = source_.connect(soon());
        auto probe = std::async(std::launch::async, [&] {
            const auto until = std::chrono::steady_clock::now() + 700ms;
            // A temporary table would be dropped at the end of the connection, by a commit.
            return kind_of(
                [&] { db->query("select pg_logical_emit_message(true, 'probe', '')", until); });
        });
        bool waits = false;
        eventually([&] {
            waits = !waiting().empty();
            return waits || probe.wait_for(0s) == std::future_status::ready;
        });
        static_cast<void>(probe.get());
        return waits;
    }
    void reload(const std::string& expected) {
        run("select pg_reload_conf()");
        REQUIRE(eventually(
            [&] { return run("show synchronous_standby_names").text(0, 0) == expected; }));
    }

    const sql::connection_source source_;
    const std::unique_ptr<sql::connection> admin_ = source_.connect(soon());
};

/// Stops a process of a server.
class stopped_process {
public:
    explicit stopped_process(pid_t which) : which_{which} { REQUIRE(kill(which_, SIGSTOP) == 0); }
    ~stopped_process() { kill(which_, SIGCONT); }
    stopped_process(const stopped_process&) = delete;
    stopped_process& operator=(const stopped_process&) = delete;

private:
    const pid_t which_;
};

/// For a client none of whose commits waits but those of its calls.
const auto no_heartbeats = support::unhurried<client_options>(
    {.ttl = 1h, .heartbeat = 20min, .margin = 5min, .wake_ups = wakeup_mode::polling});

/// A PostgreSQL of the test's own with rowlock's tables, and clients of it that go by the test's
/// clock and through its relay.
class own_tables {
public:
    explicit own_tables(const support::own_server& server)
        : source{open(server.url())}, relay{port_in(server.url())}, relayed_{server.url()} {
        migrate(source);
        const auto port = std::to_string(port_in(relayed_));
        relayed_.replace(relayed_.rfind(port), port.size(), std::to_string(relay.port()));
    }
    [[nodiscard]] std::int64_t number(const std::string& text) const {
        return source.connect(soon())->query(text, soon()).integer(0, 0);
    }
    /// Whose session lives, however far the clock is moved.
    [[nodiscard]] std::unique_ptr<client> slow_client() const {
        auto made =
            std::make_unique<client>(open(relayed_), client_options{.ttl = 1h,
                                                                    .heartbeat = 5s,
                                                                    .margin = 5min,
                                                                    .statement_timeout = 2s,
                                                                    .retry = {.attempts = 2},
                                                                    .time = clock});
        static_cast<void>(made->acquire("open a session"));
        return made;
    }
    /// Lets heartbeats of clients pass, until `done` or for a minute of their clock.
    template <typename Done>
    bool after_heartbeats(const std::vector<const client*>& whose, const Done& done) const {
        for (int beat = 0; beat < 12; ++beat) {
            if (done()) return true;
            std::vector<std::uint64_t> before;
            for (const auto* each : whose) before.push_back(each->stats().heartbeats);
            clock->advance(5s);
            for (std::size_t i = 0; i < whose.size(); ++i) {
                REQUIRE(eventually([&] { return whose[i]->stats().heartbeats > before[i]; }));
            }
        }
        return done();
    }

    const sql::connection_source source;
    const std::shared_ptr<testing::manual_clock> clock = std::make_shared<testing::manual_clock>();
    support::tcp_relay relay;

private:
    [[nodiscard]] static std::uint16_t port_in(const std::string& url) {
        return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
    }

    std::string relayed_;
};

/// Makes the server read-only, as a fail-over tool does with a former primary.
class made_read_only {
public:
    explicit made_read_only(const sql::connection_source& source) : admin_{source.connect(soon())} {
        admin_->query("set global read_only = 1", soon());
    }
    ~made_read_only() { admin_->query("set global read_only = 0", soon()); }
    made_read_only(const made_read_only&) = delete;
    made_read_only& operator=(const made_read_only&) = delete;

private:
    const std::unique_ptr<sql::connection> admin_;
};

}  // namespace

TEST_CASE(
    "an advisory lock is lost when its server is no longer the primary, and is not granted there") {
    const auto server = support::own_server::start(support::server::mariadb);
    if (!server) return;
    const auto source = open(server->url());
    advisory_client locks{source, {.check_period = 100ms, .statement_timeout = 10s}};
    const auto held = locks.try_lock("job");
    REQUIRE(held);
    {
        const made_read_only demoted{source};
        CHECK(eventually([&] { return !held->held(); }));
        CHECK(support::kind_of([&] { static_cast<void>(locks.try_lock("job")); }) ==
              errc::read_only);
    }
    CHECK(locks.try_lock_for("job", 20s));
}

// shows: fault-unconfirmed-commit
TEST_CASE("a grant without a synchronous standby's confirmation is not reported as granted") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const own_tables tables{*server};
    // The server says it by a warning, which the role may not want to hear.
    const auto source = open(server->url() + "?options=-c%20client_min_messages%3Derror");
    client locks{source, {.statement_timeout = 700ms}};
    const auto held = locks.acquire("held before");
    {
        const missing_standby gone{tables.source};
        errc failed{};
        // It is committed on the primary, where readers see it held. On a machine that stalls an
        // attempt may end before its commit.
        REQUIRE(eventually([&] {
            const auto kind = support::kind_of([&] {
                if (locks.try_acquire("job")) {
                    FAIL("granted, although a promotion would lose the grant");
                }
            });
            if (kind != errc{}) failed = kind;
            return tables.number(
                       "select count(*) from rowlock_lock where name = 'job' and session is not "
                       "null") == 1;
        }));
        CHECK((failed == errc::outcome_unknown || failed == errc::timed_out));
    }
    const auto lease = locks.try_acquire_for("job", 20s);
    CHECK(lease);
    CHECK(held.held());
}

// shows: fault-unconfirmed-commit, promise-18
TEST_CASE("nothing of a call that failed stays, however late its commit is seen") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    own_tables tables{*server};
    client other{tables.source, no_heartbeats};
    REQUIRE(latch{other, "joined"}.begin(9));
    REQUIRE(latch{other, "counted"}.begin(9));
    semaphore{other, "pool"}.set_capacity(9);
    const auto held = other.acquire("held");
    CHECK_FALSE(double_barrier{other, "step", 9}.enter_for(1ms));  // makes the row of the name
    const std::string party = "select count(*) from rowlock_party where name = ";

    struct row {
        std::string what;
        std::function<bool(client&)> call;  ///< whether it reports success
        std::string counts;                 ///< how many: 0 once it is undone
        std::string committed{};            ///< how many: 1 once the commit is seen
        bool stays = false;                 ///< what counts: the caller was told that it may
    };
    const std::vector<row> calls{
        {.what = "a lease",
         .call = [](client& by) { return by.try_acquire("fresh").has_value(); },
         .counts = "select count(session) from rowlock_lock where name = 'fresh'",
         .committed = "select count(*) from rowlock_lock where name = 'fresh'"},
        {.what = "permits",
         .call =
             [](client& by) {
                 return bool{semaphore{by, "pool"}.try_acquire()};
             },
         .counts = "select count(*) from rowlock_hold"},
        {.what = "a queue entry",
         .call = [](client& by) { return by.try_acquire_for("held", 3s).has_value(); },
         .counts = "select count(*) from rowlock_ticket"},
        {.what = "a party of a latch",
         .call =
             [](client& by) {
                 return latch{by, "joined"}.join().generation() > 0;
             },
         .counts = party + "'joined' and stage <> 3",
         .committed = party + "'joined'"},
        {.what = "an entry into a barrier",
         .call =
             [](client& by) {
                 return bool{double_barrier{by, "step", 9}.enter_for(1s)};
             },
         .counts = "select sum(arrived) from rowlock_barrier where name = 'step'",
         .committed = "select count(*) - 1 from rowlock_party where name = 'step'"},
        {.what = "control: an arrival without a party",
         .call =
             [](client& by) {
                 return latch{by, "counted"}.count_down(), true;
             },
         .counts = "select sum(arrived) from rowlock_barrier where name = 'counted'",
         .committed = party + "'counted'",
         .stays = true},
    };
    // All at once, each by a client of its own: the time limits pass together.
    std::vector<std::unique_ptr<client>> clients;
    std::vector<const client*> all;
    for (std::size_t i = 0; i < calls.size(); ++i) {
        clients.push_back(tables.slow_client());
        all.push_back(clients.back().get());
    }
    std::vector<pid_t> waiting;
    std::vector<std::unique_ptr<stopped_process>> hang;
    {
        missing_standby gone{tables.source};
        tables.relay.refuse(true);  // neither a cancel arrives nor a second attempt
        std::vector<std::future<std::pair<errc, bool>>> told;
        for (std::size_t i = 0; i < calls.size(); ++i) {
            told.push_back(std::async(std::launch::async, [&, i] {
                bool succeeded = false;
                const auto kind = kind_of([&] { succeeded = calls[i].call(*clients[i]); });
                return std::pair{kind, succeeded};
            }));
        }
        REQUIRE(eventually([&] {
            waiting = gone.waiting();
            return waiting.size() == calls.size();
        }));
        for (std::size_t i = 0; i < calls.size(); ++i) {
            CAPTURE(calls[i].what);
            const auto [kind, succeeded] = told[i].get();
            CHECK_FALSE(succeeded);
            if (calls[i].stays) CHECK(kind == errc::outcome_unknown);
        }
        for (const auto process : waiting) {
            hang.push_back(std::make_unique<stopped_process>(process));
        }
        tables.relay.refuse(false);
    }
    // All limits pass, and all other commits are confirmed.
    tables.after_heartbeats(all, [] { return false; });
    for (const auto& each : calls) {
        CAPTURE(each.what);
        if (!each.committed.empty()) CHECK(tables.number(each.committed) == 0);
    }
    hang.clear();
    for (const auto& each : calls) {
        CAPTURE(each.what);
        REQUIRE(eventually(
            [&] { return each.committed.empty() || tables.number(each.committed) == 1; }));
    }
    std::string still;
    for (const auto process : waiting)
        still += (still.empty() ? "" : ", ") + std::to_string(process);
    REQUIRE(eventually([&] {
        return tables.number(
                   "select count(*) from pg_stat_activity where wait_event = 'SyncRep' "
                   "and pid in (" +
                   still + ")") == 0;
    }));
    tables.after_heartbeats(all, [&] {
        return std::all_of(calls.begin(), calls.end(), [&](const row& each) {
            return each.stays || tables.number(each.counts) == 0;
        });
    });
    for (const auto& each : calls) {
        CAPTURE(each.what);
        CHECK((tables.number(each.counts) == 0) != each.stays);
    }
    CHECK(held.held());
}

// shows: promise-18
TEST_CASE("an arrival without a synchronous standby's confirmation is not reported") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    own_tables tables{*server};
    // Two: a client whose statements stay opens no more than some connections.
    const auto locks = tables.slow_client();
    const auto more = tables.slow_client();
    client other{tables.source, no_heartbeats};
    latch joined{*locks, "joined"};
    latch arrived{*locks, "arrived"};
    latch counted{*locks, "counted"};
    latch last{*more, "last"};
    double_barrier step{*more, "step", 1};
    for (auto* each : {&joined, &arrived, &counted}) REQUIRE(each->begin(9));
    REQUIRE(last.begin(1));
    auto mine = arrived.join();
    {
        const missing_standby gone{tables.source};
        // Each waits for its time limit; of other names, so beside each other.
        std::vector<std::future<errc>> told;
        const auto aside = [&](auto call) {
            told.push_back(std::async(std::launch::async, [call] { return kind_of(call); }));
        };
        aside([&] { static_cast<void>(latch{*more, "new"}.begin(1)); });
        aside([&] { static_cast<void>(joined.join()); });
        aside([&] { mine.arrive(); });
        aside([&] { counted.count_down(); });
        aside([&] { last.count_down(); });
        aside([&] { static_cast<void>(step.enter()); });
        for (auto& each : told) CHECK(each.get() == errc::outcome_unknown);
    }
    CHECK_NOTHROW(mine.arrive());
    CHECK(arrived.inspect()->arrived == 1);
    CHECK(counted.inspect()->arrived == 1);
    CHECK(tables.after_heartbeats({locks.get(), more.get()},
                                  [&] { return joined.inspect()->registered == 0; }));
    CHECK(latch{other, "last"}.inspect()->state == latch_state::open);
    CHECK(step.enter().generation() > 0);
}

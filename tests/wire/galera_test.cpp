#include "lock/wakeup/hint.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "sql/server_facts.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/galera_node.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::kind_of;
using support::soon;

namespace {

/// The node that all cases share. Where it is missing, each case says so.
const support::galera_node* the_node() {
    static std::unique_ptr<support::galera_node> node;
    if (!node) node = support::galera_node::start();
    return node.get();
}

/// Sends the only waiter the message of a grant that no transaction has written. Returns false if
/// there is no waiter.
bool post_next_grant(sql::connection& db, const lease& held) {
    const auto entry = db.query(
        "select w.grant_id, m.wake_address, m.wake_secret from rowlock_ticket w "
        "join rowlock_session m on m.id = w.session",
        soon());
    if (entry.rows() == 0) return false;
    return wakeup::mailbox_sender{entry.integer(0, 1), wakeup::network_namespace()}.post(
        wakeup::encode_wakeup({entry.integer<grant_id>(0, 0), held.token().value() + 1},
                              entry.text(0, 2)));
}

}  // namespace

// shows: row-locks
TEST_CASE("row locks are refused on a Galera node unless the risk is accepted by its name") {
    const auto* node = the_node();
    if (node == nullptr) return;
    const auto source = open(node->url());
    const auto db = source.connect(soon());
    REQUIRE(sql::facts_of(*db, soon()).member_of == sql::cluster::galera);
    db->query("create table inventory (sku varchar(20) primary key, stock integer)", soon());
    db->query("insert into inventory values ('A1', 10)", soon());

    try {
        const row_session refused{source};
        FAIL("not refused");
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::unsupported);
        CHECK_FALSE(failure.retryable());
        CHECK(std::string_view{failure.what()}.find("another of them") != std::string_view::npos);
    }
    db->query("begin", soon());
    CHECK(kind_of([&] { (void)lock_row(*db, "inventory", {"sku"}, {"A1"}); }) == errc::unsupported);
    CHECK(lock_row(*db, "inventory", {"sku"}, {"A1"}, {.accept_double_grants_in_cluster = true}));
    db->query("rollback", soon());

    const row_session_options accepting{.accept_double_grants_in_cluster = true};
    retry(source, {}, accepting, [](row_session& session) {
        const auto row = session.lock("inventory", {"sku"}, {"A1"}, {.columns = {"stock"}});
        CHECK(row->integer("stock") == 10);
        session.connection().query("update inventory set stock = 9", soon());
    });
    CHECK(db->query("select stock from inventory", soon()).integer(0, 0) == 9);
}

// shows: advisory-locks
TEST_CASE("GET_LOCK is refused on a Galera node, where it excludes only clients of that node") {
    const auto* node = the_node();
    if (node == nullptr) return;
    advisory_client locks{open(node->url())};
    for (const auto& key : {advisory_key{"job"}, advisory_key::verbatim("legacy_job")}) {
        try {
            static_cast<void>(locks.try_lock(key));
            FAIL("not refused");
        } catch (const error& failure) {
            CHECK(failure.kind() == errc::unsupported);
            CHECK_FALSE(failure.retryable());
            CHECK(std::string_view{failure.what()}.find("Galera") != std::string_view::npos);
        }
        CHECK(kind_of([&] { static_cast<void>(locks.try_lock_for(key, 1s)); }) ==
              errc::unsupported);
    }
    CHECK(locks.connections() == 0);
}

TEST_CASE("on a Galera node one transaction hands a lease over, without a wake-up") {
    const auto* node = the_node();
    if (node == nullptr) return;
    const auto source = open(node->url());
    migrate(source);
    support::interception network;
    network.transactions = true;
    std::mutex mutex;
    std::multiset<std::string> sent;
    network.after([&](std::string_view statement) {  // statements without an error
        const std::lock_guard lock{mutex};
        sent.emplace(statement);
    });
    client here{network.wrap(source), {.poll_interval = 20ms}};
    client there{network.wrap(source), {.poll_interval = 20ms}};
    std::optional<lease> held = here.acquire("handed over");
    for (int turn = 0; turn < 6; ++turn) {
        client& next = turn % 2 == 0 ? there : here;
        auto waiting = std::async(std::launch::async,
                                  [&] { return support::acquire_soon(next, "handed over"); });
        const auto before = static_cast<std::uint64_t>(turn / 2);
        REQUIRE(support::eventually([&] { return next.stats().queued > before; }));
        held->release();
        auto got = waiting.get();
        CHECK(got.held());
        CHECK(got.token().value() > held->token().value());
        held.emplace(std::move(got));
    }
    held->release();
    const std::lock_guard lock{mutex};
    CHECK(sent.count("transaction") >= 3);  // by holders that had waited themselves
    CHECK(sent.count("woken_for") == 0);    // no waiter sleeps
}

TEST_CASE("on a Galera node a datagram that arrives before the row costs no waiter its grant") {
    const auto* node = the_node();
    if (node == nullptr) return;
    const auto source = open(node->url());
    migrate(source);
    client holder{source};
    client waiter{source};
    auto held = holder.acquire("committed elsewhere");
    auto waiting = std::async(std::launch::async,
                              [&] { return support::acquire_soon(waiter, "committed elsewhere"); });
    REQUIRE(support::eventually([&] { return holder.waiters("committed elsewhere").size() == 1; }));
    const auto db = source.connect(soon());
    REQUIRE(post_next_grant(*db, held));
    CHECK(waiting.wait_for(300ms) == std::future_status::timeout);
    held.release();
    auto got = waiting.get();
    CHECK(got.token().value() > held.token().value());
    std::this_thread::sleep_for(100ms);  // longer than a verification takes
    CHECK(got.held());
    CHECK(waiter.stats().lost == 0);
}

// shows: wake-ups
TEST_CASE(
    "on a Galera node a message that comes before the client knows of the cluster is not "
    "believed") {
    const auto* node = the_node();
    if (node == nullptr) return;
    const auto source = open(node->url());
    migrate(source);
    const auto db = source.connect(soon());
    std::atomic<bool> posted{false};
    std::mutex mutex;
    support::interception network;
    client holder{source};
    client waiter{network.wrap(source)};
    auto held = holder.acquire("committed elsewhere");
    // Right behind the commit of the ticket: the waiter has no connection yet on which it polls.
    network.after([&](std::string_view) {
        const std::lock_guard lock{mutex};
        if (!posted) posted = post_next_grant(*db, held);
    });
    auto waiting = std::async(std::launch::async,
                              [&] { return support::acquire_soon(waiter, "committed elsewhere"); });
    REQUIRE(support::eventually([&] { return posted.load(); }));
    CHECK(waiting.wait_for(300ms) == std::future_status::timeout);
    held.release();
    auto got = waiting.get();
    CHECK(got.token().value() > held.token().value());
    std::this_thread::sleep_for(100ms);  // longer than a verification takes
    CHECK(got.held());
    CHECK(waiter.stats().lost == 0);
}

// The member that serves may have another clock than the one that enqueued.
TEST_CASE("on a Galera node no queue entry has the time limit of its caller") {
    const auto* node = the_node();
    if (node == nullptr) return;
    const auto source = open(node->url());
    migrate(source);
    const auto admin = source.connect(soon());
    client holder{source};
    client waiter{source};
    const auto held = holder.acquire("limited");
    const auto both = holder.acquire("other");
    std::stop_source stop;
    auto one = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("limited", 1h, stop.get_token()).has_value();
    });
    auto all = std::async(std::launch::async, [&] {
        return waiter.try_acquire_all_for({"limited", "other"}, 1h, stop.get_token()).has_value();
    });
    const auto entries = [&](const std::string& which) {
        return admin->query("select count(*) from rowlock_ticket where " + which, soon())
            .integer(0, 0);
    };
    CHECK(support::eventually([&] { return entries("true") == 3; }));
    CHECK(entries("waits_until is not null") == 0);
    stop.request_stop();
    CHECK_FALSE(one.get());
    CHECK_FALSE(all.get());
}

// shows: fenced-transactions
TEST_CASE(
    "on a Galera node a fence writes, and no other client's write comes between it and the "
    "commit") {
    const auto* node = the_node();
    if (node == nullptr) return;
    const auto source = open(node->url());
    migrate(source);
    const auto admin = source.connect(soon());
    client holder{source, {.ttl = 20s, .heartbeat = 200ms}};
    client others{source};
    auto held = holder.try_acquire("job");
    REQUIRE(held);

    support::interception network;
    std::mutex mutex;
    std::set<std::string> sent;
    network.before([&](std::string_view statement) {
        const std::lock_guard lock{mutex};
        sent.emplace(statement);
    });
    const auto app = network.wrap(source).connect(soon());
    for (const char* level : {"read committed", "repeatable read"}) {
        CAPTURE(level);
        app->query(std::string{"set session transaction isolation level "} + level, soon());
        if (!held->held()) held = holder.try_acquire_for("job", 10s);
        REQUIRE(held);
        app->query("begin", soon());
        fence(*app, *held);
        CHECK(sent.contains("fence_write"));
        CHECK_FALSE(sent.contains("fence"));
        auto breaker = std::async(std::launch::async, [&] { return others.force_release("job"); });
        CHECK(support::waiting_for_rows(*admin, "rowlock_"));
        CHECK(breaker.wait_for(0s) == std::future_status::timeout);
        CHECK(held->held());
        app->query("commit", soon());
        CHECK(breaker.get());
        // The stale lease is refused.
        app->query("begin", soon());
        CHECK(kind_of([&] { fence(*app, *held); }) == errc::lock_lost);
        app->query("rollback", soon());
    }

    // Heartbeats do not wait for the fence.
    held = holder.try_acquire_for("job", 10s);
    REQUIRE(held);
    const auto slow = source.connect(soon());
    slow->query("begin", soon());
    fence(*slow, *held, {.max_idle = 20s});
    const auto expiry = [&] {
        return admin
            ->query("select expires_at from rowlock_session where id = " +
                        to_string(held->session_id()),
                    soon())
            .integer(0, 0);
    };
    const auto before = expiry();
    REQUIRE(support::eventually([&] { return expiry() > before + 1'000'000; }));
    CHECK(held->held());
    fence(*slow, *held, {.max_idle = 20s});
    slow->query("commit", soon());
    slow->query("begin", soon());
    release_on_commit(*slow, *held);
    slow->query("commit", soon());
    CHECK(others.try_acquire_for("job", 10s));
}

TEST_CASE("a MariaDB without a cluster is not taken for a Galera node") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        CHECK_FALSE(sql::facts_of(*database.connect(), soon()).member_of == sql::cluster::galera);
    }
}

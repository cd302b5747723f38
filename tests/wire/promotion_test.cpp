// A change of servers: a standby was promoted, and may lack some of its primary's grants.

#include "sql/connection_memory.hpp"
#include "support/blocked.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/protocols.hpp"
#include "support/replicated_pair.hpp"
#include "support/serving.hpp"
#include "support/unnamed_server.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <future>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::event_log;
using support::eventually;
using support::kind_of;
using support::lock_database;
using support::replicated_pair;
using support::soon;

namespace {

constexpr std::int64_t raise = std::int64_t{1} << 32;
/// The servers with standbys. MySQL may take MariaDB's place.
std::vector<support::server> servers() {
    if (support::mysql_alone()) return {support::server::mariadb};
    return {support::server::postgresql, support::server::mariadb};
}

/// Runs a case on all of them at the same time: they take seconds to start and to recover.
template <typename Action>
void on_each_at_once(const Action& action) {
    std::vector<std::future<void>> all;
    for (const auto which : servers()) {
        all.push_back(std::async(std::launch::async, [&action, which] { action(which); }));
    }
    for (auto& each : all) each.get();
}

std::string to_string(support::server which) {
    return which == support::server::postgresql ? "postgresql" : "mariadb";
}

support::protocols plain_protocols(const sql::connection_source& source) {
    return support::protocols{sql::statement_set{source.speaks()}};
}

protocol::grant_request request(std::string_view name, session_id session, grant_id grant_id) {
    return {name, session, grant_id, {}, {}, {}};
}

std::unique_ptr<sql::connection> set_up(const sql::connection_source& source) {
    auto db = source.connect(soon());
    plain_protocols(source).leases().sessions().set_up(*db, 5s, soon());
    return db;
}

std::string server_of(const std::string& url) {
    const auto source = open(url);
    return plain_protocols(source)
        .leases()
        .sessions()
        .server_of(*set_up(source), soon())
        .value_or("nothing");
}

std::int64_t floor_of(const std::string& url) {
    return open(url)
        .connect(soon())
        ->query("select floor from rowlock_token_floor", soon())
        .integer(0, 0);
}

/// Acquires and releases the given number of times. Returns the last token.
std::int64_t use(client& locks, const std::string& name, int times) {
    std::int64_t token = 0;
    for (int i = 0; i < times; ++i) {
        auto lease = locks.try_acquire_for(name, 60s);
        if (!lease) throw std::runtime_error{"not granted"};
        token = lease->token().value();
        lease->release();
    }
    return token;
}

// The servers are killed, which ends their connections at once: no test here waits for the timeout.
// It is longer than a disk that other tests keep busy has stalled.
const client_options quick{.ttl = 3s, .poll_interval = 100ms, .statement_timeout = 30s};

/// A URL with the same hosts, the standby first.
std::string standby_first(const replicated_pair& pair) {
    const auto& primary = pair.primary_url();
    const auto port = primary.substr(primary.rfind(':'));
    auto url = pair.standby_url();
    return url.insert(url.rfind('/'), ",127.0.0.1" + port.substr(0, port.find('/')));
}

}  // namespace

// shows: fail-over
TEST_CASE("after the promotion of a standby that lagged all leases are lost and no token repeats") {
    on_each_at_once([](support::server which) {
        CAPTURE(to_string(which));
        const auto pair = replicated_pair::start(which, replicated_pair::commits::asynchronous);
        if (!pair) return;
        const auto source = open(pair->url());
        // The control does the same without the server's identity.
        const auto blind_source = support::unnamed(source).with_tables({.prefix = "blind_"});
        migrate(source);
        migrate(blind_source);
        event_log events;
        auto options = quick;
        // Its session outlives a promotion that takes long, and learns of the new server soon.
        options.ttl = 1min;
        options.heartbeat = 1s;
        options.margin = 500ms;
        options.on_event = events.callback();
        client locks{source, options};
        client others{source, quick};
        client blind{blind_source, quick};
        use(locks, "job", 3);
        use(blind, "job", 3);
        const auto kept = locks.acquire("known to the standby");
        use(others, "job", 1);
        pair->catch_up();
        pair->hold_back();
        const auto greatest = use(locks, "job", 40);
        const auto greatest_blind = use(blind, "job", 40);
        const auto late = locks.acquire("unknown to the standby");
        const auto before = server_of(pair->primary_url());
        CHECK(before == server_of(pair->url()));
        CHECK(before == server_of(standby_first(*pair)));  // the first host that accepts writes

        std::string step = "the primary is killed";
        INFO(step);
        pair->kill_primary();
        CHECK(kind_of([&] { (void)open(pair->url()).connect(soon()); }) ==
              errc::database_unreachable);
        step = "the standby is promoted";
        pair->promote();
        step = "a client takes a lease of the promoted standby";
        const auto token = use(others, "job", 1);
        step = "both clients have met it";
        CHECK(token > greatest);
        CHECK(token > raise);
        CHECK(eventually([&] { return !kept.held() && !late.held(); }));
        CHECK(eventually([&] {
            return events.count(event_kind::lease_lost, loss_reason::server_changed) == 2;
        }));
        CHECK(events.count(event_kind::session_ended, loss_reason::server_changed) == 1);
        CHECK(use(locks, "job", 2) > token);
        CHECK(locks.try_acquire_for("known to the standby", support::patience));
        CHECK(floor_of(pair->standby_url()) == raise);  // raised once by two clients
        CHECK(server_of(pair->standby_url()) != before);
        client blind_too{blind_source, quick};
        CHECK(use(blind_too, "job", 1) <= greatest_blind);
    });
}

// shows: fail-over
TEST_CASE("a crash and a restart of the server are not a change of servers") {
    on_each_at_once([](support::server which) {
        CAPTURE(to_string(which));
        const auto server = support::own_server::start(which);
        if (!server) return;
        migrate(open(server->url()));
        client locks{open(server->url()), {.ttl = 2min, .heartbeat = 500ms}};
        const auto held = locks.acquire("job");
        const auto before = server_of(server->url());
        server->kill();
        server->start_again();
        const auto beats = locks.stats().heartbeats;
        CHECK(eventually([&] { return locks.stats().heartbeats > beats; }));
        CHECK(held.held());
        CHECK(server_of(server->url()) == before);
        CHECK_FALSE(locks.try_acquire("job"));
        CHECK(floor_of(server->url()) == 0);
    });
}

TEST_CASE(
    "a session is neither granted a lease nor extended on a server on which it was not opened") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{7}, "owner", "host", "program", 1, 60s}, soon());
        CHECK(protocol.sessions().heartbeat(*db, session_id{7}, 0, soon()));
        const auto taken =
            protocol.acquire(*db, request("taken", session_id{7}, grant_id{1}), soon());
        REQUIRE(taken.what == protocol::attempt::outcome::granted);
        for (const char* elsewhere : {"1234/0000002A", "mariadb:uid:42"}) {
            CAPTURE(elsewhere);
            database.run("update rowlock_session set server_identity = '" + std::string{elsewhere} +
                         "'");
            CHECK_FALSE(protocol.sessions().heartbeat(*db, session_id{7}, 0, soon()));
            CHECK_FALSE(protocol.sessions().extend(*db, session_id{7}, 90s, soon()));
            CHECK_FALSE(protocol.sessions().state_of(*db, session_id{7}, soon()).live);
            const auto denied =
                protocol.acquire(*db, request("job", session_id{7}, grant_id{2}), soon());
            CHECK(denied.what == protocol::attempt::outcome::session_dead);
            // Its leases stay held until it expires or is ended.
            protocol.sessions().open(*db, {session_id{8}, "owner", "host", "program", 1, 60s},
                                     soon());
            const auto other =
                protocol.acquire(*db, request("taken", session_id{8}, grant_id{3}), soon());
            CHECK(other.what == protocol::attempt::outcome::held);
            database.run("delete from rowlock_session where id = 8");
        }
        database.run("update rowlock_session set server_identity = ''");  // it has told none
        CHECK(protocol.sessions().heartbeat(*db, session_id{7}, 0, soon()));
    }
}

TEST_CASE("two clients that meet a new server at once raise the token floor once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto first = database.connect();
        const auto second = database.connect();
        protocol.sessions().open(*first, {session_id{1}, "owner", "host", "program", 1, 60s},
                                 soon());
        CHECK(database.number("select floor from rowlock_token_floor") ==
              0);  // the first server a session is opened on is not a change
        database.run("update rowlock_token_floor set server_identity = 'before', floor = 17");
        first->query("begin", soon());
        protocol.sessions().open(*first, {session_id{2}, "owner", "host", "program", 1, 60s},
                                 soon());
        auto other = std::async(std::launch::async, [&] {
            protocol.sessions().open(*second, {session_id{3}, "owner", "host", "program", 1, 60s},
                                     soon());
        });
        CHECK(support::waiting_for_rows(database.admin(), database.prefix()));
        first->query("commit", soon());
        other.get();
        CHECK(database.number("select floor from rowlock_token_floor") == raise + 17);
        const auto granted =
            protocol.acquire(*second, request("job", session_id{3}, grant_id{1}), soon());
        CHECK(granted.token == raise + 18);
        CHECK(database.number("select count(*) from rowlock_session where server_identity = "
                              "(select server_identity from rowlock_token_floor)") == 3);
    }
}

TEST_CASE("a client whose session lives on another server loses it by the next heartbeat") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        event_log events;
        client locks{database.source(), database.watchful({.on_event = events.callback()})};
        const auto held = locks.acquire("job");
        // As on the new server, the row has the identity of the previous one.
        database.run(database.speaks() == sql::dialect::postgresql
                         ? "update rowlock_session set server_identity = '1/0000002A'"
                         : "update rowlock_session set server_identity = 'mariadb:uid:42'");
        CHECK(eventually([&] { return !held.held(); }));
        // The connection still leads to the server that the client knows, so the session has ended.
        CHECK(eventually(
            [&] { return events.count(event_kind::lease_lost, loss_reason::session_ended) == 1; }));
        // The leases of that session stay held until it expires.
        database.run("update rowlock_session set expires_at = opened_at");
        CHECK(locks.try_acquire_for("job", 10s));
    }
}

TEST_CASE("the client of a role that may not read the server's identity uses the timeline") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const auto admin = open(server->url()).connect(soon());
    migrate(open(server->url()));
    admin->query("revoke execute on function pg_control_system() from public", soon());
    admin->query("create role lowly login password 'lowly'", soon());
    admin->query("grant all on all tables in schema public to lowly", soon());
    auto url = server->url();
    const auto user = url.find("//") + 2;
    url.replace(user, url.find('@') - user, "lowly:lowly");
    CHECK(server_of(url) == "/00000001");
    CHECK(server_of(server->url()).ends_with("/00000001"));
    client locks{open(url), quick};
    CHECK(use(locks, "job", 3) == 3);
    // A role that may read it sees another identity, which is harmless.
    client asking{open(server->url()), quick};
    CHECK(use(asking, "job", 1) > raise);

    admin->query("revoke execute on function pg_walfile_name(pg_lsn) from public", soon());
    CHECK(kind_of([&] { use(locks, "job", 1); }) == errc::access_denied);
}

TEST_CASE(
    "a session that was promised a token before the promotion blocks the lease until it has "
    "ended") {
    // The session may know of its grant, which need not be on disk, nor on the standby (ADR 23).
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto& protocol = database.protocol();
    const auto db = database.connect();
    for (const std::int64_t id : {1, 2, 3}) {
        protocol.sessions().open(*db, {session_id{id}, "owner", "host", "program", id, 60s},
                                 soon());
    }
    using outcome = protocol::attempt::outcome;
    CHECK(protocol.acquire(*db, request("job", session_id{1}, grant_id{11}), soon()).what ==
          outcome::granted);
    database.run(
        "insert into rowlock_ticket (name, session, grant_id, enqueued_at) "
        "values ('job', 2, 22, clock_timestamp())");
    database.run("update rowlock_lock set successor = 22");
    // The state on the standby, where the holder's client has ended its session.
    database.run("update rowlock_session set server_identity = '1/0000002A' where id < 3");
    protocol.sessions().end(*db, session_id{1}, soon());
    CHECK(protocol.acquire(*db, request("job", session_id{3}, grant_id{33}), soon()).what ==
          outcome::held);
    auto barging = request("job", session_id{3}, grant_id{34});
    barging.barging = true;
    CHECK(protocol.acquire(*db, barging, soon()).what == outcome::held);
    protocol.sessions().end(*db, session_id{2}, soon());
    const auto granted = protocol.acquire(*db, request("job", session_id{3}, grant_id{35}), soon());
    CHECK(granted.what == outcome::granted);
    CHECK(granted.token == 3);  // above the promised token
}

TEST_CASE("grant_next does not loop on a promise that this server cannot keep") {
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto& protocol = database.protocol();
    const auto& queue = database.queue();
    const auto db = database.connect();
    for (const std::int64_t id : {1, 2, 3}) {
        protocol.sessions().open(*db, {session_id{id}, "owner", "host", "program", id, 60s},
                                 soon());
    }
    REQUIRE(protocol.acquire(*db, request("job", session_id{1}, grant_id{11}), soon()).what ==
            protocol::attempt::outcome::granted);
    for (const std::int64_t id : {2, 3}) {
        queue.enqueue(*db, {"job", session_id{id}, grant_id{id * 11}, {}, {}, {}}, soon());
    }
    database.run("update rowlock_lock set successor = 22");
    database.run("update rowlock_session set server_identity = '1/0000002A' where id < 3");
    protocol.sessions().end(*db, session_id{1}, soon());
    std::optional<protocol::handed_over> next;
    CHECK_NOTHROW(next =
                      support::serve_one(queue, *db, "job", std::chrono::steady_clock::now() + 8s));
    CHECK_FALSE(next.has_value());
    protocol.sessions().end(*db, session_id{2}, soon());
    next = support::serve_one(queue, *db, "job", soon());
    REQUIRE(next.has_value());
    CHECK(next->grant_id == grant_id{33});
    CHECK(next->token == 3);  // above the promised token
}

TEST_CASE("behind a pooler a session is opened on the server that answers now") {
    const auto url = support::url_of(support::server::postgresql);
    if (!url) return;
    lock_database database{support::backend::postgresql};
    const auto& protocol = database.protocol();
    const auto source = open(*url + (url->find('?') == std::string::npos ? "?" : "&") +
                             "rowlock_pooler=transaction");
    const auto db = source.connect(soon());
    REQUIRE_FALSE(db->keeps_session_state());
    const auto server =
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 60s}, soon());
    // The server that the connection led to before the pooler was switched.
    sql::memory_of(*db).server = "1/0000002A";
    CHECK(protocol.sessions().open(*db, {session_id{2}, "owner", "host", "program", 2, 60s},
                                   soon()) == server);
    CHECK(protocol.acquire(*db, request("job", session_id{2}, grant_id{22}), soon()).what ==
          protocol::attempt::outcome::granted);
}

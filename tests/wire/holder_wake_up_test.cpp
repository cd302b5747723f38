// A holder whose rows another client has changed is woken: it learns of the change at once, and not
// with its next heartbeat. The wake-up makes it ask the database.

#include "lock/wakeup/hint.hpp"
#include "sql/listening.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/queues.hpp"
#include "support/stranger.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/forwarding_connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::address_of;
using support::at_best;
using support::eventually;
using support::interception;
using support::lies;
using support::stranger;
using steady = std::chrono::steady_clock;

namespace {

/// Far below the heartbeat, which is a third of the ttl.
constexpr auto at_once = 8s;

client_options by_datagram(const support::lock_database& database, client_options options = {}) {
    options.ttl = 60s;
    options = database.options(std::move(options));
    options.wake_ups = wakeup_mode::automatic;
    return options;
}

client_options by_database(const support::lock_database& database, client_options options = {}) {
    options.ttl = 60s;
    options.wake_ups = wakeup_mode::database;
    return database.options(std::move(options));
}

session_id session_of(support::lock_database& database, const std::string& name) {
    return session_id{
        database.number("select session from rowlock_lock where name = '" + name + "'")};
}

/// Waits until the heartbeat's connection is open, which happens some time after the session's.
void await_heartbeat(support::lock_database& database, const client& holder) {
    if (database.speaks() == sql::dialect::sqlite) return;
    REQUIRE(eventually([&] { return holder.stats().connections >= 2; }));
}

/// Waits until a connection to PostgreSQL listens for this session.
void await_listener(support::lock_database& database, session_id session) {
    const auto channel = wakeup::notification_channel(address_of(database, session));
    REQUIRE(eventually([&] {
        return database.number("select count(*) from pg_stat_activity where query like 'listen %" +
                               channel + "%' and state = 'idle'") > 0;
    }));
}

/// Requests the release of "job", and checks that its holder learns of it soon.
void ask(client& by, const lease& held) {
    const auto start = steady::now();
    REQUIRE(by.request_release("job", held.token()));
    CHECK(eventually([&] { return !held.held(); }, at_once));
    CHECK(steady::now() - start < at_once);
    CHECK(held.lost().stop_requested());
}

}  // namespace

// shows: fault-break
TEST_CASE("a holder learns of a requested release at once, long before its next heartbeat") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        std::atomic<bool> asked_for{false};
        client holder{database.source(),
                      by_datagram(database, {.on_event = [&](const event& what) {
                                      if (what.reason == loss_reason::release_requested)
                                          asked_for = true;
                                  }})};
        client asking{database.source(), by_datagram(database)};
        const auto held = holder.acquire("job");
        const auto bystander = holder.acquire("other");
        ask(asking, held);
        CHECK(bystander.held());
        CHECK(eventually([&] { return asked_for.load(); }));
        // One heartbeat that is refused and one that is confirmed.
        CHECK(holder.stats().heartbeats <= 2);
    }
}

// shows: promise-19
TEST_CASE("a holder whose time is over learns at once that a reaper has asked for its lock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), by_datagram(database)};
        semaphore api{holder, "api"};
        api.set_capacity(1);
        holder.set_max_hold("job", 1h);
        holder.set_max_hold("api", 1h);
        const auto lease = holder.acquire("job");
        const auto permit = api.acquire();
        for (const auto* const table : {"lock", "hold"}) {
            database.run("update rowlock_" + std::string{table} +
                         " set acquired_at = acquired_at - " +
                         (database.speaks() == sql::dialect::postgresql ? "interval '2 hours'"
                                                                        : "7200000000"));
        }
        const auto start = steady::now();
        CHECK(reap(database.source()).releases_requested == 2);
        CHECK(eventually([&] { return !lease.held() && !permit.held(); }, at_once));
        CHECK(steady::now() - start < at_once);
    }
}

// shows: fault-break-now
TEST_CASE("a holder learns of a forced release at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), by_datagram(database)};
        client other{database.source(), by_datagram(database)};
        for (const bool named : {false, true}) {
            const auto held = holder.acquire("job");
            const auto start = steady::now();
            CHECK((named ? other.force_release("job", held.token()) : other.force_release("job")));
            CHECK(eventually([&] { return !held.held(); }, at_once));
            CHECK(steady::now() - start < at_once);
        }
    }
}

TEST_CASE("a holder that waits for another lock, or has waited, is woken too") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), by_datagram(database)};
        client other{database.source(), by_datagram(database)};
        std::optional<lease> theirs{other.acquire("theirs")};
        auto waiting =
            std::async(std::launch::async, [&] { return acquire_soon(holder, "theirs"); });
        REQUIRE(support::places(database, 1));
        {
            const auto held = holder.acquire("job");
            ask(other, held);
        }
        theirs.reset();
        waiting.get().release();
        // Its waiter loop is open, without a waiter.
        const auto again = acquire_soon(holder, "job");
        ask(other, again);
    }
}

TEST_CASE("a new session of a client that has waited is woken too") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), by_datagram(database, {.poll_interval = 100ms})};
        client other{database.source(), by_datagram(database)};
        std::optional<lease> theirs{other.acquire("theirs")};
        auto waiting =
            std::async(std::launch::async, [&] { return acquire_soon(holder, "theirs"); });
        REQUIRE(support::places(database, 1));
        theirs.reset();
        auto first = waiting.get();
        const auto ended = session_of(database, "theirs");
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                     " where id = " + to_string(ended));
        const auto held = acquire_soon(holder, "job");
        CHECK(session_of(database, "job") != ended);
        ask(other, held);
    }
}

TEST_CASE("a holder on another machine is woken by PostgreSQL") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    for (const bool single : {false, true}) {
        CAPTURE(single);
        client holder{database.source(), by_database(database, {.single_connection = single})};
        client other{database.source(), by_datagram(database)};
        auto held = holder.acquire("job");
        CHECK_FALSE(
            support::mailbox_sender(address_of(database, session_of(database, "job"))).reachable());
        await_listener(database, session_of(database, "job"));
        CHECK(holder.stats().connections == (single ? 1 : 3));
        ask(other, held);
        CHECK(holder.stats().heartbeats <= 2);
    }
}

namespace {

/// A server that leaves every LISTEN unanswered until release(), whatever the client's deadline.
class unanswered_listens {
public:
    explicit unanswered_listens(const support::lock_database& database)
        : source{database.source().wrapped([this](std::unique_ptr<sql::connection> inner) {
              ++connections;
              return std::make_unique<deaf_connection>(*this, std::move(inner));
          })} {}
    ~unanswered_listens() { release(); }

    void release() {
        const std::lock_guard lock{mutex_};
        released_ = true;
        changed_.notify_all();
    }

    std::atomic<int> connections{0};
    std::atomic<int> listens{0};
    const sql::connection_source source;

private:
    class deaf_connection final : public sql::forwarding_connection, private sql::notifications {
    public:
        deaf_connection(unanswered_listens& by, std::unique_ptr<sql::connection> inner)
            : forwarding_connection{std::move(inner)}, by_{by} {}
        [[nodiscard]] bool alive() const noexcept override {
            return !broken_ && forwarding_connection::alive();
        }
        [[nodiscard]] sql::notifications* notifications() noexcept override { return this; }

    private:
        void listen(std::string_view, sql::deadline until) override {
            ++by_.listens;
            {
                std::unique_lock lock{by_.mutex_};
                by_.changed_.wait(lock, [this] { return by_.released_; });
            }
            std::this_thread::sleep_until(until);  // at most a second
            broken_ = true;
            throw error{errc::outcome_unknown, "no answer came before the deadline"};
        }
        [[nodiscard]] int descriptor() const noexcept override { return -1; }
        std::vector<sql::notification> take() override { return {}; }

        unanswered_listens& by_;
        bool broken_ = false;
    };

    std::mutex mutex_{};
    std::condition_variable changed_{};
    bool released_ = false;
};

}  // namespace

// shows: promise-9
TEST_CASE("a LISTEN that is not answered delays no heartbeat and no hand-over, and is sent once") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    unanswered_listens server{database};
    const auto options = by_database(database, {.heartbeat = 100ms, .poll_interval = 100ms});
    client holder{server.source, options};
    client waiter{server.source, options};
    auto held = holder.acquire("job");
    REQUIRE(eventually([&] { return server.listens >= 1; }));
    const auto beats = holder.stats().heartbeats;
    auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(support::places(database, 1));
    REQUIRE(eventually([&] { return server.listens == 2; }));
    CHECK(eventually([&] { return holder.stats().heartbeats > beats + 3; }));
    held.release();
    const auto got = waiting.get();
    CHECK(got.held());
    CHECK(holder.stats().connections <= 4);  // a call's, the heartbeat's, the loop's and this one
    CHECK(server.listens == 2);

    server.release();
    REQUIRE(eventually([&] { return holder.stats().connections <= 3; }));
    REQUIRE(eventually([&] { return waiter.stats().connections <= 3; }));
    const int connections = server.connections;
    const auto later = holder.stats().heartbeats + waiter.stats().heartbeats;
    REQUIRE(eventually(
        [&] { return holder.stats().heartbeats + waiter.stats().heartbeats > later + 10; }));
    CHECK(server.listens == 2);
    CHECK(server.connections == connections);
    CHECK(got.held());
}

// shows: promise-9
TEST_CASE("where the server's queue of notifications is long, a client polls and does not listen") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const auto source = open(server->url());
    migrate(source);
    const auto stranger = source.connect(support::soon());
    const auto filling = source.connect(support::soon());
    stranger->query("listen x", support::soon());
    stranger->query("begin", support::soon());
    const auto usage = [&] {
        return filling
            ->query("select (pg_notification_queue_usage() * 1000000)::bigint", support::soon())
            .integer(0, 0);
    };
    while (usage() <= sql::long_notification_queue) {
        filling->query(
            "do $$ begin for g in 1 .. 3000 loop perform pg_notify('x', repeat('a', 7980) || g); "
            "end loop; end $$",
            support::soon());
    }
    const client_options options{
        .ttl = 60s, .heartbeat = 100ms, .poll_interval = 100ms, .wake_ups = wakeup_mode::database};
    client holder{source, options};
    client waiter{source, options};
    auto held = holder.acquire("job");
    auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(eventually([&] {
        return filling->query("select count(*) from rowlock_ticket", support::soon())
                   .integer(0, 0) == 1;
    }));
    const auto beats = holder.stats().heartbeats;
    REQUIRE(eventually([&] { return holder.stats().heartbeats > beats + 3; }));
    held.release();
    CHECK(waiting.get().held());
    CHECK(filling
              ->query("select count(*) from pg_stat_activity where query like 'listen \"rowlock%'",
                      support::soon())
              .integer(0, 0) == 0);
    CHECK(waiter.stats().wake_ups == 0);
}

TEST_CASE("a holder on another machine that has waited is woken by PostgreSQL") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    for (const bool single : {false, true}) {
        CAPTURE(single);
        client holder{database.source(), by_database(database, {.single_connection = single})};
        client other{database.source(), by_datagram(database)};
        std::optional<lease> before{holder.acquire("before")};
        await_listener(database, session_of(database, "before"));
        std::optional<lease> theirs{other.acquire("job")};
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(holder, "job"); });
        REQUIRE(support::places(database, 1));
        REQUIRE(eventually([&] { return holder.stats().polls > 0; }));
        theirs.reset();
        const auto held = waiting.get();
        ask(other, held);
    }
}

// shows: fault-break
ROWLOCK_SIMULATED_CASE("control: a holder without wake-ups learns of it with its next heartbeat",
                       database) {
    client holder{
        database.source(),
        database.options({.ttl = 60s, .heartbeat = 4s, .wake_ups = wakeup_mode::polling})};
    client other{database.source(), by_datagram(database)};
    const auto start = steady::now();
    const auto held = holder.acquire("job");
    await_heartbeat(database, holder);
    REQUIRE(other.request_release("job", held.token()));
    REQUIRE(eventually([&] { return !held.held(); }));
    CHECK(steady::now() - start > 1900ms);  // half of it, on a slow link
}

ROWLOCK_SIMULATED_CASE(
    "a wake-up that precedes the grant which it concerns is followed by checks with pauses",
    database) {
    interception network;
    auto options = by_datagram(database, {.heartbeat = 2s, .statement_timeout = 20s});
    client holder{network.wrap(database.source()), options};
    const auto other = holder.acquire("other");
    await_heartbeat(database, holder);
    std::atomic<int> heartbeats{0};
    network.before([&](std::string_view what) { heartbeats += what == "heartbeat" ? 1 : 0; });
    network.after([&](std::string_view what) {
        if (what != "acquire" && what != "insert_lease") return;
        // The lease's row has a deadline, and the caller does not have the grant yet.
        database.run("update rowlock_session set revision = revision + 1");
        std::this_thread::sleep_for(3500ms);
    });
    const auto held = holder.acquire("job", {.max_duration = 30s});
    // Several of both kinds of heartbeat in a period. Without pauses there are thousands.
    CHECK(heartbeats < 100);
    CHECK(heartbeats > 2);
    CHECK(other.held());
    CHECK(held.held());
}

TEST_CASE("a program that knows all but the tables causes no statement of a holder") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        stranger stranger{database};
        interception network;
        std::atomic<int> sent{0};
        std::atomic<int> compared{0};
        network.after([&](std::string_view name) {
            if (name == "session_leases") ++compared;
        });
        client holder{network.wrap(database.source()), by_datagram(database)};
        client other{database.source(), by_datagram(database)};
        const auto asked = holder.acquire("job");
        await_heartbeat(database, holder);
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        if (postgresql) await_listener(database, session_of(database, "job"));
        ask(other, asked);
        // Once for the request and once for the new revision.
        REQUIRE(eventually([&] { return compared >= 2; }));
        const auto held = holder.acquire("other");
        const auto session = session_of(database, "other");
        const auto victim = address_of(database, session);
        const auto known = database.number("select revision from rowlock_session where id = " +
                                           to_string(session));
        REQUIRE(known > 0);
        network.before([&](std::string_view) { ++sent; });
        const std::string zeros(32, '0');
        const std::string later = "look " + std::to_string(known + 1);
        // Among them the wake-up that was overheard at the request.
        auto texts = lies({grant_id{known + 1}, known + 1},
                          {wakeup::encode_look(known, victim.secret),
                           wakeup::encode_wakeup({grant_id{known + 1}, known + 1}, victim.secret)});
        for (const auto& text :
             {std::string{"look"}, later, later + ' ', later + ' ' + zeros,
              wakeup::encode_look(known + 1, zeros), wakeup::encode_look(known + 1, ""),
              later + wakeup::encode_look(known, victim.secret).substr(6),
              wakeup::encode_look(-1, victim.secret),
              wakeup::encode_look(std::numeric_limits<std::int64_t>::max(), zeros)}) {
            texts.push_back(text);
        }
        // Longer than the second between two heartbeats that wake-ups cause.
        const auto statements = [&] {
            sent = 0;
            const auto from = steady::now();
            while (steady::now() - from < 1500ms) REQUIRE(stranger.say(victim, texts, 10));
            return sent.load();
        };
        CHECK(at_best(1, statements) == 0);
        // A client that knows the secret wakes it.
        const auto start = steady::now();
        CHECK(other.force_release("other"));
        CHECK(eventually([&] { return !held.held(); }, at_once));
        CHECK(steady::now() - start < at_once);
    }
}

TEST_CASE("control: a reader of rowlock's tables causes at most a heartbeat a second") {
    ROWLOCK_FOR_A_CLIENT(database) {
        stranger stranger{database};
        client holder{database.source(), by_datagram(database)};
        const auto held = holder.acquire("job");
        await_heartbeat(database, holder);
        const auto victim = address_of(database, session_of(database, "job"));
        const auto start = steady::now();
        const auto before = holder.stats().heartbeats;
        const auto beats_so_far = [&] {
            return static_cast<std::int64_t>(holder.stats().heartbeats - before);
        };
        std::int64_t revision = 1;
        // Longer where the database stalls.
        while (steady::now() - start < 2s || (beats_so_far() < 2 && steady::now() - start < 15s)) {
            std::vector<std::string> texts;
            for (int i = 0; i < 20; ++i) {
                texts.push_back(wakeup::encode_look(++revision, victim.secret));
            }
            REQUIRE(stranger.say(victim, texts));
        }
        const auto beats = beats_so_far();
        const auto took = std::chrono::ceil<std::chrono::seconds>(steady::now() - start);
        CHECK(beats >= 2);
        CHECK(beats <= took.count() + 1);
        CHECK(held.held());
    }
}

TEST_CASE("a client may be destroyed while wake-ups arrive") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    for (int i = 0; i < 20; ++i) {
        std::optional<client> holder{std::in_place, database.source(), by_datagram(database)};
        std::optional<lease> held{holder->acquire("job")};
        const auto victim = address_of(database, session_of(database, "job"));
        std::jthread saying{[&](const std::stop_token& stop) {
            const auto way = support::mailbox_sender(victim);
            for (std::int64_t revision = 1; !stop.stop_requested(); ++revision) {
                static_cast<void>(way.post(wakeup::encode_look(revision, victim.secret)));
            }
        }};
        held.reset();
        holder.reset();
        CHECK_FALSE(support::mailbox_sender(victim).reachable());
    }
}

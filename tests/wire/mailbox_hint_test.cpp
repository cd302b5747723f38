// Wake-up datagrams between processes of one machine. The database notifies all other waiters, and
// verifies every grant.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "support/failure.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/forwarding_connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::eventually;
using support::interception;
using support::kind_of;
using support::places;
using support::soon;
using steady = std::chrono::steady_clock;

namespace {

/// Below the poll interval of 10 s, so a waiter that is served sooner was notified.
constexpr auto at_once = 8s;

client_options by_datagram(const support::lock_database& database, client_options options = {}) {
    options.poll_interval = 10s;
    options = database.options(std::move(options));
    options.wake_ups = wakeup_mode::automatic;
    return options;
}

client_options by_database(const support::lock_database& database) {
    return database.options({.poll_interval = 10s, .wake_ups = wakeup_mode::database});
}

session_id waiting_session(support::lock_database& database) {
    return session_id{database.number("select max(session) from rowlock_ticket")};
}

bool has_mailbox(support::lock_database& database, session_id session) {
    return support::mailbox_sender(support::address_of(database, session)).reachable();
}

/// Whether the database can notify the waiter now: it listens before its first poll, or sleeps in
/// the server.
bool waits_to_be_told(support::lock_database& database, const client& waiter) {
    if (database.speaks() == sql::dialect::postgresql) return waiter.stats().polls > 0;
    return support::sleeper(database.admin(), waiting_session(database)).has_value();
}

/// Counts the statements that its connections send after they have slept in the server.
class sleepers {
public:
    std::atomic<int> statements{0};

    [[nodiscard]] sql::connection_source wrap(const sql::connection_source& inner) {
        return sql::connection_source{
            inner.speaks(),
            [inner, this](sql::deadline until) -> std::unique_ptr<sql::connection> {
                return std::make_unique<connection>(inner.connect(until), statements);
            },
            inner.description()}
            .with_tables(inner.tables());
    }

private:
    class connection final : public sql::forwarding_connection {
    public:
        connection(std::unique_ptr<sql::connection> inner, std::atomic<int>& statements)
            : forwarding_connection{std::move(inner)}, statements_{statements} {}

        sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                            sql::deadline until) override {
            if (slept_) ++statements_;
            return forwarding_connection::execute(what, parameters, until);
        }
        std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                     sql::deadline until) override {
            if (slept_) ++statements_;
            return forwarding_connection::transact(steps, afterwards, until);
        }
        sql::result query(std::string_view text, sql::deadline until) override {
            const bool sleeps = text.find(" as rowlock_wake_") != std::string_view::npos;
            if (slept_ && !sleeps) ++statements_;
            slept_ = slept_ || sleeps;
            return forwarding_connection::query(text, until);
        }

    private:
        std::atomic<int>& statements_;
        bool slept_ = false;
    };
};

/// Listens to the notifications that PostgreSQL sends to a session.
class eavesdropper {
public:
    eavesdropper(const support::lock_database& database, const wakeup::wake_address& of)
        : db_{database.connect()} {
        db_->notifications()->listen(wakeup::notification_channel(of), soon());
    }
    /// The number of notifications so far: a round trip brings all that were sent before it.
    [[nodiscard]] std::size_t heard() {
        db_->query("select 1", soon());
        count_ += db_->notifications()->take().size();
        return count_;
    }

private:
    std::unique_ptr<sql::connection> db_;
    std::size_t count_ = 0;
};

client_options polling(client_options options, std::chrono::milliseconds interval) {
    options.poll_interval = interval;
    return options;
}

/// Three clients hand "job" over. The second and the third wait for it.
struct relay {
    /// The last one polls with `last_polls`.
    relay(support::lock_database& database, const client_options& options,
          std::chrono::milliseconds last_polls = 10s)
        : first{database.source(), options},
          second{network.wrap(database.source()), options},
          third{database.source(), polling(options, last_polls)},
          held{first.acquire("job")} {
        network.after([this](std::string_view name) {
            if (name == "confirm_and_read_next") ++settled;
            if (name == "names_with_waiters") ++looks;
        });
        got_second = std::async(std::launch::async, [&] { return acquire_soon(second, "job"); });
        REQUIRE(places(database, 1));
        // It can be notified from now on. If it found its grant by that poll, it would not learn
        // the next waiter.
        REQUIRE(eventually([&] { return second.stats().polls > 0; }));
        got_third = std::async(std::launch::async, [&] { return acquire_soon(third, "job"); });
        REQUIRE(places(database, 2));
        REQUIRE(eventually([&] { return third.stats().polls > 0; }));
        third_session = waiting_session_of_last(database);
        held.release();
        held = got_second.get();
    }
    /// PostgreSQL: waits until the holder knows the next waiter, so that its release passes the
    /// lease on. Its waiter loop learns that by `confirm_and_read_next`, some time after the
    /// hand-over. A release of another name makes the same thread check for waiters, after all that
    /// it did with the answer to `confirm_and_read_next`.
    void let_the_holder_learn_who_is_next() {
        REQUIRE(eventually([&] { return settled > 0; }));
        const int before = looks;
        second.acquire("another").release();
        REQUIRE(eventually([&] { return looks > before; }));
    }
    static session_id waiting_session_of_last(support::lock_database& database) {
        return session_id{database.number(
            "select session from rowlock_ticket where ticket = (select max(ticket) from "
            "rowlock_ticket)")};
    }

    interception network;
    std::atomic<int> settled{0}, looks{0};  ///< statements that the second client sent
    client first, second, third;
    lease held;
    std::future<lease> got_second, got_third;
    session_id third_session{};
};

}  // namespace

// shows: wake-ups
TEST_CASE(
    "a waiter on this machine is notified at once, without a notification from the database") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        std::mutex mutex;
        std::vector<std::string> sent;
        relay on{database, by_datagram(database)};
        REQUIRE(has_mailbox(database, on.third_session));
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        // A holder that does not know the next waiter hands over in a statement that notifies.
        if (postgresql) on.let_the_holder_learn_who_is_next();
        on.network.before([&](std::string_view name) {
            const std::lock_guard lock{mutex};
            sent.emplace_back(name);
        });
        std::optional<eavesdropper> ear;
        if (postgresql) ear.emplace(database, support::address_of(database, on.third_session));
        const auto start = steady::now();
        on.held.release();
        CHECK(on.got_third.get().held());
        CHECK(steady::now() - start < at_once);
        if (postgresql) CHECK(ear->heard() == 0);
        const std::lock_guard lock{mutex};
        for (const auto& name : sent) CHECK_FALSE(name.starts_with("kill query"));
    }
}

// shows: wake-ups
TEST_CASE("control: a client with wakeup_mode::database is notified by the database") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    relay on{database, by_database(database)};
    CHECK_FALSE(has_mailbox(database, on.third_session));
    on.let_the_holder_learn_who_is_next();
    eavesdropper ear{database, support::address_of(database, on.third_session)};
    on.held.release();
    CHECK(on.got_third.get().held());
    CHECK(ear.heard() == 1);
}

// shows: wake-ups
TEST_CASE("a waiter without a mailbox on this machine is notified by the database") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), by_datagram(database)};
        client waiter{database.source(), by_database(database)};
        for (int round = 0; round < 3; ++round) {
            auto held = holder.acquire("job");
            auto got = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
            REQUIRE(places(database, 1));
            CHECK_FALSE(has_mailbox(database, waiting_session(database)));
            REQUIRE(eventually([&] { return waits_to_be_told(database, waiter); }));
            const auto start = steady::now();
            held.release();
            got.get().release();
            CHECK(steady::now() - start < at_once);
        }
    }
}

// shows: wake-ups
TEST_CASE("where the datagram does not arrive the database notifies") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto& queue = database.queue();
    const auto without_mail =
        protocol::make_queue_protocol(database.statements(), database.protocol(), false);
    const auto db = database.connect();
    protocol::handed_over next{.session = session_id{77},
                               .grant_id = grant_id{5},
                               .token = 9,
                               .to = wakeup::random_wake_address()};
    eavesdropper ear{database, next.to};
    queue.notify_grantee(*db, next, soon());
    CHECK(ear.heard() == 1);  // it has no mailbox
    const wakeup::mailbox box{next.to.number};
    next.to.mailbox = wakeup::network_namespace();
    queue.notify_grantee(*db, next, soon());
    CHECK(ear.heard() == 1);
    CHECK(box.take() == std::vector{wakeup::encode_wakeup({grant_id{5}, 9}, next.to.secret)});
    without_mail->notify_grantee(*db, next, soon());
    CHECK(ear.heard() == 2);
    const auto way = support::mailbox_sender(next.to);
    while (way.post("x")) {
    }
    queue.notify_grantee(*db, next, soon());
    CHECK(ear.heard() == 3);  // the box is full
    CHECK(box.take().size() > 1);
    next.to.mailbox = *wakeup::network_namespace() + 1;
    queue.notify_grantee(*db, next, soon());
    CHECK(ear.heard() ==
          4);  // the name belongs to another namespace: the local socket is a stranger's
}

// forged_hints_test.cpp shows that other programs cannot forge a datagram.
// shows: wake-ups
TEST_CASE(
    "a datagram that a reader of rowlock's tables forges is believed only until it is verified") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), by_datagram(database)};
        client waiter{database.source(), by_datagram(database)};
        auto held = holder.acquire("job");
        auto waiting =
            std::async(std::launch::async, [&] { return waiter.try_acquire_for("job", 20s); });
        REQUIRE(places(database, 1));
        const auto victim = support::address_of(database, waiting_session(database));
        REQUIRE(eventually([&] { return waiter.stats().polls > 0; }));
        const auto forger = support::mailbox_sender(victim);
        const auto forge = [&] {
            const grant_id awaited{database.number("select grant_id from rowlock_ticket")};
            REQUIRE(forger.post(wakeup::encode_wakeup({awaited, 4000000}, victim.secret)));
        };
        forge();
        if (database.speaks() == sql::dialect::sqlite) {
            // A reader of the file need not be allowed to write it, so the client checks the row.
            REQUIRE(eventually([&] { return waiter.stats().wake_ups == 1; }));
            CHECK(waiting.wait_for(200ms) == std::future_status::timeout);
            held.release();
            CHECK(waiting.get()->held());
            continue;
        }
        // On a busy machine the client may refute it before the thread runs, which then waits
        // further, in another place.
        const auto is_lost = [&] { return waiter.stats().lost == 1; };
        for (int more = 0; more < 16 && !eventually(is_lost, 500ms); ++more) forge();
        auto believed = waiting.get();
        REQUIRE(believed);
        CHECK_FALSE(believed->held());
        CHECK(kind_of([&] { believed->release(); }) == errc::lock_lost);
        CHECK(held.held());
        held.release();
        CHECK(acquire_soon(waiter, "job").token().value() < 4000000);
    }
}

// shows: wake-ups
TEST_CASE("a holder that loses the reply to its hand-over delays the next waiter by one poll") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        std::atomic<int> lost{0};
        relay on{database, by_datagram(database), 500ms};
        REQUIRE(has_mailbox(database, on.third_session));
        if (database.speaks() == sql::dialect::postgresql) on.let_the_holder_learn_who_is_next();
        // The reply to the hand-over is lost: no datagram is sent.
        on.network.after([&](std::string_view name) {
            if ((name == "hand_over_to" || name == "hand_over" || name == "commit") &&
                lost.fetch_add(1) == 0) {
                interception::lose_reply();
            }
        });
        const auto start = steady::now();
        on.held.release();
        CHECK(lost > 0);
        CHECK(on.got_third.get().held());
        CHECK(steady::now() - start < at_once);
    }
}

TEST_CASE("the connection that a wake-up interrupts sends no other statement") {
    support::lock_database database{support::backend::mariadb};
    if (!database.there()) return;
    sleepers asleep;
    client holder{database.source(), by_database(database)};
    client waiter{asleep.wrap(database.source()), by_database(database)};
    // On a busy machine a poll may come before the wake-up: then the round says nothing.
    for (int round = 0; round < 50 && waiter.stats().wake_ups < 3; ++round) {
        auto held = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return waits_to_be_told(database, waiter); }));
        held.release();
        waiting.get().release();
    }
    CHECK(waiter.stats().wake_ups >= 3);
    CHECK(asleep.statements == 0);
}

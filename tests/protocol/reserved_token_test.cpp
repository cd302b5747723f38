// A lease whose next token is promised to a waiter: which session gets it, which does not, and what
// a crash of the server leaves of it. PostgreSQL only. Open transactions and hooks force the
// orders. The crashes are real: the tests start a server that writes its log late.

#include "lock/client/reap_round.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using namespace std::string_view_literals;
using protocol::attempt;
using protocol::handed_over;
using protocol::next_waiter;
using support::backend;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;
using support::waiting_for_rows;

namespace {

/// The queue of "job". Session n has the grant ids that begin with n.
class job_queue : public support::protocol_connection {
public:
    explicit job_queue(const sql::connection_source& source) : protocol_connection{source} {}
    explicit job_queue(const support::lock_database& database)
        : protocol_connection{database}, prefix_{database.prefix()} {}

    /// Adds an entry with a given ticket, as an enqueue that stalled after drawing it does.
    void enqueue_late(session_id session, grant_id grant_id, ticket_no ticket) const {
        run("insert into " + prefix_ +
            "ticket (name, session, grant_id, ticket, enqueued_at) overriding system value "
            "values ('job', " +
            to_string(session) + ", " + to_string(grant_id) + ", " + to_string(ticket) +
            ", clock_timestamp())");
    }
    [[nodiscard]] std::int64_t of_lease(const std::string& column) const {
        return number("select " + column + " from " + prefix_ + "lock where name = 'job'");
    }
    /// Deletes the promise.
    void forget_promise() const { run("update " + prefix_ + "lock set successor = null"); }

private:
    std::string prefix_ = "rowlock_";
};

/// Session 2 holds "job" by its grant 22, and has settled it: the next token is promised, durably,
/// to grant 33 of session 3. Grant 44 of session 4 waits behind that. Session 1 held it before.
struct promise {
    explicit promise(const job_queue& by) : hand{by} {
        for (const std::int64_t id : {1, 2, 3, 4, 5}) {
            hand.open(session_id{id}, {.owner = "owner " + std::to_string(id), .ttl = 60s});
        }
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{11}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{33});
        const auto first = hand.confirm_and_read_next("job", session_id{1}, grant_id{11}, false);
        REQUIRE(first);
        REQUIRE(first->next);
        CHECK_FALSE(first->next->promised);
        CHECK(first->next->grant_id == grant_id{22});
        REQUIRE(hand.hand_over_to("job", session_id{1}, grant_id{11}, *first->next));
        hand.enqueue("job", session_id{4}, grant_id{44});
        const auto second = hand.confirm_and_read_next("job", session_id{2}, grant_id{22}, false);
        REQUIRE(second);
        token = second->granted.token;
        next = second->next.value();
        REQUIRE(next.promised);
        REQUIRE(next.grant_id == grant_id{33});
        REQUIRE(next.after == grant_id{44});
        REQUIRE(hand.of_lease("successor") == 33);
    }
    /// Grant 44 gets a ticket that is lower than that of 33.
    void let_44_come_first() const {
        REQUIRE(hand.cancel({grant_id{44}}).size() == 1);
        hand.enqueue_late(session_id{4}, grant_id{44},
                          ticket_no{static_cast<std::int64_t>(next.ticket) - 1});
    }

    const job_queue& hand;
    std::int64_t token = 0;
    next_waiter next;
};

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

}  // namespace

// --- which waiter is served

TEST_CASE(
    "a promise precedes a lower ticket on every path; control: without the promise it does not") {
    for (const auto* how : {"by a release", "by grant_next", "by a hand_over_to"}) {
        for (const bool promised : {true, false}) {
            CAPTURE(how);
            CAPTURE(promised);
            support::lock_database database{backend::postgresql};
            if (!database.there()) return;
            const job_queue hand{database};
            const promise at{hand};
            at.let_44_come_first();
            if (!promised) hand.forget_promise();
            std::optional<handed_over> served;
            if (how == "by a release"sv) {
                served = hand.release("job", session_id{2}, grant_id{22}).next;
            } else if (how == "by grant_next"sv) {
                hand.end(session_id{2});
                served = hand.grant_next("job");
            } else {
                served =
                    hand.hand_over_to("job", session_id{2}, grant_id{22},
                                      hand.confirm_and_read_next("job", session_id{2}, grant_id{22})
                                          .value()
                                          .next.value());
            }
            REQUIRE(served);
            CHECK(served->grant_id == grant_id{promised ? 33 : 44});
            CHECK(served->token == at.token + 1);
        }
    }
}

TEST_CASE("tickets are served in order, each promise goes to the next of them") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    for (std::int64_t id = 1; id <= 9; ++id) hand.open(session_id{id});
    REQUIRE(hand.acquire("job", session_id{1}, grant_id{11}).what == attempt::outcome::granted);
    for (std::int64_t id = 2; id <= 9; ++id) hand.enqueue("job", session_id{id}, grant_id{id * 11});
    std::int64_t token = hand.of_lease("token");
    for (std::int64_t id = 1; id < 9; ++id) {
        const auto seen = hand.confirm_and_read_next("job", session_id{id}, grant_id{id * 11})
                              .value()
                              .next.value();
        CHECK(seen.promised == (id > 1));
        const auto given = hand.hand_over_to("job", session_id{id}, grant_id{id * 11}, seen);
        REQUIRE(given);
        CHECK(given->grant_id == grant_id{(id + 1) * 11});
        CHECK(given->token == ++token);
    }
    CHECK_FALSE(hand.confirm_and_read_next("job", session_id{9}, grant_id{99}).value().next);
}

namespace {

/// Returns the token of the grant that follows in this way after the promised waiter has gone.
std::int64_t token_of_another(const job_queue& hand, std::string_view how) {
    if (how == "released to the next") {
        const auto served = hand.release("job", session_id{2}, grant_id{22}).next.value();
        CHECK(served.grant_id == grant_id{44});
        return served.token;
    }
    if (how == "passed on to the next") {
        const auto seen =
            hand.confirm_and_read_next("job", session_id{2}, grant_id{22}).value().next.value();
        CHECK(seen.grant_id == grant_id{44});
        CHECK_FALSE(seen.promised);
        return hand.hand_over_to("job", session_id{2}, grant_id{22}, seen).value().token;
    }
    if (how == "taken by a newcomer") {
        REQUIRE(hand.cancel({grant_id{44}}).size() == 1);
        CHECK_FALSE(hand.release("job", session_id{2}, grant_id{22}).next);
        return hand.acquire("job", session_id{5}, grant_id{55}).token;
    }
    if (how == "reclaimed by the owner") {
        REQUIRE(
            hand.leases().reclaim(hand.db(), "owner 2", session_id{5}, {}, soon()).value().size() ==
            1);
        CHECK(hand.of_lease("session") == 5);
        return hand.of_lease("token");
    }
    hand.end(session_id{2});
    if (how == "taken by a barging acquire")
        return hand.acquire("job", session_id{5}, grant_id{55}, {.barging = true}).token;
    return hand.grant_next("job").value().token;
}

}  // namespace

// shows: promised-tokens
TEST_CASE("every other grant skips the promised token; control: without the promise it does not") {
    for (const auto* how :
         {"released to the next", "passed on to the next", "taken by a newcomer",
          "reclaimed by the owner", "taken by a barging acquire", "served by grant_next"}) {
        for (const int variant : {0, 1, 2}) {
            CAPTURE(how);
            CAPTURE(variant);
            support::lock_database database{backend::postgresql};
            if (!database.there()) return;
            const job_queue hand{database};
            const promise at{hand};
            if (variant == 0) {
                hand.end(session_id{3});
            } else {
                REQUIRE(hand.cancel({grant_id{33}}).size() == 1);
            }
            const bool promised = variant != 2;
            if (!promised) hand.forget_promise();
            CHECK(token_of_another(hand, how) == at.token + (promised ? 2 : 1));
            CHECK(hand.of_lease("successor") == 0);
        }
    }
}

// shows: promised-tokens
TEST_CASE(
    "no acquire overtakes the promised waiter, not even a barging one: the lease counts as held") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    hand.end(session_id{2});
    for (const bool barging : {false, true}) {
        const auto tried = hand.acquire("job", session_id{5}, grant_id{55}, {.barging = barging});
        CHECK(tried.what == attempt::outcome::held);
        CHECK(tried.seen.free);
        CHECK(tried.seen.promised);
    }
    client barging{database.source(), database.options()};
    CHECK_FALSE(barging.try_acquire_for("job", 300ms, {.queueing = queueing::barging}));
    CHECK_FALSE(barging.try_acquire("job", {.queueing = queueing::barging}));
    CHECK(hand.of_lease("token") == at.token);
    // Control: without the promise a barging try succeeds.
    hand.forget_promise();
    CHECK(barging.try_acquire("job", {.queueing = queueing::barging}));
}

TEST_CASE(
    "an entry behind the watermark gets no promise; control: a promise to it stops the queue") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    for (const std::int64_t id : {1, 2, 3, 4, 5}) hand.open(session_id{id});
    REQUIRE(hand.acquire("job", session_id{1}, grant_id{11}).what == attempt::outcome::granted);
    hand.enqueue_late(session_id{2}, grant_id{22}, ticket_no{1000});
    hand.enqueue_late(session_id{3}, grant_id{33}, ticket_no{2000});
    REQUIRE(hand.hand_over_to(
        "job", session_id{1}, grant_id{11},
        hand.confirm_and_read_next("job", session_id{1}, grant_id{11}).value().next.value()));
    hand.enqueue_late(session_id{4}, grant_id{44}, ticket_no{1001});  // commits only now
    hand.enqueue_late(session_id{5}, grant_id{55}, ticket_no{2001});
    auto next = hand.confirm_and_read_next("job", session_id{2}, grant_id{22}).value().next.value();
    REQUIRE(next.grant_id == grant_id{33});
    SUBCASE("without a promise") {
        CHECK_FALSE(next.after);
        REQUIRE(hand.hand_over_to("job", session_id{2}, grant_id{22}, next));
        hand.end(session_id{3});
        CHECK(hand.grant_next("job").value().grant_id == grant_id{55});
    }
    SUBCASE("a promise would be kept: it is found by its grant id") {
        next.after = grant_id{44};
        REQUIRE(hand.hand_over_to("job", session_id{2}, grant_id{22}, next));
        hand.end(session_id{3});
        CHECK(hand.grant_next("job").value().grant_id == grant_id{44});
    }
}

TEST_CASE(
    "a lease that is released by force goes to the promised waiter, and no token is granted "
    "twice") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    REQUIRE(hand.force_release("job"));
    CHECK_FALSE(hand.hand_over_to("job", session_id{2}, grant_id{22}, at.next));
    CHECK_FALSE(hand.confirm_and_read_next("job", session_id{2}, grant_id{22}));
    SUBCASE("the promised waiter") {
        const auto served = hand.grant_next("job").value();
        CHECK(served.grant_id == grant_id{33});
        CHECK(served.token > at.token + 1);
    }
    SUBCASE("another waiter") {
        REQUIRE(hand.cancel({grant_id{33}}).size() == 1);
        const auto served = hand.grant_next("job").value();
        CHECK(served.grant_id == grant_id{44});
        CHECK(served.token > at.token + 1);
    }
}

TEST_CASE("a row with a promise that the reaper deletes never grants the promised token") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    REQUIRE(hand.cancel({grant_id{33}}).size() == 1);
    REQUIRE(hand.cancel({grant_id{44}}).size() == 1);
    CHECK_FALSE(hand.release("job", session_id{2}, grant_id{22}).next);
    bool promised = true;
    SUBCASE("a promise") {}
    SUBCASE("control: none") {
        promised = false;
        hand.forget_promise();
    }
    auto reaping = database.reaping(0ms, 0ms);
    reaping.statement_timeout = 5s;
    for (int i = 0; i < 3; ++i) {
        detail::reap_round(hand.db(), hand.statements(), reaping);
    }
    REQUIRE(hand.number("select count(*) from " + database.prefix() + "lock") == 0);
    CHECK(hand.acquire("job", session_id{5}, grant_id{55}).token == at.token + (promised ? 2 : 1));
}

// --- races

TEST_CASE("a hand-over to a waiter that cancels meanwhile happens as a whole or not at all") {
    ROWLOCK_FOR_EACH_BACKEND(database, backend::postgresql, backend::soci_postgresql) {
        for (const bool commits : {true, false}) {
            CAPTURE(commits);
            support::lock_database fresh{database.which()};
            const job_queue hand{fresh};
            const job_queue blocker{fresh};
            const promise at{hand};
            blocker.run("begin");
            REQUIRE(blocker.cancel({grant_id{33}}).size() == 1);
            auto passing = in_background(
                [&] { return hand.hand_over_to("job", session_id{2}, grant_id{22}, at.next); });
            REQUIRE(waiting_for_rows(fresh, 1));
            blocker.run(commits ? "commit" : "rollback");
            const auto given = passing.get();
            CHECK(given.has_value() == !commits);
            CHECK(hand.of_lease("grant_id") == (commits ? 22 : 33));
            CHECK(hand.of_lease("token") == at.token + (commits ? 0 : 1));
            CHECK(hand.of_lease("successor") == (commits ? 33 : 44));
            if (!commits) continue;
            // The release that follows serves the next waiter, with a token above the promised one.
            const auto next = hand.release("job", session_id{2}, grant_id{22}).next.value();
            CHECK(next.grant_id == grant_id{44});
            CHECK(next.token == at.token + 2);
        }
    }
}

TEST_CASE("a release or grant_next checks the promised waiter again if it cancels meanwhile") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const job_queue blocker{database};
    const promise at{hand};
    bool releases = true;
    SUBCASE("a release, then grant_next") {}
    SUBCASE("grant_next") {
        releases = false;
        hand.end(session_id{2});
    }
    blocker.run("begin");
    REQUIRE(blocker.cancel({grant_id{33}}).size() == 1);
    auto serving = in_background([&] {
        auto served = releases ? hand.release("job", session_id{2}, grant_id{22}).next
                               : hand.grant_next("job");
        return served ? served : hand.grant_next("job");
    });
    REQUIRE(waiting_for_rows(database, 1));
    blocker.run("commit");
    const auto served = serving.get().value();
    CHECK(served.grant_id == grant_id{44});
    CHECK(served.token == at.token + 2);
}

TEST_CASE("a former holder can neither pass on nor settle a lease that changed hands") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const job_queue blocker{database};
    const promise at{hand};
    blocker.run("begin");
    SUBCASE("by force") {
        blocker.run("update " + database.prefix() +
                    "lock set session = null, grant_id = null, token = token + 1");
    }
    SUBCASE("by a release of its own") {
        REQUIRE(blocker.release("job", session_id{2}, grant_id{22}).next);
    }
    auto passing = in_background(
        [&] { return hand.hand_over_to("job", session_id{2}, grant_id{22}, at.next); });
    REQUIRE(waiting_for_rows(database, 1));
    blocker.run("commit");
    CHECK_FALSE(passing.get());
    CHECK_FALSE(hand.confirm_and_read_next("job", session_id{2}, grant_id{22}));
    CHECK(hand.of_lease("token") == at.token + 1);
}

// shows: promised-tokens
TEST_CASE("settling revives no session, and keeps what a concurrent heartbeat writes") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const job_queue other{database};
    const promise at{hand};
    const std::string session = database.prefix() + "session";
    SUBCASE("ended") {
        hand.end(session_id{2});
        static_cast<void>(hand.confirm_and_read_next("job", session_id{2}, grant_id{22}));
        CHECK_FALSE(hand.is_live(session_id{2}));
    }
    SUBCASE("expired") {
        hand.run("update " + session + " set expires_at = clock_timestamp() - interval '1 s'");
        static_cast<void>(hand.confirm_and_read_next("job", session_id{2}, grant_id{22}));
        CHECK_FALSE(hand.is_live(session_id{2}));
        CHECK_FALSE(hand.heartbeat(session_id{2}));
    }
    SUBCASE("settling after a heartbeat, or after the end of the session") {
        for (const bool ends : {false, true}) {
            CAPTURE(ends);
            other.run("begin");
            if (ends) {
                other.end(session_id{2});
            } else {
                other.run("update " + session +
                          " set expires_at = expires_at + interval '1 hour', "
                          "revision = 7 where id = 2");
            }
            auto settling = in_background(
                [&] { return hand.confirm_and_read_next("job", session_id{2}, grant_id{22}); });
            REQUIRE(waiting_for_rows(database, 1));
            other.run("commit");
            CHECK(settling.get());
            CHECK(hand.is_live(session_id{2}) == !ends);
            CHECK(hand.number("select revision from " + session + " where id = 2") == 7);
            CHECK(hand.number("select (expires_at > clock_timestamp() + interval '30 min')::int "
                              "from " +
                              session + " where id = 2") == 1);
        }
    }
    SUBCASE("a heartbeat after settling") {
        other.run("begin");
        REQUIRE(other.confirm_and_read_next("job", session_id{2}, grant_id{22}));
        auto beating = in_background([&] { return hand.heartbeat(session_id{2}); });
        REQUIRE(waiting_for_rows(database, 1));
        other.run("commit");
        CHECK(beating.get());
    }
}

TEST_CASE("without its session's row a grant is not settled, and no promise is reported") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    hand.run("delete from " + database.prefix() + "session where id = 2");
    const auto settled = hand.confirm_and_read_next("job", session_id{2}, grant_id{22});
    REQUIRE(settled);
    CHECK_FALSE(settled->next.value().promised);
}

TEST_CASE("settling does not disturb a fence at REPEATABLE READ; control: a write does") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    const auto transaction = database.connect();
    const std::array<sql::value, 5> parameters{
        sql::value{std::string_view{"job"}}, sql::value{std::int64_t{2}}, sql::value{at.token},
        sql::value{std::int64_t{5000}}, sql::value{std::int64_t{5000}}};
    transaction->query("begin isolation level repeatable read", soon());
    transaction->query("select 1", soon());
    bool written = false;
    SUBCASE("settled before the fence") {
        REQUIRE(hand.confirm_and_read_next("job", session_id{2}, grant_id{22}));
    }
    SUBCASE("control: the row was written before the fence") {
        written = true;
        hand.run("update " + database.prefix() + "lock set changed_at = clock_timestamp()");
    }
    const auto fenced =
        kind_of([&] { transaction->execute(hand.statements()("fence"), parameters, soon()); });
    CHECK((fenced != errc{}) == written);
    if (written) {
        transaction->query("rollback", soon());
        return;
    }
    // Settling does not wait for the fence either.
    REQUIRE(hand.confirm_and_read_next("job", session_id{2}, grant_id{22}));
    transaction->query("commit", soon());
}

// --- the disk

TEST_CASE("only a hand-over to the promised waiter does not wait for the disk") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    // The setting that the statement makes until its commit is visible inside a transaction.
    const auto left = [&](const next_waiter& next, bool may_be_asynchronous) {
        hand.run("begin");
        REQUIRE(hand.hand_over_to("job", session_id{2}, grant_id{22}, next, may_be_asynchronous));
        const auto row = hand.db().query("show synchronous_commit", soon());
        hand.run("commit");
        return std::string{row.text(0, 0)};
    };
    const promise at{hand};
    SUBCASE("a promise") {
        CHECK(left(at.next, true) == "off");
    }
    SUBCASE("where another process may reclaim") {
        CHECK(left(at.next, false) == "on");
    }
    SUBCASE("no promise") {
        REQUIRE(hand.cancel({grant_id{33}}).size() == 1);
        CHECK(
            left(
                hand.confirm_and_read_next("job", session_id{2}, grant_id{22}).value().next.value(),
                true) == "on");
    }
}

namespace {

/// A server whose log reaches the disk only when a commit waits for it: the process that would
/// otherwise write it is stopped.
class late_server {
public:
    late_server()
        : server_{support::own_server::start(
              support::server::postgresql,
              {.arguments = {"-c", "autovacuum=off", "-c", "bgwriter_lru_maxpages=0"}})} {
        if (!server_) return;
        source_ = open(server_->url());
        migrate(*source_);
        stop_log_writer();
    }
    late_server(const late_server&) = delete;
    late_server& operator=(const late_server&) = delete;
    ~late_server() {
        if (log_writer_ > 0) kill(log_writer_, SIGCONT);  // otherwise the server would not stop
    }
    [[nodiscard]] bool there() const { return server_ != nullptr; }
    [[nodiscard]] const sql::connection_source& source() const { return *source_; }
    [[nodiscard]] std::unique_ptr<job_queue> hand() const {
        return std::make_unique<job_queue>(*source_);
    }
    /// Deletes all waiters, leases and sessions.
    void reset() const {
        const auto db = source_->connect(soon());
        for (const std::string table : {"ticket", "lock", "session"}) {
            db->query("delete from rowlock_" + table, soon());
        }
    }
    void crash_and_start() {
        // A stopped process obeys nothing else. Process 0 would be this process's whole group.
        if (log_writer_ > 0) kill(std::exchange(log_writer_, 0), SIGKILL);
        server_->crash();
        server_->start_again();
        stop_log_writer();
    }

private:
    void stop_log_writer() {
        const auto db = source_->connect(soon());
        const std::string_view find =
            "select pid::bigint from pg_stat_activity where backend_type = 'walwriter'";
        REQUIRE(eventually([&] { return db->query(find, soon()).rows() == 1; }));
        log_writer_ = static_cast<pid_t>(db->query(find, soon()).integer(0, 0));
        REQUIRE(kill(log_writer_, SIGSTOP) == 0);
    }

    std::unique_ptr<support::own_server> server_;
    std::optional<sql::connection_source> source_;
    pid_t log_writer_ = 0;
};

}  // namespace

// shows: promised-tokens
TEST_CASE(
    "after a crash that lost a hand-over only the promised waiter gets the lease, and its token") {
    late_server server;
    if (!server.there()) return;
    for (const auto* then :
         {"the client of the last holder releases again", "the last holder is dead",
          "the promised waiter is dead", "by force", "control: no promise"}) {
        CAPTURE(then);
        const std::string_view what{then};
        handed_over told{};
        server.reset();
        {
            const auto before = server.hand();
            const promise at{*before};
            at.let_44_come_first();
            // This commit waits for the disk, so the log so far is durable.
            before->run(
                "insert into rowlock_lock (name, token, changed_at) values ('x', 1, now())");
            told = before->hand_over_to("job", session_id{2}, grant_id{22}, at.next).value();
            CHECK(told.token == at.token + 1);
        }
        server.crash_and_start();
        const auto hand = server.hand();
        // The hand-over is lost: the previous holder has the lease, and the entry is back.
        REQUIRE(hand->of_lease("grant_id") == 22);
        REQUIRE(hand->number("select count(*) from rowlock_ticket where grant_id = 33") == 1);
        if (what == "the client of the last holder releases again") {
            const auto again = hand->release("job", session_id{2}, grant_id{22}).next.value();
            CHECK(again.grant_id == told.grant_id);
            CHECK(again.token == told.token);
        } else if (what == "the last holder is dead") {
            hand->end(session_id{2});
            for (const bool barging : {false, true}) {
                CHECK(
                    hand->acquire("job", session_id{5}, grant_id{55}, {.barging = barging}).what ==
                    attempt::outcome::held);
            }
            const auto again = hand->grant_next("job").value();
            CHECK(again.grant_id == told.grant_id);
            CHECK(again.token == told.token);
        } else if (what == "the promised waiter is dead") {  // and its token is not granted again
            hand->end(session_id{3});
            const auto other = hand->release("job", session_id{2}, grant_id{22}).next.value();
            CHECK(other.grant_id == grant_id{44});
            CHECK(other.token == told.token + 1);
        } else if (what == "by force") {
            REQUIRE(hand->force_release("job"));
            CHECK(hand->acquire("job", session_id{5}, grant_id{55}, {.barging = true}).what ==
                  attempt::outcome::held);
            CHECK(hand->grant_next("job").value().grant_id == told.grant_id);
        } else {  // another waiter gets the lease with the same token
            hand->forget_promise();
            const auto other = hand->release("job", session_id{2}, grant_id{22}).next.value();
            CHECK(other.grant_id == grant_id{44});
            CHECK(other.token == told.token);
        }
    }
}

// shows: promised-tokens
TEST_CASE(
    "a hand-over without a settled promise waits for the disk; control: one that does not is "
    "lost") {
    late_server server;
    if (!server.there()) return;
    enum class variant : unsigned char { settled, not_promised, control_believed };
    for (const auto which : {variant::settled, variant::not_promised, variant::control_believed}) {
        CAPTURE(which);
        server.reset();
        std::int64_t token = 0;
        {
            const auto hand = server.hand();
            const promise at{*hand};
            token = at.token;
            REQUIRE(hand->hand_over_to("job", session_id{2}, grant_id{22},
                                       at.next));  // not on disk: granted to 33, promised to 44
            next_waiter seen{.ticket = ticket_no{static_cast<std::int64_t>(at.next.ticket) + 1},
                             .session = session_id{4},
                             .grant_id = grant_id{44},
                             .alive = 60s,
                             .promised = which == variant::control_believed};
            if (which == variant::settled) {
                seen = hand->confirm_and_read_next("job", session_id{3}, grant_id{33})
                           .value()
                           .next.value();
                REQUIRE(seen.grant_id == grant_id{44});
                REQUIRE(seen.promised);
            }
            CHECK(hand->hand_over_to("job", session_id{3}, grant_id{33}, seen).value().token ==
                  token + 2);
        }
        server.crash_and_start();
        const auto hand = server.hand();
        if (which == variant::settled) {  // the promise is durable, and kept
            CHECK(hand->of_lease("grant_id") == 33);
            CHECK(hand->of_lease("successor") == 44);
            hand->end(session_id{4});
            hand->enqueue("job", session_id{5}, grant_id{55});
            CHECK(hand->release("job", session_id{3}, grant_id{33}).next.value().token ==
                  token + 3);
        } else if (which == variant::not_promised) {  // the hand-over is durable
            CHECK(hand->of_lease("grant_id") == 44);
            CHECK(hand->of_lease("token") == token + 2);
        } else {  // both are lost: another session gets the token that 44 had
            REQUIRE(hand->of_lease("grant_id") == 22);
            hand->end(session_id{3});
            hand->end(session_id{4});
            hand->enqueue("job", session_id{5}, grant_id{55});
            CHECK(hand->release("job", session_id{2}, grant_id{22}).next.value().token ==
                  token + 2);
        }
    }
}

// --- clients

namespace {

/// A client whose statements of some kinds can be held back.
class kept_client {
public:
    explicit kept_client(const sql::connection_source& source)
        : client_{std::in_place, network_.wrap(source),
                  client_options{.ttl = 5min, .poll_interval = 10s}} {
        network_.before([this](std::string_view what) {
            if (!is_kept(what)) return;
            ++waiting_;
            eventually([&] { return !is_kept(what); }, 30s);
            --waiting_;
        });
        network_.after([this](std::string_view what) {
            if (what == "confirm_and_read_next") ++settled_;
            if (what == "hand_over_to") ++passed_on_;
            std::function<void()> action;
            {
                const std::lock_guard lock{mutex_};
                if (what == step_) action = std::exchange(action_, {});
            }
            if (action) action();
        });
    }
    ~kept_client() { let_go(); }
    kept_client(const kept_client&) = delete;
    kept_client& operator=(const kept_client&) = delete;

    void keep(std::vector<std::string> what) {
        const std::lock_guard lock{mutex_};
        kept_ = std::move(what);
    }
    void let_go() { keep({}); }
    /// Runs the action once, after the next statement `what`.
    void step_in_after(std::string what, std::function<void()> action) {
        const std::lock_guard lock{mutex_};
        step_ = std::move(what);
        action_ = std::move(action);
    }
    [[nodiscard]] bool is_waiting() {
        return eventually([&] { return waiting_ > 0; }, 2s);
    }
    [[nodiscard]] int settled() const { return settled_; }
    [[nodiscard]] int passed_on() const { return passed_on_; }
    client* operator->() { return &*client_; }

private:
    bool is_kept(std::string_view what) {
        const std::lock_guard lock{mutex_};
        return std::ranges::find(kept_, what) != kept_.end();
    }

    std::mutex mutex_;
    std::vector<std::string> kept_;
    std::string step_;
    std::function<void()> action_;
    std::atomic<int> waiting_{0}, settled_{0}, passed_on_{0};
    interception network_;
    std::optional<client> client_;
};

/// The statements that would detect that a grant is not in the table.
const std::vector<std::string> doubts{"confirm_and_read_next", "session_leases"};
/// Those, and the statement that would find its queue entry, to be cancelled.
const std::vector<std::string> all_doubts{"confirm_and_read_next", "session_leases", "entries"};
/// The statement that leads to a second release of what a crash has brought back.
const std::vector<std::string> repairs{"session_leases"};

/// Client b hands over to c without waiting for the disk. c knows of its grant and has not settled
/// it when the server crashes.
struct crashed_hand_over {
    explicit crashed_hand_over(bool released = false) {
        if (!server.there()) return;
        a.emplace(server.source());
        b.emplace(server.source());
        c.emplace(server.source());
        before.emplace(server.source(), client_options{.ttl = 5min});
        // A waiter may find its grant by a poll, and the release may precede the client's note of a
        // settling that was answered: then the hand-over waits for the disk, and the round is
        // repeated.
        for (int tries = 0; !passes_on() || !is_lost_in_crash(released); ++tries) {
            REQUIRE(tries < 20);
            c->let_go();
            b->let_go();
            lease->release();
            REQUIRE(free_and_empty(*server.hand()));
        }
        REQUIRE(hand->number("select count(*) from rowlock_ticket") == 1);
    }

    /// Passes the lease round. Returns whether a passed it on to b with a promise to c, and b to c,
    /// which knows of its grant and cannot confirm_and_read_next it.
    [[nodiscard]] bool passes_on() {
        const int passed_by_a = (*a).passed_on();
        const int passed_by_b = (*b).passed_on();
        const int settled_by_a = (*a).settled();
        const int settled_by_b = (*b).settled();
        auto held = (*before).acquire("job");
        auto first = waiting(*a, 1);
        auto second = waiting(*b, 2);
        auto reserved = waiting(*c, 3);
        c->keep(doubts);
        held.release();
        auto of_a = first.get().value();
        // A waiter that finds its grant by a poll settles nothing, which makes this round useless.
        eventually([&] { return a->settled() > settled_by_a; }, 1s);
        of_a.release();
        auto of_b = second.get().value();
        eventually([&] { return b->settled() > settled_by_b; }, 1s);
        b->keep(repairs);
        of_b.release();
        lease = reserved.get();
        REQUIRE(lease);
        CHECK(lease->held());
        return a->passed_on() > passed_by_a && b->passed_on() > passed_by_b && c->is_waiting();
    }

    [[nodiscard]] bool is_lost_in_crash(bool released) {
        if (released) {
            c->keep(all_doubts);
            lease->release();
            REQUIRE(server.hand()->of_lease("session") == 0);
        }
        server.crash_and_start();
        hand = server.hand();
        return hand->of_lease("token") < lease->token().value();
    }

    [[nodiscard]] std::future<std::optional<rowlock::lease>> waiting(kept_client& who,
                                                                     std::int64_t places) const {
        auto result = in_background([&] { return who->try_acquire_for("job", support::patience); });
        const auto look = server.hand();
        CHECK(eventually(
            [&] { return look->number("select count(*) from rowlock_ticket") == places; }));
        return result;
    }
    [[nodiscard]] static bool free_and_empty(const job_queue& look) {
        return eventually([&] {
            return look.number(
                       "select (select count(*) from rowlock_ticket) + (select count(*) "
                       "from rowlock_lock where session is not null)") == 0;
        });
    }
    [[nodiscard]] bool free_and_empty() const { return free_and_empty(*hand); }

    late_server server;
    std::optional<kept_client> a, b, c;
    std::optional<client> before;
    std::optional<rowlock::lease> lease;
    std::unique_ptr<job_queue> hand;
};

}  // namespace

// shows: promised-tokens
TEST_CASE("a waiter whose hand-over a crash lost keeps the lease if it is granted again") {
    crashed_hand_over at;
    if (!at.server.there()) return;
    client other{at.server.source(), {}};
    CHECK_FALSE(other.try_acquire("job", {.queueing = queueing::barging}));
    at.b->let_go();  // b finds the row that it had released
    REQUIRE(eventually([&] { return at.hand->of_lease("token") == at.lease->token().value(); }));
    const int settled = at.c->settled();
    at.c->let_go();
    REQUIRE(eventually([&] { return at.c->settled() > settled; }));
    CHECK(at.lease->held());
    CHECK_FALSE(other.try_acquire("job", {.queueing = queueing::barging}));
    at.lease->release();
    CHECK(at.free_and_empty());
    CHECK(other.try_acquire("job"));
}

// shows: promised-tokens
TEST_CASE(
    "a waiter that detects first that a crash lost its hand-over loses the lease, and the queue "
    "goes on") {
    crashed_hand_over at;
    if (!at.server.there()) return;
    at.c->let_go();
    REQUIRE(eventually([&] { return !at.lease->held(); }));
    CHECK(kind_of([&] { at.lease->release(); }) == errc::lock_lost);
    CHECK(eventually([&] { return at.hand->number("select count(*) from rowlock_ticket") == 0; }));
    at.b->let_go();
    CHECK(at.free_and_empty());
    client other{at.server.source(), {}};
    const auto next = other.try_acquire_for("job", 10s);
    REQUIRE(next);
    CHECK(next->token() > at.lease->token());
}

TEST_CASE("a queue entry that a crash brought back after its release blocks no waiter") {
    crashed_hand_over at{true};
    if (!at.server.there()) return;
    // The client compares its leases with the table while the entry is granted.
    const auto serve = [&] {
        const auto look = at.server.hand();
        at.b->let_go();
        CHECK(eventually([&] {
            return look->number("select count(*) from rowlock_ticket") == 0 ||
                   look->of_lease("token") == at.lease->token().value();
        }));
    };
    SUBCASE("after it has read its queue entries") {
        at.c->step_in_after("entries", serve);
    }
    SUBCASE("after it has read its leases") {
        at.c->step_in_after("session_leases", serve);
    }
    at.c->let_go();
    CHECK(at.free_and_empty());
    client other{at.server.source(), {}};
    const auto next = other.try_acquire_for("job", 10s);
    REQUIRE(next);
    CHECK(next->token() > at.lease->token());
}

// shows: promise-7
TEST_CASE(
    "a crash may lose a session with neither lease nor entry, and keeps no lease or entry without "
    "one") {
    late_server server;
    if (!server.there()) return;
    for (const bool with_lease : {false, true}) {
        CAPTURE(with_lease);
        server.reset();
        {
            const auto before = server.hand();
            before->open(session_id{7});
            before->enqueue("job", session_id{7}, grant_id{71});
            if (with_lease) {
                REQUIRE(
                    before->acquire("job", session_id{7}, grant_id{70}, {.barging = true}).what ==
                    attempt::outcome::granted);
            }
        }
        server.crash_and_start();
        const auto hand = server.hand();
        CHECK(hand->number("select count(*) from rowlock_session") == (with_lease ? 1 : 0));
        CHECK(hand->number("select count(*) from rowlock_ticket") == (with_lease ? 1 : 0));
        if (with_lease) CHECK(hand->of_lease("session") == 7);
    }
}

TEST_CASE("a release that a crash undid before the first heartbeat connects is repeated") {
    late_server server;
    if (!server.there()) return;
    client locks{server.source(), {.ttl = 6s}};
    locks.acquire("job").release();
    server.crash_and_start();
    const auto hand = server.hand();
    CHECK(support::eventually([&] {
        return hand->number("select count(*) from rowlock_lock where session is not null") == 0;
    }));
}

TEST_CASE("a client whose session a crash lost goes on in a new session") {
    late_server server;
    if (!server.there()) return;
    {
        const auto hand = server.hand();
        hand->open(session_id{7});
        REQUIRE(hand->acquire("job", session_id{7}, grant_id{70}).what ==
                attempt::outcome::granted);
    }
    client locks{server.source(), {}};
    CHECK_FALSE(locks.try_acquire("job"));  // opens the session and writes nothing else
    server.crash_and_start();
    REQUIRE(server.hand()->number("select count(*) from rowlock_session") == 1);
    const auto lease = locks.try_acquire_for("free", 20s);
    REQUIRE(lease);
    CHECK(lease->held());
    CHECK(locks.stats().sessions == 2);
    CHECK(server.hand()->number("select count(*) from rowlock_lock l join rowlock_session s "
                                "on s.id = l.session where l.name = 'free' and not s.ended") == 1);
}

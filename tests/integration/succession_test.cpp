// A lease whose next token is promised: who gets it, who does not, and what a crash of the server
// leaves of it. PostgreSQL only. Orders are forced by open transactions and by hooks, crashes are
// real ones of a server of our own that writes its log late.

#include "housekeeping/reaping.hpp"
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
using strategy::attempt;
using strategy::handed_over;
using strategy::next_in_line;
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

    /// An entry with a ticket of our choice, as by an enqueue that stalled after it had drawn it.
    void enqueue_late(std::int64_t session, std::int64_t grant_id, std::int64_t ticket) const {
        run("insert into " + prefix_ +
            "waiter (name, session, grant_id, ticket, enqueued_at) overriding system value "
            "values ('job', " +
            std::to_string(session) + ", " + std::to_string(grant_id) + ", " +
            std::to_string(ticket) + ", clock_timestamp())");
    }
    [[nodiscard]] std::int64_t of_lease(const std::string& column) const {
        return number("select " + column + " from " + prefix_ + "lease where name = 'job'");
    }
    /// As if there had been no such thing as a promise.
    void forget_promise() const { run("update " + prefix_ + "lease set successor = null"); }

private:
    std::string prefix_ = "rowlock_";
};

/// Session 2 holds "job" by its grant 22, and has settled it: the next token, on disk, is promised
/// to grant 33 of session 3. Behind that waits grant 44 of session 4. Session 1 had it before.
struct promise {
    explicit promise(const job_queue& by) : hand{by} {
        for (const std::int64_t id : {1, 2, 3, 4, 5}) {
            hand.open(id, {.owner = "owner " + std::to_string(id), .ttl = 60s});
        }
        REQUIRE(hand.acquire("job", 1, 11).what == attempt::outcome::granted);
        hand.enqueue("job", 2, 22);
        hand.enqueue("job", 3, 33);
        const auto first = hand.settle("job", 1, 11, false);
        REQUIRE(first);
        REQUIRE(first->next);
        CHECK_FALSE(first->next->promised);
        CHECK(first->next->grant_id == 22);
        REQUIRE(hand.pass_on("job", 1, 11, *first->next));
        hand.enqueue("job", 4, 44);
        const auto second = hand.settle("job", 2, 22, false);
        REQUIRE(second);
        token = second->granted.token;
        next = second->next.value();
        REQUIRE(next.promised);
        REQUIRE(next.grant_id == 33);
        REQUIRE(next.after == 44);
        REQUIRE(hand.of_lease("successor") == 33);
    }
    /// Grant 44 gets a ticket that is lower than that of 33.
    void let_44_come_first() const {
        REQUIRE(hand.cancel({44}).size() == 1);
        hand.enqueue_late(4, 44, next.ticket - 1);
    }

    const job_queue& hand;
    std::int64_t token = 0;
    next_in_line next;
};

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

}  // namespace

// --- who is served
// ----------------------------------------------------------------------------------

TEST_CASE("a promise is kept before a lower ticket, whoever serves; control: without it, not") {
    for (const auto* how : {"by a release", "by whoever looks", "by whom the holder saw"}) {
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
                served = hand.release("job", 2, 22).next;
            } else if (how == "by whoever looks"sv) {
                hand.end(2);
                served = hand.grant_next("job");
            } else {
                served = hand.pass_on("job", 2, 22, hand.settle("job", 2, 22).value().next.value());
            }
            REQUIRE(served);
            CHECK(served->grant_id == (promised ? 33 : 44));
            CHECK(served->token == at.token + 1);
        }
    }
}

TEST_CASE("tickets are served in their order, each promise to the next of them") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    for (std::int64_t id = 1; id <= 9; ++id) hand.open(id);
    REQUIRE(hand.acquire("job", 1, 11).what == attempt::outcome::granted);
    for (std::int64_t id = 2; id <= 9; ++id) hand.enqueue("job", id, id * 11);
    std::int64_t token = hand.of_lease("token");
    for (std::int64_t id = 1; id < 9; ++id) {
        const auto seen = hand.settle("job", id, id * 11).value().next.value();
        CHECK(seen.promised == (id > 1));
        const auto given = hand.pass_on("job", id, id * 11, seen);
        REQUIRE(given);
        CHECK(given->grant_id == (id + 1) * 11);
        CHECK(given->token == ++token);
    }
    CHECK_FALSE(hand.settle("job", 9, 99).value().next);
}

namespace {

/// The token of whoever gets the lease in this way, after its heir has gone.
std::int64_t token_of_another(const job_queue& hand, std::string_view how) {
    if (how == "released to the next") {
        const auto served = hand.release("job", 2, 22).next.value();
        CHECK(served.grant_id == 44);
        return served.token;
    }
    if (how == "passed on to the next") {
        const auto seen = hand.settle("job", 2, 22).value().next.value();
        CHECK(seen.grant_id == 44);
        CHECK_FALSE(seen.promised);
        return hand.pass_on("job", 2, 22, seen).value().token;
    }
    if (how == "taken by a newcomer") {
        REQUIRE(hand.cancel({44}).size() == 1);
        CHECK_FALSE(hand.release("job", 2, 22).next);
        return hand.acquire("job", 5, 55).token;
    }
    if (how == "reclaimed by the owner") {
        REQUIRE(hand.leases().reclaim(hand.db(), "owner 2", 5, soon()).value().size() == 1);
        CHECK(hand.of_lease("session") == 5);
        return hand.of_lease("token");
    }
    hand.end(2);
    if (how == "taken past the line") return hand.acquire("job", 5, 55, {.barging = true}).token;
    return hand.grant_next("job").value().token;
}

}  // namespace

// shows: promised-tokens
TEST_CASE("a promised token is left out for everybody else; control: without the promise, not") {
    for (const auto* how :
         {"released to the next", "passed on to the next", "taken by a newcomer",
          "reclaimed by the owner", "taken past the line", "served by whoever looks"}) {
        for (const int variant : {0, 1, 2}) {
            CAPTURE(how);
            CAPTURE(variant);
            support::lock_database database{backend::postgresql};
            if (!database.there()) return;
            const job_queue hand{database};
            const promise at{hand};
            if (variant == 0) {
                hand.end(3);
            } else {
                REQUIRE(hand.cancel({33}).size() == 1);
            }
            const bool promised = variant != 2;
            if (!promised) hand.forget_promise();
            CHECK(token_of_another(hand, how) == at.token + (promised ? 2 : 1));
            CHECK(hand.of_lease("successor") == 0);
        }
    }
}

// shows: promised-tokens
TEST_CASE("nobody passes the heir, not even who barges, and he is told that it is held") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    hand.end(2);
    for (const bool barging : {false, true}) {
        const auto tried = hand.acquire("job", 5, 55, {.barging = barging});
        CHECK(tried.what == attempt::outcome::held);
        CHECK(tried.seen.free);
        CHECK(tried.seen.promised);
    }
    client barging{database.source(), database.options()};
    CHECK_FALSE(barging.try_acquire_for("job", 300ms, {.queueing = queueing::barging}));
    CHECK_FALSE(barging.try_acquire("job", {.queueing = queueing::barging}));
    CHECK(hand.of_lease("token") == at.token);
    // Control: it is the promise that keeps it.
    hand.forget_promise();
    CHECK(barging.try_acquire("job", {.queueing = queueing::barging}));
}

TEST_CASE("a place that no look would find is promised nothing; control: it stops the queue") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    for (const std::int64_t id : {1, 2, 3, 4, 5}) hand.open(id);
    REQUIRE(hand.acquire("job", 1, 11).what == attempt::outcome::granted);
    hand.enqueue_late(2, 22, 1000);
    hand.enqueue_late(3, 33, 2000);
    REQUIRE(hand.pass_on("job", 1, 11, hand.settle("job", 1, 11).value().next.value()));
    hand.enqueue_late(4, 44, 1001);  // commits only now
    hand.enqueue_late(5, 55, 2001);
    auto next = hand.settle("job", 2, 22).value().next.value();
    REQUIRE(next.grant_id == 33);
    SUBCASE("as it is") {
        CHECK_FALSE(next.after);
        REQUIRE(hand.pass_on("job", 2, 22, next));
        hand.end(3);
        CHECK(hand.grant_next("job").value().grant_id == 55);
    }
    SUBCASE("control: promised all the same") {
        next.after = 44;
        REQUIRE(hand.pass_on("job", 2, 22, next));
        hand.end(3);
        CHECK_FALSE(hand.grant_next("job").has_value());
    }
}

TEST_CASE(
    "a lease that is taken by force goes to the heir all the same, and no token comes twice") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    REQUIRE(hand.force_release("job"));
    CHECK_FALSE(hand.pass_on("job", 2, 22, at.next));
    CHECK_FALSE(hand.settle("job", 2, 22));
    SUBCASE("the heir") {
        const auto served = hand.grant_next("job").value();
        CHECK(served.grant_id == 33);
        CHECK(served.token > at.token + 1);
    }
    SUBCASE("another") {
        REQUIRE(hand.cancel({33}).size() == 1);
        const auto served = hand.grant_next("job").value();
        CHECK(served.grant_id == 44);
        CHECK(served.token > at.token + 1);
    }
}

TEST_CASE("a row with a promise that the reaper deletes leaves the promised token used up") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    REQUIRE(hand.cancel({33}).size() == 1);
    REQUIRE(hand.cancel({44}).size() == 1);
    CHECK_FALSE(hand.release("job", 2, 22).next);
    bool promised = true;
    SUBCASE("a promise") {}
    SUBCASE("control: none") {
        promised = false;
        hand.forget_promise();
    }
    auto reaping = database.reaping(0ms, 0ms);
    reaping.statement_timeout = 5s;
    for (int i = 0; i < 3; ++i) {
        strategy::reap_round(hand.db(), hand.statements(), reaping);
    }
    REQUIRE(hand.number("select count(*) from " + database.prefix() + "lease") == 0);
    CHECK(hand.acquire("job", 5, 55).token == at.token + (promised ? 2 : 1));
}

// --- in each other's way
// ----------------------------------------------------------------------------

TEST_CASE("who gives up while the lease is passed on to him: all of it happens, or nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, backend::postgresql, backend::soci_postgresql) {
        for (const bool commits : {true, false}) {
            CAPTURE(commits);
            support::lock_database fresh{database.which()};
            const job_queue hand{fresh};
            const job_queue blocker{fresh};
            const promise at{hand};
            blocker.run("begin");
            REQUIRE(blocker.cancel({33}).size() == 1);
            auto passing = in_background([&] { return hand.pass_on("job", 2, 22, at.next); });
            REQUIRE(waiting_for_rows(fresh, 1));
            blocker.run(commits ? "commit" : "rollback");
            const auto given = passing.get();
            CHECK(given.has_value() == !commits);
            CHECK(hand.of_lease("grant_id") == (commits ? 22 : 33));
            CHECK(hand.of_lease("token") == at.token + (commits ? 0 : 1));
            CHECK(hand.of_lease("successor") == (commits ? 33 : 44));
            if (!commits) continue;
            // The release that follows serves the next, with a token beyond.
            const auto next = hand.release("job", 2, 22).next.value();
            CHECK(next.grant_id == 44);
            CHECK(next.token == at.token + 2);
        }
    }
}

TEST_CASE("who looks judges the heir again if he gives up meanwhile") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const job_queue blocker{database};
    const promise at{hand};
    bool releases = true;
    SUBCASE("a release, and a look after it") {}
    SUBCASE("a look") {
        releases = false;
        hand.end(2);
    }
    blocker.run("begin");
    REQUIRE(blocker.cancel({33}).size() == 1);
    auto serving = in_background([&] {
        auto served = releases ? hand.release("job", 2, 22).next : hand.grant_next("job");
        return served ? served : hand.grant_next("job");
    });
    REQUIRE(waiting_for_rows(database, 1));
    blocker.run("commit");
    const auto served = serving.get().value();
    CHECK(served.grant_id == 44);
    CHECK(served.token == at.token + 2);
}

TEST_CASE("a lease that changed hands is neither passed on nor settled by its last holder") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const job_queue blocker{database};
    const promise at{hand};
    blocker.run("begin");
    SUBCASE("by force") {
        blocker.run("update " + database.prefix() +
                    "lease set session = null, grant_id = null, token = token + 1");
    }
    SUBCASE("by a release of its own") {
        REQUIRE(blocker.release("job", 2, 22).next);
    }
    auto passing = in_background([&] { return hand.pass_on("job", 2, 22, at.next); });
    REQUIRE(waiting_for_rows(database, 1));
    blocker.run("commit");
    CHECK_FALSE(passing.get());
    CHECK_FALSE(hand.settle("job", 2, 22));
    CHECK(hand.of_lease("token") == at.token + 1);
}

// shows: promised-tokens
TEST_CASE("settling revives no session, and leaves alone what a heartbeat writes meanwhile") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const job_queue other{database};
    const promise at{hand};
    const std::string session = database.prefix() + "session";
    SUBCASE("ended") {
        hand.end(2);
        static_cast<void>(hand.settle("job", 2, 22));
        CHECK_FALSE(hand.is_live(2));
    }
    SUBCASE("expired") {
        hand.run("update " + session + " set expires_at = clock_timestamp() - interval '1 s'");
        static_cast<void>(hand.settle("job", 2, 22));
        CHECK_FALSE(hand.is_live(2));
        CHECK_FALSE(hand.heartbeat(2));
    }
    SUBCASE("behind a heartbeat, or the end of the session") {
        for (const bool ends : {false, true}) {
            CAPTURE(ends);
            other.run("begin");
            if (ends) {
                other.end(2);
            } else {
                other.run("update " + session +
                          " set expires_at = expires_at + interval '1 hour', "
                          "revision = 7 where id = 2");
            }
            auto settling = in_background([&] { return hand.settle("job", 2, 22); });
            REQUIRE(waiting_for_rows(database, 1));
            other.run("commit");
            CHECK(settling.get());
            CHECK(hand.is_live(2) == !ends);
            CHECK(hand.number("select revision from " + session + " where id = 2") == 7);
            CHECK(hand.number("select (expires_at > clock_timestamp() + interval '30 min')::int "
                              "from " +
                              session + " where id = 2") == 1);
        }
    }
    SUBCASE("a heartbeat behind a settling") {
        other.run("begin");
        REQUIRE(other.settle("job", 2, 22));
        auto beating = in_background([&] { return hand.heartbeat(2); });
        REQUIRE(waiting_for_rows(database, 1));
        other.run("commit");
        CHECK(beating.get());
    }
}

TEST_CASE("without its session's row a grant is not settled, and no promise is told") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    const promise at{hand};
    hand.run("delete from " + database.prefix() + "session where id = 2");
    const auto settled = hand.settle("job", 2, 22);
    REQUIRE(settled);
    CHECK_FALSE(settled->next.value().promised);
}

TEST_CASE("a fence at REPEATABLE READ is not disturbed by a settling; control: by a write it is") {
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
    SUBCASE("settled meanwhile") {
        REQUIRE(hand.settle("job", 2, 22));
    }
    SUBCASE("control: the row was written meanwhile") {
        written = true;
        hand.run("update " + database.prefix() + "lease set changed_at = clock_timestamp()");
    }
    const auto fenced =
        kind_of([&] { transaction->execute(hand.statements()("fence"), parameters, soon()); });
    CHECK((fenced != errc{}) == written);
    if (written) {
        transaction->query("rollback", soon());
        return;
    }
    // Nor does a settling wait for the fence.
    REQUIRE(hand.settle("job", 2, 22));
    transaction->query("commit", soon());
}

// --- the disk
// ---------------------------------------------------------------------------------------

TEST_CASE("only a promise that was kept is passed on without waiting for the disk") {
    support::lock_database database{backend::postgresql};
    if (!database.there()) return;
    const job_queue hand{database};
    // What the statement leaves set until its commit shows inside a transaction.
    const auto left = [&](const next_in_line& next, bool may_be_asynchronous) {
        hand.run("begin");
        REQUIRE(hand.pass_on("job", 2, 22, next, may_be_asynchronous));
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
        REQUIRE(hand.cancel({33}).size() == 1);
        CHECK(left(hand.settle("job", 2, 22).value().next.value(), true) == "on");
    }
}

namespace {

/// A server whose log reaches the disk ten seconds late, unless somebody waits for it.
class late_server {
public:
    late_server() : server_{support::own_server::start(support::server::postgresql)} {
        if (!server_) return;
        source_ = open(server_->url());
        const auto db = source_->connect(soon());
        db->query("alter system set wal_writer_delay = '10s'", soon());
        db->query("alter system set wal_writer_flush_after = '1GB'", soon());
        db->query("alter system set autovacuum = off", soon());
        db->query("select pg_reload_conf()", soon());
        migrate(*source_);
    }
    [[nodiscard]] bool there() const { return server_ != nullptr; }
    [[nodiscard]] const sql::connection_source& source() const { return *source_; }
    [[nodiscard]] std::unique_ptr<job_queue> hand() const {
        return std::make_unique<job_queue>(*source_);
    }
    /// Nobody holds anything, nobody waits.
    void reset() const {
        const auto db = source_->connect(soon());
        for (const std::string table : {"waiter", "lease", "session"}) {
            db->query("delete from rowlock_" + table, soon());
        }
    }
    void crash_and_start() const {
        server_->crash();
        server_->start_again();
    }

private:
    std::unique_ptr<support::own_server> server_;
    std::optional<sql::connection_source> source_;
};

}  // namespace

// shows: promised-tokens
TEST_CASE("a crash that loses a hand-over: nobody but the heir gets the lease, nobody his token") {
    const late_server server;
    if (!server.there()) return;
    for (const auto* then :
         {"the client of the last holder releases again", "the last holder is dead",
          "the heir is dead", "by force", "control: as if nothing had been promised"}) {
        CAPTURE(then);
        const std::string_view what{then};
        handed_over told{};
        std::unique_ptr<job_queue> hand;
        // The server writes its log every ten seconds: once in a while just then.
        for (int attempt = 0; attempt < 5; ++attempt) {
            server.reset();
            {
                const auto before = server.hand();
                const promise at{*before};
                at.let_44_come_first();
                // A commit that waits: all of it so far is on disk.
                before->run(
                    "insert into rowlock_lease (name, token, changed_at) values ('x', 1, now())");
                told = before->pass_on("job", 2, 22, at.next).value();
                CHECK(told.token == at.token + 1);
            }
            server.crash_and_start();
            hand = server.hand();
            if (hand->of_lease("grant_id") == 22) break;
        }
        // It was lost indeed: the holder before has it, and the place is back.
        REQUIRE(hand->of_lease("grant_id") == 22);
        REQUIRE(hand->number("select count(*) from rowlock_waiter where grant_id = 33") == 1);
        if (what == "the client of the last holder releases again") {
            const auto again = hand->release("job", 2, 22).next.value();
            CHECK(again.grant_id == told.grant_id);
            CHECK(again.token == told.token);
        } else if (what == "the last holder is dead") {
            hand->end(2);
            for (const bool barging : {false, true}) {
                CHECK(hand->acquire("job", 5, 55, {.barging = barging}).what ==
                      attempt::outcome::held);
            }
            const auto again = hand->grant_next("job").value();
            CHECK(again.grant_id == told.grant_id);
            CHECK(again.token == told.token);
        } else if (what == "the heir is dead") {  // and his token is not given again
            hand->end(3);
            const auto other = hand->release("job", 2, 22).next.value();
            CHECK(other.grant_id == 44);
            CHECK(other.token == told.token + 1);
        } else if (what == "by force") {
            REQUIRE(hand->force_release("job"));
            CHECK(hand->acquire("job", 5, 55, {.barging = true}).what == attempt::outcome::held);
            CHECK(hand->grant_next("job").value().grant_id == told.grant_id);
        } else {  // another gets the lease, and the same token
            hand->forget_promise();
            const auto other = hand->release("job", 2, 22).next.value();
            CHECK(other.grant_id == 44);
            CHECK(other.token == told.token);
        }
    }
}

// shows: promised-tokens
TEST_CASE("what was not settled waits for the disk; control: a promise that did not is lost") {
    const late_server server;
    if (!server.there()) return;
    enum class variant : unsigned char { settled, not_promised, control_believed };
    // The server writes its log now and then by itself, also what waits for no disk: then there is
    // nothing to lose, and the control is tried again.
    int spared = 0;
    for (const auto which : {variant::settled, variant::not_promised, variant::control_believed,
                             variant::control_believed, variant::control_believed}) {
        CAPTURE(which);
        server.reset();
        std::int64_t token = 0;
        {
            const auto hand = server.hand();
            const promise at{*hand};
            token = at.token;
            REQUIRE(
                hand->pass_on("job", 2, 22, at.next));  // not on disk: to 33, with a promise to 44
            next_in_line seen{.ticket = at.next.ticket + 1,
                              .session = 4,
                              .grant_id = 44,
                              .alive = 60s,
                              .promised = which == variant::control_believed};
            if (which == variant::settled) {
                seen = hand->settle("job", 3, 33).value().next.value();
                REQUIRE(seen.grant_id == 44);
                REQUIRE(seen.promised);
            }
            CHECK(hand->pass_on("job", 3, 33, seen).value().token == token + 2);
        }
        server.crash_and_start();
        const auto hand = server.hand();
        if (which == variant::settled) {  // the promise is there, and kept
            CHECK(hand->of_lease("grant_id") == 33);
            CHECK(hand->of_lease("successor") == 44);
            hand->end(4);
            hand->enqueue("job", 5, 55);
            CHECK(hand->release("job", 3, 33).next.value().token == token + 3);
        } else if (which == variant::not_promised) {  // the hand-over is there
            CHECK(hand->of_lease("grant_id") == 44);
            CHECK(hand->of_lease("token") == token + 2);
        } else {  // all is lost: the token that 44 was told is given to another
            if (hand->of_lease("grant_id") != 22 && ++spared < 3) continue;
            REQUIRE(hand->of_lease("grant_id") == 22);
            hand->end(3);
            hand->end(4);
            hand->enqueue("job", 5, 55);
            CHECK(hand->release("job", 2, 22).next.value().token == token + 2);
            break;
        }
    }
}

// --- clients
// ----------------------------------------------------------------------------------------

namespace {

/// A client whose statements of some kinds can be kept back.
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
            if (what == "settle") ++settled_;
            if (what == "pass_on") ++passed_on_;
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
    /// Once.
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

/// What would find out that a grant is not in the table.
const std::vector<std::string> doubts{"settle", "session_leases"};
/// And what would find out that it has a place, and give that up.
const std::vector<std::string> all_doubts{"settle", "session_leases", "places"};
/// What would release again what a crash has brought back.
const std::vector<std::string> repairs{"session_leases"};

/// c was told of its grant by b, asynchronously, and has not settled it; then the server crashed.
struct crashed_hand_over {
    explicit crashed_hand_over(bool released = false) {
        if (!server.there()) return;
        a.emplace(server.source());
        b.emplace(server.source());
        c.emplace(server.source());
        before.emplace(server.source(), client_options{.ttl = 5min});
        // A settling that was answered may not have been noted yet when the release comes, and a
        // heartbeat may bring the hand-over to the disk.
        for (int tries = 0; !passes_on() || !is_lost_in_crash(released); ++tries) {
            REQUIRE(tries < 20);
            c->let_go();
            b->let_go();
            lease->release();
            REQUIRE(free_and_empty(*server.hand()));
        }
        REQUIRE(hand->number("select count(*) from rowlock_waiter") == 1);
    }

    /// The lease goes round; whether a passed it on to b with a promise to c, and b to c, who is
    /// told and cannot settle.
    [[nodiscard]] bool passes_on() {
        const int passed_by_a = (*a).passed_on();
        const int passed_by_b = (*b).passed_on();
        const int settled_by_a = (*a).settled();
        const int settled_by_b = (*b).settled();
        auto held = (*before).acquire("job");
        auto first = waiting(*a, 1);
        auto second = waiting(*b, 2);
        auto heir = waiting(*c, 3);
        c->keep(doubts);
        held.release();
        auto of_a = first.get().value();
        // Who finds his grant before he is told of it settles nothing: then this round is in vain.
        eventually([&] { return a->settled() > settled_by_a; }, 1s);
        of_a.release();
        auto of_b = second.get().value();
        eventually([&] { return b->settled() > settled_by_b; }, 1s);
        b->keep(repairs);
        of_b.release();
        lease = heir.get();
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
        auto result = in_background([&] { return who->try_acquire_for("job", 20s); });
        const auto look = server.hand();
        CHECK(eventually(
            [&] { return look->number("select count(*) from rowlock_waiter") == places; }));
        return result;
    }
    [[nodiscard]] static bool free_and_empty(const job_queue& look) {
        return eventually([&] {
            return look.number(
                       "select (select count(*) from rowlock_waiter) + (select count(*) "
                       "from rowlock_lease where session is not null)") == 0;
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
TEST_CASE("who was told of a hand-over that a crash lost keeps the lease if it is given again") {
    crashed_hand_over at;
    if (!at.server.there()) return;
    client other{at.server.source(), {}};
    CHECK_FALSE(other.try_acquire("job", {.queueing = queueing::barging}));
    at.b->let_go();  // its client finds the row that it had released
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
TEST_CASE("who finds out first that a crash lost his hand-over loses it, and nobody is stuck") {
    crashed_hand_over at;
    if (!at.server.there()) return;
    at.c->let_go();
    REQUIRE(eventually([&] { return !at.lease->held(); }));
    CHECK(kind_of([&] { at.lease->release(); }) == errc::lock_lost);
    CHECK(eventually([&] { return at.hand->number("select count(*) from rowlock_waiter") == 0; }));
    at.b->let_go();
    CHECK(at.free_and_empty());
    client other{at.server.source(), {}};
    const auto next = other.try_acquire_for("job", 10s);
    REQUIRE(next);
    CHECK(next->token() > at.lease->token());
}

TEST_CASE(
    "a place that a crash brought back to a client that is done with it keeps nobody waiting") {
    crashed_hand_over at{true};
    if (!at.server.there()) return;
    // It compares what it has with the table, while the place becomes a lease.
    const auto serve = [&] {
        const auto look = at.server.hand();
        at.b->let_go();
        CHECK(eventually([&] {
            return look->number("select count(*) from rowlock_waiter") == 0 ||
                   look->of_lease("token") == at.lease->token().value();
        }));
    };
    SUBCASE("after it has looked at its places") {
        at.c->step_in_after("places", serve);
    }
    SUBCASE("after it has looked at its leases") {
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
    "a crash may lose a session with nothing on it, and no lease or place without its session") {
    const late_server server;
    if (!server.there()) return;
    const auto wait_for_disk = [](const job_queue& hand) {
        hand.run(
            "insert into rowlock_lease (name, token, changed_at) values ('x', 1, now()) "
            "on conflict (name) do update set token = excluded.token + 1");
        // The log's writer does not wait with a page that is full.
        hand.run("select pg_switch_wal()");
    };
    for (const bool with_lease : {false, true}) {
        CAPTURE(with_lease);
        server.reset();
        {
            const auto hand = server.hand();
            wait_for_disk(*hand);
            hand->open(7);
            hand->enqueue("job", 7, 71);
            if (with_lease) {
                REQUIRE(hand->acquire("job", 7, 70, {.barging = true}).what ==
                        attempt::outcome::granted);
            }
        }
        server.crash_and_start();
        const auto hand = server.hand();
        CHECK(hand->number("select count(*) from rowlock_session") == (with_lease ? 1 : 0));
        CHECK(hand->number("select count(*) from rowlock_waiter") == (with_lease ? 1 : 0));
        if (with_lease) CHECK(hand->of_lease("session") == 7);
    }
}

TEST_CASE("a release that a crash takes back before the first heartbeat connects is repeated") {
    const late_server server;
    if (!server.there()) return;
    client locks{server.source(), {.ttl = 6s}};
    locks.acquire("job").release();
    server.crash_and_start();
    const auto hand = server.hand();
    CHECK(support::eventually([&] {
        return hand->number("select count(*) from rowlock_lease where session is not null") == 0;
    }));
}

TEST_CASE("a client whose session a crash lost goes on with another") {
    const late_server server;
    if (!server.there()) return;
    {
        const auto hand = server.hand();
        hand->open(7);
        REQUIRE(hand->acquire("job", 7, 70).what == attempt::outcome::granted);
    }
    client locks{server.source(), {}};
    CHECK_FALSE(locks.try_acquire("job"));  // which opens the session and writes nothing else
    server.crash_and_start();
    REQUIRE(server.hand()->number("select count(*) from rowlock_session") == 1);
    const auto lease = locks.try_acquire_for("free", 20s);
    REQUIRE(lease);
    CHECK(lease->held());
    CHECK(locks.stats().sessions == 2);
    CHECK(server.hand()->number("select count(*) from rowlock_lease l join rowlock_session s "
                                "on s.id = l.session where l.name = 'free' and not s.ended") == 1);
}

// InnoDB shows a commit before it is on the disk. What a client reads of a grant then, it tells
// nobody before it is. The server is one of our own whose log can be held back, and which is killed
// then: what had been read is gone. MariaDB and MySQL only.

#include "coordination/wakeup/wake_up.hpp"
#include "support/interception.hpp"
#include "support/late_server.hpp"
#include "support/lock_database.hpp"
#include "support/protocols.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using strategy::attempt;
using support::eventually;
using support::interception;
using support::soon;

namespace {

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

template <typename Answer>
bool is_ready(const std::future<Answer>& answer) {
    return answer.wait_for(0ms) == std::future_status::ready;
}

/// One for all cases: it takes seconds to make.
support::late_server& the_server() {
    static support::late_server server;
    return server;
}

/// The protocol on one connection, for one name, "job".
class by_hand {
public:
    explicit by_hand(const sql::connection_source& source) : db_{source.connect(soon())} {
        leases_.set_up(*db_, 10s, soon());
    }
    by_hand(const by_hand&) = delete;
    by_hand& operator=(const by_hand&) = delete;

    void open(std::int64_t session, const std::string& owner = "owner") const {
        leases_.open_session(*db_, {session, owner, "host", "program", 1, 60s}, soon());
    }
    [[nodiscard]] attempt acquire(std::int64_t session, std::int64_t grant_id) const {
        return leases_.acquire(*db_, {"job", session, grant_id, "", "", std::nullopt, true},
                               soon());
    }
    void enqueue(std::int64_t session, std::int64_t grant_id) const {
        queue_.enqueue(*db_, {"job", session, grant_id, "", "", std::nullopt}, soon());
    }
    void run(const std::string& text) const { db_->query(text, soon()); }
    [[nodiscard]] std::int64_t number(const std::string& text) const {
        return db_->query(text, soon()).maybe_integer(0, 0).value_or(0);
    }
    [[nodiscard]] std::int64_t of_lease(const std::string& column) const {
        return number("select " + column + " from rowlock_lease where name = 'job'");
    }
    /// Until the first place in line, of a client, stands there: its session and its grant id.
    [[nodiscard]] strategy::granted_name first_place(std::int64_t& session) const {
        REQUIRE(eventually([&] { return number("select count(*) from rowlock_waiter") == 1; }));
        session = number("select session from rowlock_waiter");
        return {"job", number("select grant_id from rowlock_waiter")};
    }

    [[nodiscard]] const strategy::lease_protocol& leases() const { return leases_; }
    [[nodiscard]] const strategy::queue_protocol& queue() const { return queue_; }
    [[nodiscard]] sql::connection& db() const { return *db_; }

private:
    const support::protocols protocols_{sql::statement_set{sql::dialect::mysql}};
    const strategy::lease_protocol& leases_{protocols_.leases()};
    const strategy::queue_protocol& queue_{protocols_.queue()};
    std::unique_ptr<sql::connection> db_;
};

/// Session 1 holds "job" by its grant 11; what it releases is given to the first in line by a
/// commit that does not return while the log is held.
struct holder {
    explicit holder(const sql::connection_source& on) : source{on}, hand{on}, look{on} {
        for (const std::string table : {"waiter", "lease", "session"}) {
            look.run("delete from rowlock_" + table);
        }
        hand.open(1, "worker");
        token = hand.acquire(1, 11).token;
        REQUIRE(token > 0);
    }
    /// Returns when everybody sees what became of it.
    [[nodiscard]] std::future<bool> release_unflushed() const {
        auto releasing = in_background([this] {
            try {
                return hand.queue().release(hand.db(), "job", 1, 11, true, soon()).freed;
            } catch (const error&) {
                return false;  // the server was killed
            }
        });
        REQUIRE(eventually([&] { return look.of_lease("session") != 1; }));
        return releasing;
    }

    sql::connection_source source;
    by_hand hand, look;
    std::int64_t token = 0;
};

/// A client whose statements are counted by name, and can be kept back.
class watched_client {
public:
    watched_client(const sql::connection_source& source, client_options options,
                   bool whole_transactions = false) {
        network_.transactions = whole_transactions;
        network_.before([this](std::string_view what) {
            if (what == "confirm_grant") ++confirmations_;
            if (what == refused()) throw error{errc::deadlock, "not now"};
            if (what != kept()) return;
            ++waiting_;
            eventually([&] { return what != kept(); }, 30s);
        });
        client_.emplace(network_.wrap(source), std::move(options));
    }
    ~watched_client() { keep(""); }
    watched_client(const watched_client&) = delete;
    watched_client& operator=(const watched_client&) = delete;

    void keep(std::string what) {
        const std::lock_guard lock{mutex_};
        kept_ = std::move(what);
        waiting_ = 0;
    }
    /// The connection stays, the statement fails in a way that passes.
    void refuse(std::string what) {
        const std::lock_guard lock{mutex_};
        refused_ = std::move(what);
    }
    /// That one is kept back since keep(), so none from before that is still under way.
    [[nodiscard]] bool has_kept() {
        return eventually([&] { return waiting_ > 0; });
    }
    [[nodiscard]] bool makes_sure() {
        return eventually([&] { return confirmations_ > 0; });
    }
    [[nodiscard]] int confirmations() const { return confirmations_; }
    client* operator->() { return &*client_; }

private:
    [[nodiscard]] std::string kept() {
        const std::lock_guard lock{mutex_};
        return kept_;
    }

    [[nodiscard]] std::string refused() {
        const std::lock_guard lock{mutex_};
        return refused_;
    }

    std::mutex mutex_;
    std::string kept_, refused_;
    std::atomic<int> waiting_{0}, confirmations_{0};
    interception network_;
    std::optional<client> client_;
};

/// Waits for "job" and tells the token, or 0.
std::future<std::int64_t> wait_for_job(watched_client& who, std::chrono::milliseconds limit = 20s) {
    return in_background([&who, limit] {
        const auto lease = who->try_acquire_for("job", limit);
        return lease ? lease->token().value() : std::int64_t{0};
    });
}

}  // namespace

TEST_CASE("what is read of a grant is told when it is on the disk, and not before") {
    auto& server = the_server();
    if (!server.there()) return;
    const holder at{server.source()};
    const by_hand& look = at.look;
    client_options options{.ttl = 30s, .poll_interval = 5s, .wake_ups = wakeup_mode::polling};

    SUBCASE("found by a look at the place") {
        watched_client b{server.source(), options};
        b.keep("places");
        auto told = wait_for_job(b);
        REQUIRE(b.has_kept());
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        b.keep("");
        CHECK(b.makes_sure());
        CHECK_FALSE(is_ready(told));
        server.let_log_go();
        CHECK(released.get());
        CHECK(told.get() == at.token + 1);
    }
    SUBCASE("found when the place is given up") {
        options.retry.max_backoff = 2ms;
        watched_client b{server.source(), options};
        b.refuse("places");  // and find nothing before that
        auto told = wait_for_job(b, 2s);
        std::int64_t session = 0;
        static_cast<void>(look.first_place(session));
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        CHECK(b.makes_sure());
        CHECK(told.get() == 0);  // it had no time left to wait for the disk
        server.let_log_go();
        CHECK(released.get());
        b.refuse("");
        CHECK(eventually([&] { return look.of_lease("session") == 0; }));  // and was given back
    }
    SUBCASE("found by one who was woken amid the commit") {
        options.wake_ups = wakeup_mode::database;
        options.poll_interval = 30s;
        watched_client b{server.source(), options};
        auto told = wait_for_job(b);
        std::int64_t session = 0;
        static_cast<void>(look.first_place(session));
        const auto sleeps = [&] {
            return look.number(
                       "select count(*) from information_schema.processlist where "
                       "state = 'User lock' and info like '%rowlock#_wake%' escape '#'") == 1;
        };
        REQUIRE(eventually(sleeps));
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        const by_hand other{server.source()};
        REQUIRE(eventually([&] {
            return strategy::wake_up::wake(other.db(), session, 7, soon()) && b.makes_sure();
        }));
        CHECK_FALSE(is_ready(told));
        server.let_log_go();
        CHECK(released.get());
        CHECK(told.get() == at.token + 1);
    }
    SUBCASE("asked of the protocol") {
        at.hand.open(2);
        at.hand.enqueue(2, 22);
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        const by_hand first{server.source()};
        const by_hand second{server.source()};
        const by_hand third{server.source()};
        // What the giver has told us of is durable, and what is merely read is not believed.
        CHECK(look.queue().served(look.db(), "job", 2, 22, soon(), at.token + 1).has_value());
        CHECK(look.queue().read_served(look.db(), "job", 2, 22, soon()).has_value());
        auto served = in_background(
            [&] { return first.queue().served(first.db(), "job", 2, 22, soon()).has_value(); });
        auto several = in_background([&] {
            const std::vector<strategy::granted_name> places{{"job", 22}, {"job", 23}};
            const auto found = second.queue().served(second.db(), 2, places, soon());
            return found[0].has_value() && !found[1];
        });
        auto found = in_background([&] {
            return third.leases().find_grant(third.db(), "job", 2, 22, soon()).has_value();
        });
        const auto commits = [&] {
            return look.number(
                       "select count(*) from information_schema.processlist where "
                       "info like '%confirm#_grant%' escape '#' and id <> "
                       "connection_id()") >= 1;
        };
        CHECK(eventually(commits));
        CHECK_FALSE(is_ready(served));
        CHECK_FALSE(is_ready(several));
        CHECK_FALSE(is_ready(found));
        server.let_log_go();
        CHECK(released.get());
        CHECK(served.get());
        CHECK(several.get());
        CHECK(found.get());
    }
    SUBCASE("that another was put out by force, whose reply was lost") {
        const auto held_log = server.hold_log();
        const by_hand forcing{server.source()};
        auto first = in_background([&] {
            strategy::victim victim;
            return forcing.leases().force_release(forcing.db(), "job", victim, soon());
        });
        REQUIRE(eventually([&] { return look.of_lease("session") == 0; }));
        const by_hand again{server.source()};
        auto second = in_background([&] {
            strategy::victim victim{.token = at.token};
            return again.leases().force_release(again.db(), "job", victim, soon());
        });
        CHECK(eventually([&] {
            return look.number(
                       "select count(*) from information_schema.processlist where "
                       "info like '%confirm#_lease%' escape '#' and id <> "
                       "connection_id()") == 1;
        }));
        CHECK_FALSE(is_ready(second));
        server.let_log_go();
        CHECK(first.get());
        CHECK(second.get());
    }
}

TEST_CASE("a hand-over that its giver has told of costs no commit of the one who is woken") {
    for (const bool whole_transactions : {false, true}) {
        CAPTURE(whole_transactions);
        support::lock_database database{support::backend::mariadb};
        if (!database.there()) return;
        const auto options = database.options({.ttl = 30s, .poll_interval = 20s});
        watched_client a{database.source(), options, whole_transactions};
        watched_client b{database.source(), options, whole_transactions};
        int told = 0;
        for (int round = 0; round < 10; ++round) {
            auto held = support::acquire_soon(*a.operator->(), "job");
            auto waiting = wait_for_job(b);
            REQUIRE(support::places(database, 1));
            const auto asleep = [&] {
                try {
                    return database.number(
                               "select count(*) from information_schema.processlist p "
                               "join rowlock_waiter w where p.state = 'User lock' and "
                               "p.info like concat('%rowlock#_wake#_', w.session) escape '#'") == 1;
                } catch (const error&) {
                    return false;  // MySQL: a statement of another program is no valid text
                }
            };
            REQUIRE(eventually(asleep));
            const int before = b.confirmations();
            held.release();
            CHECK(waiting.get() > 0);
            told += b.confirmations() == before ? 1 : 0;
        }
        // A look soon after a sleep began may have found the grant before the word came.
        CHECK(told >= 5);
    }
}

TEST_CASE("a crash takes back what was read: no token twice, no two holders; control: a raw read") {
    auto& server = the_server();
    if (!server.there()) return;
    for (const std::string_view then : {"reclaim", "barging", "hand-over"}) {
        CAPTURE(then);
        std::optional<holder> at{std::in_place, server.source()};
        watched_client b{server.source(), {.ttl = 30s, .wake_ups = wakeup_mode::polling}};
        b.keep("places");
        auto told = wait_for_job(b, 40s);
        std::int64_t session = 0;
        const auto place = at->look.first_place(session);
        REQUIRE(b.has_kept());
        const by_hand unprotected{server.source()};
        const auto held_log = server.hold_log();
        auto released = at->release_unflushed();
        b.keep("");
        const auto believed = unprotected.queue().read_served(unprotected.db(), "job", session,
                                                              place.grant_id, soon());
        REQUIRE(believed);
        REQUIRE(believed->token == at->token + 1);
        CHECK(b.makes_sure());
        CHECK_FALSE(is_ready(told));
        server.crash_and_start();
        CHECK_FALSE(released.get());
        const auto token = at->token;
        at.reset();

        // What the crash has left: the grant before, and the place.
        const by_hand hand{server.source()};
        REQUIRE(hand.of_lease("token") == token);
        REQUIRE(hand.of_lease("session") == 1);
        b.keep("places");  // it stands in line, and gets no turn before all is looked at
        REQUIRE(b.has_kept());
        std::int64_t other = 0;
        if (then == "reclaim") {
            client successor{server.source(), {.owner = "worker"}};
            const auto reclaimed = successor.reclaim();
            REQUIRE(reclaimed.size() == 1);
            other = reclaimed.front().token().value();
            CHECK(other > believed->token);  // which is left out
            CHECK(hand.of_lease("session") != session);
        } else if (then == "barging") {
            hand.leases().end_session(hand.db(), 1, soon());
            client barging{server.source(), {}};
            const auto lease = barging.try_acquire("job", {.queueing = queueing::barging});
            REQUIRE(lease);
            other = lease->token().value();
            CHECK(other == believed->token);  // control: to whom believed it there were two
        } else {
            hand.open(3);
            hand.run("update rowlock_waiter set ticket = ticket + 1000");
            hand.run(
                "insert into rowlock_waiter (ticket, name, session, grant_id, enqueued_at) "
                "values (1, 'job', 3, 33, 0)");
            const auto next = hand.queue().release(hand.db(), "job", 1, 11, true, soon()).next;
            REQUIRE(next);
            CHECK(next->session == 3);
            other = next->token;
            CHECK(other == believed->token);  // control: as before
            REQUIRE(hand.queue().release(hand.db(), "job", 3, 33, true, soon()).freed);
        }
        CHECK_FALSE(is_ready(told));
        b.keep("");
        CHECK(told.get() > other);
    }
}

TEST_CASE("a client whose sleeping connection breaks compares what it holds at once") {
    auto& server = the_server();
    if (!server.there()) return;
    const holder at{server.source()};
    client b{server.source(),
             {.ttl = 60s, .poll_interval = 30s, .wake_ups = wakeup_mode::database}};
    const auto held = b.acquire("held");
    at.look.run("update rowlock_lease set session = null, token = token + 1 where name = 'held'");
    // It has waited, and sleeps in the server to the end of that sleep, two seconds at most.
    std::stop_source stop;
    auto waiting = in_background([&] { return b.acquire("job", stop.get_token()).has_value(); });
    REQUIRE(eventually([&] {
        return at.look.number(
                   "select count(*) from information_schema.processlist where state = "
                   "'User lock' and info like '%rowlock#_wake%' escape '#' and "
                   "time < 1") == 1;
    }));
    stop.request_stop();
    CHECK_FALSE(waiting.get());
    REQUIRE(held.held());
    server.crash_and_start();
    // The next heartbeat is twenty seconds away.
    CHECK(eventually([&] { return !held.held(); }, 10s));
}

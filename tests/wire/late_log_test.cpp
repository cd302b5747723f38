// InnoDB shows a commit before it is on the disk. A client that reads a grant then does not report
// it before it is durable. The tests start a server whose log can be held back, and kill it: what
// was read is lost. MariaDB and MySQL only.

#include "lock/wakeup/mysql_wait.hpp"
#include "support/interception.hpp"
#include "support/late_server.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::protocol_connection;
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

/// The server that all cases share, since it takes seconds to start.
support::late_server& the_server() {
    static support::late_server server;
    return server;
}

std::int64_t of_lease(const protocol_connection& look, const std::string& column) {
    return look.number("select " + column + " from rowlock_lock where name = 'job'");
}

/// Waits for the first queue entry of a client. Returns its session and its grant id.
protocol::granted_name first_place(const protocol_connection& look, session_id& session) {
    REQUIRE(eventually([&] { return look.number("select count(*) from rowlock_ticket") == 1; }));
    session = session_id{look.number("select session from rowlock_ticket")};
    return {"job", grant_id{look.number("select grant_id from rowlock_ticket")}};
}

/// Session 1 holds "job" by its grant 11. Its release hands the lease to the first waiter by a
/// commit that does not return while the log is held.
struct holder {
    explicit holder(const sql::connection_source& on) : source{on}, hand{on}, look{on} {
        for (const std::string table : {"ticket", "lock", "session"}) {
            look.run("delete from rowlock_" + table);
        }
        hand.open(session_id{1}, {.owner = "worker"});
        token = hand.try_acquire("job", session_id{1}, grant_id{11}).value_or(0);
        REQUIRE(token > 0);
    }
    /// Returns once the uncommitted result of the release is visible.
    [[nodiscard]] std::future<bool> release_unflushed() const {
        auto releasing = in_background([this] {
            try {
                return hand.release("job", session_id{1}, grant_id{11}).freed;
            } catch (const error&) {
                return false;  // the server was killed
            }
        });
        REQUIRE(eventually([&] { return of_lease(look, "session") != 1; }));
        return releasing;
    }

    sql::connection_source source;
    protocol_connection hand, look;
    std::int64_t token = 0;
};

/// For support::processes().
auto runs(std::string statement) {
    return [statement = std::move(statement)](const support::mysql_process& one) {
        return one.statement.find(statement) != std::string::npos;
    };
}

/// A client whose statements are counted by name, and can be held back.
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
    /// Makes the statement fail with a transient error. The connection stays usable.
    void refuse(std::string what) {
        const std::lock_guard lock{mutex_};
        refused_ = std::move(what);
    }
    /// Waits until a statement is held back since keep(). None from before is then still running.
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

/// Waits for "job". Returns the token, or 0.
std::future<std::int64_t> wait_for_job(watched_client& who, std::stop_token stop = {}) {
    return in_background([&who, stop = std::move(stop)] {
        const auto lease = who->try_acquire_for("job", 5min, stop);
        return lease ? lease->token().value() : std::int64_t{0};
    });
}

}  // namespace

TEST_CASE("a grant that was read is reported once it is on the disk, and not before") {
    auto& server = the_server();
    if (!server.there()) return;
    const holder at{server.source()};
    const protocol_connection& look = at.look;
    client_options options{.ttl = 30s, .poll_interval = 5s, .wake_ups = wakeup_mode::polling};

    SUBCASE("found by a poll") {
        watched_client b{server.source(), options};
        b.keep("entries");
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
    SUBCASE("found by the cancellation") {
        options.retry.max_backoff = 2ms;
        const auto makes_sure = [&] {
            const holder theirs{server.source()};
            watched_client b{server.source(), options};
            b.refuse("entries");  // so that no poll finds the grant first
            std::stop_source stop;
            auto told = wait_for_job(b, stop.get_token());
            session_id session{};
            static_cast<void>(first_place(look, session));
            const auto held_log = server.hold_log();
            auto released = theirs.release_unflushed();
            stop.request_stop();
            CHECK(told.get() == 0);  // no time was left to wait for the disk
            const bool asked = b.confirmations() > 0;
            server.let_log_go();
            CHECK(released.get());
            b.refuse("");
            // The client released it.
            CHECK(eventually([&] { return of_lease(look, "session") == 0; }));
            return asked;
        };
        // A server that stalls for a quarter of a second leaves the cancellation to the loop.
        CHECK(eventually(makes_sure));
    }
    const auto woken_during_the_commit = [&](bool squatted) {
        options.wake_ups = wakeup_mode::database;
        options.poll_interval = 30s;
        watched_client b{server.source(), options};
        auto told = wait_for_job(b);
        session_id session{};
        const auto place = first_place(look, session);
        if (squatted) {
            REQUIRE(look.number("select get_lock('rowlock_told_" + to_string(place.grant_id) +
                                "', 0)") == 1);
        }
        REQUIRE(eventually([&] { return support::sleeper(look.db(), session).has_value(); }));
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        const protocol_connection other{server.source()};
        REQUIRE(eventually([&] {
            return mysql_wait::wake(other.db(), session, mysql_wait::durability_mark{7}, soon()) &&
                   b.makes_sure();
        }));
        CHECK_FALSE(is_ready(told));
        server.let_log_go();
        CHECK(released.get());
        CHECK(told.get() == at.token + 1);
    };
    SUBCASE("found by a waiter that was woken during the commit") {
        woken_during_the_commit(false);
    }
    SUBCASE("the same, while a reader of the tables holds a lock named after the grant") {
        woken_during_the_commit(true);
    }
    SUBCASE("read by a woken waiter, while a reader of the tables holds such a lock") {
        const auto mine = wakeup::random_wake_address();
        at.hand.open(session_id{2}, {.wake = mine});
        at.hand.enqueue("job", session_id{2}, grant_id{22});
        REQUIRE(look.number("select get_lock('rowlock_told_22', 0)") == 1);
        const auto is_durable = [&] {
            const std::vector<std::string> names{"job"};
            const auto found = look.queue().served_of(look.db(), session_id{2}, names, soon());
            REQUIRE(found.size() == 1);
            return found.front().durable;
        };
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        CHECK_FALSE(is_durable());
        server.let_log_go();
        REQUIRE(released.get());
        const auto mark = mysql_wait::mark_durable(grant_id{22}, mine.secret);
        static_cast<void>(mysql_wait::wake(at.hand.db(), session_id{2}, mark, soon()));
        CHECK(is_durable());
    }
    SUBCASE("read through the protocol") {
        at.hand.open(session_id{2});
        at.hand.enqueue("job", session_id{2}, grant_id{22});
        const auto held_log = server.hold_log();
        auto released = at.release_unflushed();
        const protocol_connection first{server.source()};
        const protocol_connection second{server.source()};
        const protocol_connection third{server.source()};
        // A grant that the releasing session reported is durable. One that was only read is not.
        CHECK(look.queue()
                  .served(look.db(), "job", session_id{2}, grant_id{22}, soon(), at.token + 1)
                  .has_value());
        CHECK(look.queue()
                  .read_served(look.db(), "job", session_id{2}, grant_id{22}, soon())
                  .has_value());
        auto served = in_background(
            [&] { return first.served("job", session_id{2}, grant_id{22}).has_value(); });
        auto several = in_background([&] {
            const std::vector<protocol::granted_name> places{{"job", grant_id{22}},
                                                             {"job", grant_id{23}}};
            const auto found = second.queue().served(second.db(), session_id{2}, places, soon());
            return found[0].has_value() && !found[1];
        });
        auto found = in_background([&] {
            return third.leases()
                .find_grant(third.db(), "job", session_id{2}, grant_id{22}, soon())
                .has_value();
        });
        CHECK(eventually(
            [&] { return !support::processes(look.db(), runs("confirm_grant")).empty(); }));
        CHECK_FALSE(is_ready(served));
        CHECK_FALSE(is_ready(several));
        CHECK_FALSE(is_ready(found));
        server.let_log_go();
        CHECK(released.get());
        CHECK(served.get());
        CHECK(several.get());
        CHECK(found.get());
    }
    SUBCASE("after a forced release whose reply was lost") {
        const auto held_log = server.hold_log();
        const protocol_connection forcing{server.source()};
        auto first = in_background([&] { return forcing.force_release("job"); });
        REQUIRE(eventually([&] { return of_lease(look, "session") == 0; }));
        const protocol_connection again{server.source()};
        auto second = in_background([&] {
            protocol::victim victim{.token = at.token};
            return again.leases().force_release(again.db(), "job", victim, soon());
        });
        CHECK(eventually(
            [&] { return support::processes(look.db(), runs("confirm_lease")).size() == 1; }));
        CHECK_FALSE(is_ready(second));
        server.let_log_go();
        CHECK(first.get());
        CHECK(second.get());
    }
}

TEST_CASE("a hand-over that the releasing client reported costs the woken client no commit") {
    for (const bool whole_transactions : {false, true}) {
        CAPTURE(whole_transactions);
        support::lock_database database{support::backend::mariadb};
        if (!database.there()) return;
        const auto options = database.options({.ttl = 30s, .poll_interval = 20s});
        watched_client a{database.source(), options, whole_transactions};
        watched_client b{database.source(), options, whole_transactions};
        int told = 0;
        constexpr int most = 100;
        for (int round = 0; round < most && told < 5; ++round) {
            auto held = support::acquire_soon(*a.operator->(), "job");
            auto waiting = wait_for_job(b);
            REQUIRE(support::places(database, 1));
            const session_id session{database.number("select session from rowlock_ticket")};
            REQUIRE(eventually(
                [&] { return support::sleeper(database.admin(), session).has_value(); }));
            const int before = b.confirmations();
            held.release();
            CHECK(waiting.get() > 0);
            told += b.confirmations() == before ? 1 : 0;
        }
        // A poll soon after the start of a sleep may have found the grant before the wake-up.
        CHECK(told >= 5);
    }
}

TEST_CASE("after a crash that lost a grant which was read no token repeats; control: a raw read") {
    auto& server = the_server();
    if (!server.there()) return;
    for (const std::string_view then : {"reclaim", "barging", "hand-over"}) {
        CAPTURE(then);
        std::optional<holder> at{std::in_place, server.source()};
        watched_client b{server.source(), {.ttl = 30s, .wake_ups = wakeup_mode::polling}};
        b.keep("entries");
        auto told = wait_for_job(b);
        session_id session{};
        const auto place = first_place(at->look, session);
        REQUIRE(b.has_kept());
        const protocol_connection unprotected{server.source()};
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

        // After the crash the previous grant and the queue entry are back.
        const protocol_connection hand{server.source()};
        REQUIRE(of_lease(hand, "token") == token);
        REQUIRE(of_lease(hand, "session") == 1);
        b.keep("entries");  // it queues, and is not granted before the checks below
        REQUIRE(b.has_kept());
        std::int64_t other = 0;
        if (then == "reclaim") {
            client successor{server.source(), {.owner = "worker"}};
            const auto reclaimed = successor.reclaim().leases;
            REQUIRE(reclaimed.size() == 1);
            other = reclaimed.front().token().value();
            CHECK(other > believed->token);  // the lost token is skipped
            CHECK(session_id{of_lease(hand, "session")} != session);
        } else if (then == "barging") {
            hand.end(session_id{1});
            client barging{server.source(), {}};
            const auto lease = barging.try_acquire("job", {.queueing = queueing::barging});
            REQUIRE(lease);
            other = lease->token().value();
            CHECK(other == believed->token);  // control: two holders with one token
        } else {
            hand.open(session_id{3});
            hand.run("update rowlock_ticket set ticket = ticket + 1000");
            hand.run(
                "insert into rowlock_ticket (ticket, name, session, grant_id, enqueued_at) "
                "values (1, 'job', 3, 33, 0)");
            const auto next = hand.release("job", session_id{1}, grant_id{11}).next;
            REQUIRE(next);
            CHECK(next->session == session_id{3});
            other = next->token;
            CHECK(other == believed->token);  // control: the same token again
            REQUIRE(hand.release("job", session_id{3}, grant_id{33}).freed);
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
             {.ttl = 5min, .poll_interval = 30s, .wake_ups = wakeup_mode::database}};
    const auto held = b.acquire("held");
    at.look.run("update rowlock_lock set session = null, token = token + 1 where name = 'held'");
    // It has waited, and its sleep in the server lasts two seconds at most.
    std::stop_source stop;
    auto waiting = in_background(
        [&] { return b.try_acquire_for("job", support::patience, stop.get_token()).has_value(); });
    REQUIRE(eventually([&] {
        const auto asleep = support::processes(at.look.db(), [](const auto& one) {
            return one.state == "User lock" && one.seconds < 1;
        });
        return asleep.size() == 1;
    }));
    stop.request_stop();
    CHECK_FALSE(waiting.get());
    REQUIRE(held.held());
    server.crash_and_start();
    // The next heartbeat is more than a minute away.
    CHECK(eventually([&] { return !held.held(); }, 20s));
}

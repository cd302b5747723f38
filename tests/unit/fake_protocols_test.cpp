#include "support/fake_lease_protocol.hpp"
#include "support/fake_queue_protocol.hpp"
#include "support/fake_tables.hpp"
#include "support/serving.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

using namespace rowlock;
using namespace std::chrono_literals;
using support::fake_tables;

namespace {

/// The fake protocols, with live sessions 1 to 3.
struct fake_server {
    fake_server() {
        for (const std::int64_t session : {1, 2, 3}) {
            leases.open_session(db, {session_id{session}, "owner", "host", "program", 1, 1min},
                                until);
        }
    }

    protocol::attempt acquire(std::string_view name, session_id session, grant_id grant_id) {
        return leases.acquire(db, {name, session, grant_id, "", "", std::nullopt}, until);
    }
    void enqueue(std::string_view name, session_id session, grant_id grant_id) {
        queue.enqueue(db, {name, session, grant_id, "", "", std::nullopt}, until);
    }

    fake_tables tables;
    support::fake_lease_protocol leases{tables};
    support::fake_queue_protocol queue{tables};
    support::fake_connection db;
    sql::deadline until = std::chrono::steady_clock::now() + 1h;
};

}  // namespace

TEST_CASE("the fake queue serves the waiters whose sessions live, in ticket order") {
    fake_server at;
    CHECK(at.acquire("job", session_id{1}, grant_id{11}).token == 1);
    at.enqueue("job", session_id{2}, grant_id{22});
    at.enqueue("job", session_id{3}, grant_id{33});
    at.enqueue("job", session_id{3}, grant_id{33});  // a repetition
    CHECK(at.queue.entries_of(at.db, session_id{3}, at.until).waiting.at(0).position == 2);
    CHECK_FALSE(support::serve_one(at.queue, at.db, "job", at.until));  // it is held
    at.leases.end_session(at.db, session_id{2}, at.until);
    CHECK(at.queue.entries_of(at.db, session_id{3}, at.until).waiting.at(0).position == 1);

    const auto done = at.queue.release(at.db, "job", session_id{1}, grant_id{11}, true, at.until);
    CHECK(done.freed);
    REQUIRE(done.next);
    CHECK(done.next->session == session_id{3});
    CHECK(done.next->token == 2);
    CHECK(
        at.queue.served(at.db, "job", session_id{3}, grant_id{33}, at.until, std::nullopt)->token ==
        2);
    CHECK_FALSE(at.queue.served(at.db, "job", session_id{2}, grant_id{22}, at.until, std::nullopt));
    CHECK_FALSE(at.queue.release(at.db, "job", session_id{1}, grant_id{11}, true, at.until).freed);
    at.queue.notify_grantee(at.db, *done.next, at.until);
    CHECK(at.queue.notified() == std::vector<session_id>{session_id{3}});
}

TEST_CASE("a fake lease has one holder, and a session that was ended holds nothing") {
    fake_server at;
    CHECK(at.acquire("job", session_id{1}, grant_id{11}).what ==
          protocol::attempt::outcome::granted);
    const auto other = at.acquire("job", session_id{2}, grant_id{22});
    CHECK(other.what == protocol::attempt::outcome::held);
    CHECK(other.seen.session == session_id{1});
    CHECK(at.leases.heartbeat(at.db, session_id{1}, 0, at.until));
    at.leases.end_session(at.db, session_id{1}, at.until);
    CHECK_FALSE(at.leases.heartbeat(at.db, session_id{1}, 0, at.until));
    CHECK(at.acquire("job", session_id{1}, grant_id{12}).what ==
          protocol::attempt::outcome::session_dead);
    CHECK(at.acquire("job", session_id{2}, grant_id{22}).token == 2);
    CHECK(at.leases.release(at.db, "job", session_id{2}, grant_id{22}, at.until));
    CHECK_FALSE(at.leases.release(at.db, "job", session_id{2}, grant_id{22}, at.until));
}

TEST_CASE("only a barging request overtakes a waiter for a fake lease") {
    fake_server at;
    at.enqueue("job", session_id{2}, grant_id{22});
    CHECK(at.acquire("job", session_id{1}, grant_id{11}).what == protocol::attempt::outcome::held);
    CHECK(at.leases
              .acquire(at.db, {"job", session_id{1}, grant_id{11}, "", "", std::nullopt, true},
                       at.until)
              .what == protocol::attempt::outcome::granted);
}

TEST_CASE("the fake queue deletes cancelled entries, and reports which it deleted") {
    fake_server at;
    CHECK(at.acquire("job", session_id{1}, grant_id{11}).token == 1);
    at.enqueue("job", session_id{2}, grant_id{22});
    CHECK(at.queue.cancel(at.db, std::array{grant_id{22}, grant_id{99}}, at.until) ==
          std::vector<grant_id>{grant_id{22}});
    CHECK_FALSE(at.queue.release(at.db, "job", session_id{1}, grant_id{11}, true, at.until).next);
    CHECK(at.queue.names_with_waiters(at.db, std::array<std::string, 1>{"job"}, at.until).empty());
}

TEST_CASE("a failure that was set for a fake protocol fails one call, which changes nothing") {
    fake_server at;
    CHECK(at.acquire("job", session_id{1}, grant_id{11}).token == 1);
    at.tables.fail_next(error{errc::outcome_unknown, "the reply was lost"});
    CHECK_THROWS_AS(at.enqueue("job", session_id{2}, grant_id{22}), const error&);
    CHECK(at.queue.entries_of(at.db, session_id{2}, at.until).waiting.empty());
    at.enqueue("job", session_id{2}, grant_id{22});
    CHECK(at.queue.entries_of(at.db, session_id{2}, at.until).waiting.size() == 1);
}

#include "support/fake_queue_protocol.hpp"
#include "support/fake_tables.hpp"

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

/// The fake queue, with live sessions 1 to 3.
struct fake_server {
    fake_server() {
        tables.look([](auto& all) {
            for (const std::int64_t session : {1, 2, 3}) all.sessions[session] = {};
        });
    }

    void hold(std::string_view name, std::int64_t session, std::int64_t grant_id) {
        tables.look([&](auto& all) {
            all.grant({std::string{name}, session, grant_id, "", "", std::nullopt});
        });
    }
    void end(std::int64_t session) {
        tables.look([&](auto& all) { all.sessions[session].live = false; });
    }
    void enqueue(std::string_view name, std::int64_t session, std::int64_t grant_id) {
        queue.enqueue(db, {name, session, grant_id, "", "", std::nullopt}, until);
    }

    fake_tables tables;
    support::fake_queue_protocol queue{tables};
    support::fake_connection db;
    sql::deadline until = std::chrono::steady_clock::now() + 1h;
};

}  // namespace

TEST_CASE("the fake queue serves the waiters whose sessions live, in ticket order") {
    fake_server at;
    at.hold("job", 1, 11);
    at.enqueue("job", 2, 22);
    at.enqueue("job", 3, 33);
    at.enqueue("job", 3, 33);  // a repetition
    CHECK(at.queue.places_of(at.db, 3, at.until).waiting.at(0).position == 2);
    CHECK_FALSE(at.queue.grant_next(at.db, "job", at.until));  // it is held
    at.end(2);
    CHECK(at.queue.places_of(at.db, 3, at.until).waiting.at(0).position == 1);

    const auto done = at.queue.release(at.db, "job", 1, 11, true, at.until);
    CHECK(done.freed);
    REQUIRE(done.next);
    CHECK(done.next->session == 3);
    CHECK(done.next->token == 2);
    CHECK(at.queue.served(at.db, "job", 3, 33, at.until)->token == 2);
    CHECK_FALSE(at.queue.served(at.db, "job", 2, 22, at.until));
    CHECK_FALSE(at.queue.release(at.db, "job", 1, 11, true, at.until).freed);
    at.queue.tell_served(at.db, *done.next, at.until);
    CHECK(at.queue.notified() == std::vector<std::int64_t>{3});
}

TEST_CASE("the fake queue forgets a cancelled entry, and says which it has deleted") {
    fake_server at;
    at.hold("job", 1, 11);
    at.enqueue("job", 2, 22);
    CHECK(at.queue.cancel(at.db, std::array<std::int64_t, 2>{22, 99}, at.until) ==
          std::vector<std::int64_t>{22});
    CHECK_FALSE(at.queue.release(at.db, "job", 1, 11, true, at.until).next);
    CHECK(at.queue.names_with_waiters(at.db, std::array<std::string, 1>{"job"}, at.until).empty());
}

TEST_CASE("a failure that was set for a fake protocol fails one call, which changes nothing") {
    fake_server at;
    at.hold("job", 1, 11);
    at.tables.fail_next(error{errc::outcome_unknown, "the reply was lost"});
    CHECK_THROWS_AS(at.enqueue("job", 2, 22), const error&);
    CHECK(at.queue.places_of(at.db, 2, at.until).waiting.empty());
    at.enqueue("job", 2, 22);
    CHECK(at.queue.places_of(at.db, 2, at.until).waiting.size() == 1);
}

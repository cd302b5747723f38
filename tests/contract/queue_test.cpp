// The queue before a lease, transition by transition, on every database through every driver.

#include "strategy/queue_protocol.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using strategy::attempt;
using support::soon;

namespace {

using ids = std::vector<std::int64_t>;
using names = std::vector<std::string>;

/// Sessions, leases and places by hand, on one connection.
class by_hand {
public:
    explicit by_hand(support::lock_database& database)
        : leases_{database.protocol()}, db_{database.connect()} {}
    by_hand(const by_hand&) = delete;
    by_hand& operator=(const by_hand&) = delete;

    void open(std::int64_t session, std::chrono::microseconds ttl = 60s) const {
        leases_.open_session(*db_, {session, "owner", "host", "program", session, ttl}, soon());
    }
    void end(std::int64_t session) const { leases_.end_session(*db_, session, soon()); }

    [[nodiscard]] attempt acquire(std::string_view name, std::int64_t session,
                                  std::int64_t grant_id, bool barging = false,
                                  std::string_view thread = "1") const {
        return leases_.acquire(*db_, {name, session, grant_id, thread, "", std::nullopt, barging},
                               soon());
    }
    void enqueue(std::string_view name, std::int64_t session, std::int64_t grant_id,
                 std::string_view thread = "1") const {
        queue_.enqueue(*db_, {name, session, grant_id, thread, "", std::nullopt}, soon());
    }
    void enqueue(const strategy::grant_request& request) const {
        queue_.enqueue(*db_, request, soon());
    }
    [[nodiscard]] ids cancel(const ids& grant_ids) const {
        auto gone = queue_.cancel(*db_, grant_ids, soon());
        std::sort(gone.begin(), gone.end());
        return gone;
    }
    [[nodiscard]] strategy::places places_of(std::int64_t session) const {
        return queue_.places_of(*db_, session, soon());
    }
    /// The grant id that the lease was given to, or 0.
    [[nodiscard]] std::int64_t grant_next(std::string_view name) const {
        const auto next = queue_.grant_next(*db_, name, soon());
        return next ? next->grant_id : 0;
    }
    [[nodiscard]] strategy::release_outcome release(std::string_view name, std::int64_t session,
                                                    std::int64_t grant_id,
                                                    bool contended = true) const {
        return queue_.release(*db_, name, session, grant_id, contended, soon());
    }
    [[nodiscard]] std::optional<strategy::queue_grant> served(std::string_view name,
                                                              std::int64_t session,
                                                              std::int64_t grant_id) const {
        return queue_.served(*db_, name, session, grant_id, soon());
    }
    [[nodiscard]] names waited_for(const names& asked) const {
        return queue_.waited_for(*db_, asked, soon());
    }
    [[nodiscard]] names names_after(std::int64_t session) const {
        auto found = queue_.names_after(*db_, session, soon());
        std::sort(found.begin(), found.end());
        return found;
    }
    [[nodiscard]] const strategy::lease_protocol& leases() const { return leases_; }
    [[nodiscard]] const strategy::queue_protocol& queue() const { return queue_; }
    [[nodiscard]] sql::connection& db() const { return *db_; }

private:
    strategy::lease_protocol leases_;
    strategy::queue_protocol queue_{leases_};
    std::unique_ptr<sql::connection> db_;
};

}  // namespace

TEST_CASE("a released lease goes from waiter to waiter in the order of their tickets") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const by_hand hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session);
        const auto first = hand.acquire("job", 1, 10);
        REQUIRE(first.what == attempt::outcome::granted);
        hand.enqueue("job", 2, 22);
        hand.enqueue("job", 3, 11);  // a smaller grant id, a later ticket
        hand.enqueue("job", 2, 33);

        const auto places = hand.places_of(2);
        CHECK(places.session_live);
        REQUIRE(places.waiting.size() == 2);
        CHECK(places.waiting[0].grant_id == 22);
        CHECK(places.waiting[0].position == 1);
        CHECK(places.waiting[1].position == 3);
        CHECK(places.waiting[0].holder_session == 1);
        CHECK_FALSE(places.waiting[0].free);
        CHECK(places.waiting[0].remaining > 50s);
        CHECK(hand.grant_next("job") == 0);  // it is held

        std::int64_t token = first.token;
        std::int64_t holder = 1;
        std::int64_t grant_id = 10;
        for (const auto& [session, expected] :
             {std::pair<std::int64_t, std::int64_t>{2, 22}, {3, 11}, {2, 33}}) {
            const auto done = hand.release("job", holder, grant_id);
            CHECK(done.freed);
            REQUIRE(done.next.has_value());
            CHECK(done.next->session == session);
            CHECK(done.next->grant_id == expected);
            CHECK(done.next->token > token);
            const auto grant = hand.served("job", session, expected);
            REQUIRE(grant.has_value());
            CHECK(grant->token == done.next->token);
            CHECK_FALSE(hand.served("job", session, 99).has_value());
            CHECK_FALSE(hand.release("job", holder, grant_id).freed);  // again
            token = done.next->token;
            holder = session;
            grant_id = expected;
        }
        const auto last = hand.release("job", holder, grant_id);
        CHECK(last.freed);
        CHECK_FALSE(last.next.has_value());
        CHECK(database.number("select count(*) from rowlock_waiter") == 0);
        CHECK(database.number("select count(*) from rowlock_lease where session is null") == 1);
        CHECK(hand.acquire("job", 1, 12).token > token);
    }
}

TEST_CASE("whoever looks gives a free lease to the first live waiter, once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const by_hand hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session);
        CHECK(hand.grant_next("job") == 0);  // no row, nobody
        hand.enqueue("job", 2, 22);
        hand.enqueue("job", 3, 33);
        REQUIRE(hand.places_of(2).waiting.size() == 1);
        CHECK(hand.places_of(2).waiting[0].free);
        CHECK(hand.grant_next("job") == 22);  // the row was missing
        CHECK(hand.grant_next("job") == 0);
        CHECK(hand.places_of(2).waiting.empty());
        REQUIRE(hand.places_of(3).waiting.size() == 1);
        CHECK_FALSE(hand.places_of(3).waiting[0].free);
        CHECK(hand.places_of(3).waiting[0].position == 1);
        hand.end(2);
        CHECK(hand.places_of(3).waiting[0].free);
        CHECK(hand.grant_next("job") == 33);
        CHECK(database.number("select count(*) from rowlock_waiter") == 0);
    }
}

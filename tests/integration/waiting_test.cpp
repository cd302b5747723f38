// Standing in line: order, wake-ups, giving up, circles. Races are forced by hooks and locks; where a
// wake-up is the point, the poll interval is 10 s.

#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using support::eventually;
using support::interception;
using support::kind_of;
using steady = std::chrono::steady_clock;

namespace {

/// Until so many tickets stand.
bool places(support::lock_database& database, std::int64_t count) {
    return eventually(
        [&] { return database.number("select count(*) from rowlock_waiter") == count; });
}

bool nobody_holds(support::lock_database& database) {
    return eventually([&] {
        return database.number("select count(*) from rowlock_lease where session is not null") == 0;
    });
}

/// Whether waiters of this client are woken, rather than look.
bool is_woken(const support::lock_database& database) {
    return database.which() == support::backend::postgresql;
}

/// A generous bound for "at once", where the next poll would be seconds away.
constexpr auto at_once = 1s;

/// The poll interval of tests about wake-ups: where nobody wakes us, a poll must be near.
milliseconds far_poll(const support::lock_database& database) {
    return is_woken(database) ? 10s : 100ms;
}

}  // namespace

TEST_CASE("threads and clients are served in the order in which they came") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client first{database.source(), database.options({.poll_interval = far_poll(database)})};
        client second{database.source(), database.options({.poll_interval = far_poll(database)})};
        auto held = first.acquire("job");
        std::mutex guard;
        std::vector<int> order;
        fencing_token last = held.token();
        std::vector<std::future<void>> waiters;
        constexpr int many = 12;
        for (int i = 0; i < many; ++i) {
            waiters.push_back(std::async(std::launch::async, [&, i] {
                auto lease = (i % 3 == 0 ? second : first).acquire("job");
                {
                    const std::lock_guard lock{guard};
                    order.push_back(i);
                    CHECK(lease.token() > last);
                    last = lease.token();
                }
                lease.release();
            }));
            REQUIRE(places(database, i + 1));
        }
        CHECK(first.stats().waiting + second.stats().waiting == many);
        held.release();
        for (auto& each : waiters) each.get();
        for (int i = 0; i < many; ++i) CHECK(order.at(static_cast<std::size_t>(i)) == i);
        CHECK(places(database, 0));
        CHECK(nobody_holds(database));
        CHECK(first.stats().handed_over + second.stats().handed_over == many);
        CHECK(first.stats().waiting == 0);
    }
}

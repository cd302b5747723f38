// Deadlocks among leases and shared_mutexes: one waiter gives way, and no waiter that is in none.
// shows: deadlocks

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::patience;
using enum lock_mode;

namespace {

client_options quick() {
    return {.ttl = 30s, .poll_interval = 200ms};
}

// A cycle that is not found, or a call that fails, must fail the test and not hang the program:
// waits have a limit, except those of an upgrade.

using support::acquire_soon;

mode_lease acquire_soon(shared_mutex& which, lock_mode mode) {
    auto got = which.try_acquire_for(mode, patience);
    if (!got) throw std::runtime_error{"the turn for " + which.name() + " did not come"};
    return std::move(*got);
}

void wait_for(std::promise<void>& event) {
    if (event.get_future().wait_for(patience) != std::future_status::ready) {
        throw std::runtime_error{"another thread did not come so far"};
    }
}

/// Two threads that wait for each other.
class meeting {
public:
    void wait() {
        ++ready_;
        if (!eventually([&] { return ready_ == 2; }, patience)) {
            throw std::runtime_error{"the other thread did not come so far"};
        }
    }

private:
    std::atomic<int> ready_{0};
};

/// Runs `action` on a thread: true if it returned, false if it was the victim of a deadlock.
template <typename Action>
std::future<bool> attempt(Action action) {
    return std::async(std::launch::async, [action] {
        const auto failed = kind_of(action);
        CHECK((failed == errc{} || failed == errc::deadlock));
        return failed == errc{};
    });
}

/// The first has "page" and wants "job", which the second has, and wants "page" in this mode.
/// Returns how many of them got what they want.
int cross(client& first, client& second, lock_mode wanted) {
    shared_mutex theirs{first, "page"};
    shared_mutex ours{second, "page"};
    meeting both;
    auto one = attempt([&] {
        const auto held = acquire_soon(theirs, wanted == exclusive ? shared : exclusive);
        both.wait();
        const auto lease = acquire_soon(first, "job");
    });
    auto two = attempt([&] {
        const auto lease = acquire_soon(second, "job");
        both.wait();
        const auto held = acquire_soon(ours, wanted);
    });
    return int{one.get()} + int{two.get()};
}

}  // namespace

TEST_CASE("a cycle through a shared_mutex and a lease has one victim") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options(quick())};
        client second{database.source(), database.options(quick())};
        auto wanted = exclusive;
        SUBCASE("a writer waits for the reader") {}
        SUBCASE("a reader waits for the writer") {
            wanted = shared;
        }
        const int done = cross(first, second, wanted);
        CHECK(done == 1);
        CHECK(first.stats().deadlocks + second.stats().deadlocks == 1);
        CHECK(shared_mutex{second, "page"}.inspect()->waiting == 0);
        CHECK(first.waiters("job").empty());
    }
}

// The time of an entry has steps, of a millisecond on SQLite, and each kind of lock counts tickets
// of its own.
TEST_CASE("a cycle whose entries have the same time and the same ticket has one victim") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        support::interception network;
        std::mutex one_at_a_time;
        const std::string same = " set enqueued_at = (select max(opened_at) from rowlock_session)";
        network.before([&](std::string_view what) {
            if (what.find("deadlocks") == std::string_view::npos) return;
            const std::lock_guard lock{one_at_a_time};
            database.run("update rowlock_ticket" + same);
            database.run("update rowlock_ticket" + same);
        });
        client first{network.wrap(database.source()), database.options(quick())};
        client second{network.wrap(database.source()), database.options(quick())};
        const int done = cross(first, second, shared);
        CHECK(done == 1);
        CHECK(first.stats().deadlocks + second.stats().deadlocks == 1);
    }
}

TEST_CASE("a cycle of an upgrade that waits for a reader, which waits for its holder, is broken") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options(quick())};
        client second{database.source(), database.options(quick())};
        shared_mutex theirs{first, "page"};
        shared_mutex ours{second, "page"};
        meeting both;
        auto one = attempt([&] {
            const auto lease = acquire_soon(first, "job");
            auto held = acquire_soon(theirs, upgradeable);
            both.wait();
            held.upgrade();
        });
        auto two = attempt([&] {
            const auto held = acquire_soon(ours, shared);
            both.wait();
            const auto lease = acquire_soon(second, "job");
        });
        const int done = int{one.get()} + int{two.get()};
        CHECK(done == 1);
        CHECK(ours.inspect()->waiting == 0);
    }
}

// The reader's own mode fits beside the other reader's: it waits for the writer in line alone.
TEST_CASE("a cycle through a writer that waits in line before a reader is broken") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client reader{database.source(), database.options(quick())};
        client writer{database.source(), database.options(quick())};
        client last{database.source(), database.options(quick())};
        shared_mutex read{reader, "page"};
        shared_mutex write{writer, "page"};
        shared_mutex behind{last, "page"};
        auto job = acquire_soon(last, "job");
        std::promise<void> read_it;
        std::promise<void> all_wait;
        auto waits_for_job = attempt([&] {
            const auto held = acquire_soon(read, shared);
            read_it.set_value();
            wait_for(all_wait);
            const auto lease = acquire_soon(reader, "job");
        });
        wait_for(read_it);
        auto writes = attempt([&] { const auto held = acquire_soon(write, exclusive); });
        REQUIRE(eventually([&] { return write.waiters().size() == 1; }));
        // On this thread, which holds the lease.
        auto reads = std::async(std::launch::async, [&] {
            REQUIRE(eventually([&] { return write.waiters().size() == 2; }));
            all_wait.set_value();
        });
        const bool was_victim =
            kind_of([&] { const auto held = acquire_soon(behind, shared); }) == errc::deadlock;
        job.release();
        reads.get();
        const bool other_was = !waits_for_job.get();
        const bool writer_was = !writes.get();
        CHECK(int{was_victim} + int{other_was} + int{writer_was} == 1);
    }
}

TEST_CASE("threads that read under one grant: a cycle through any of them is found") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client readers{database.source(), database.options(quick())};
        client writer{database.source(), database.options(quick())};
        shared_mutex page{readers, "page", {.reader_linger = 10s}};
        shared_mutex theirs{writer, "page"};
        std::promise<void> joined;
        std::promise<void> writing;
        const auto write_waits = writing.get_future().share();
        bool first_leaves = false;
        SUBCASE("the first of them reads on") {}
        SUBCASE("the first of them has left") {
            first_leaves = true;
        }
        page.lock_shared();
        auto second = attempt([&] {
            const std::shared_lock reading{page};
            joined.set_value();
            write_waits.wait_for(patience);
            const auto lease = acquire_soon(readers, "job");
        });
        wait_for(joined);
        CHECK(page.inspect()->shared == 1);  // they share a grant
        if (first_leaves) page.unlock_shared();
        auto writes = attempt([&] {
            const auto lease = acquire_soon(writer, "job");
            const auto held = acquire_soon(theirs, exclusive);
        });
        REQUIRE(eventually([&] { return theirs.waiters().size() == 1; }));
        writing.set_value();
        const bool went_on = second.get();
        if (!first_leaves) page.unlock_shared();
        const bool wrote = writes.get();
        CHECK(int{went_on} + int{wrote} == 1);
    }
}

// The grant names no thread; else the thread that acquired it would seem to be in a cycle.
TEST_CASE("a thread that has left a grant that others read under is in no cycle through it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client readers{database.source(), database.options(quick())};
        client writer{database.source(), database.options(quick())};
        shared_mutex page{readers, "page", {.reader_linger = 10s}};
        shared_mutex theirs{writer, "page"};
        page.lock_shared();
        std::promise<void> joined;
        std::promise<void> enough;
        std::jthread reads_on{[&] {
            const std::shared_lock reading{page};
            joined.set_value();
            wait_for(enough);
        }};
        wait_for(joined);
        page.unlock_shared();
        auto writes = attempt([&] {
            const auto lease = acquire_soon(writer, "job");
            const auto held = acquire_soon(theirs, exclusive);
        });
        REQUIRE(eventually([&] { return theirs.waiters().size() == 1; }));
        std::jthread ends{[&] {
            std::this_thread::sleep_for(1s);  // a cycle would be found within this time
            enough.set_value();
        }};
        CHECK(kind_of([&] { const auto lease = acquire_soon(readers, "job"); }) == errc{});
        CHECK(writes.get());
        CHECK(readers.stats().deadlocks + writer.stats().deadlocks == 0);
    }
}

// The lease was granted to a queue entry that named the shared hold as well.
TEST_CASE(
    "a lease that was waited for under a shared hold is still its thread's, for later cycles") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options(quick())};
        client second{database.source(), database.options(quick())};
        shared_mutex page{first, "page"};
        auto job = acquire_soon(second, "job");
        std::promise<void> waits;
        std::promise<void> has_report;
        auto one = attempt([&] {
            page.lock_shared();
            const auto mine = acquire_soon(first, "job");  // through the queue
            page.unlock_shared();
            waits.set_value();
            wait_for(has_report);
            const auto next = acquire_soon(first, "report");
        });
        REQUIRE(eventually([&] { return second.waiters("job").size() == 1; }));
        job.release();
        wait_for(waits);
        CHECK(second.inspect("job")->holder->thread.find("readers") == std::string::npos);
        auto two = attempt([&] {
            const auto report = acquire_soon(second, "report");
            has_report.set_value();
            const auto back = acquire_soon(second, "job");
        });
        const int done = int{one.get()} + int{two.get()};
        CHECK(done == 1);
    }
}

TEST_CASE("an upgrade on another thread than the one that acquired is part of its hold's cycles") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options(quick())};
        client second{database.source(), database.options(quick())};
        shared_mutex theirs{first, "page"};
        shared_mutex ours{second, "page"};
        auto hold = acquire_soon(theirs, upgradeable);  // on this thread
        std::promise<void> reads;
        std::promise<void> has_job;
        auto one = attempt([&] {  // on another
            const auto lease = acquire_soon(first, "job");
            has_job.set_value();
            wait_for(reads);
            hold.upgrade();
        });
        wait_for(has_job);
        auto two = attempt([&] {
            const auto held = acquire_soon(ours, shared);
            reads.set_value();
            const auto lease = acquire_soon(second, "job");
        });
        const int done = int{one.get()} + int{two.get()};
        CHECK(done == 1);
        hold = mode_lease{};
        CHECK(ours.inspect()->waiting == 0);
    }
}

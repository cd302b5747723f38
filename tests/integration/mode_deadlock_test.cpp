// Deadlocks among leases and shared_mutexes: one waiter gives way, and no waiter that is in none.
// shows: deadlocks

#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <shared_mutex>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using enum lock_mode;

namespace {

client_options quick() {
    return {.ttl = 30s, .poll_interval = 200ms};
}

/// Runs `action` on a thread: true if it returned, false if it was the victim of a deadlock.
template <typename Action>
std::future<bool> attempt(Action action) {
    return std::async(std::launch::async, [action] {
        const auto failed = kind_of(action);
        CHECK((failed == errc{} || failed == errc::deadlock));
        return failed == errc{};
    });
}

}  // namespace

TEST_CASE("a cycle through a shared_mutex and a lease has one victim") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options(quick())};
        client second{database.source(), database.options(quick())};
        shared_mutex theirs{first, "page"};
        shared_mutex ours{second, "page"};
        auto wanted = exclusive;
        SUBCASE("a writer waits for the reader") {}
        SUBCASE("a reader waits for the writer") {
            wanted = shared;
        }
        std::atomic<int> ready{0};
        const auto both = [&] {
            ++ready;
            while (ready < 2) std::this_thread::yield();
        };
        auto one = attempt([&] {
            const auto held = theirs.acquire(wanted == exclusive ? shared : exclusive);
            both();
            const auto lease = first.acquire("job");
        });
        auto two = attempt([&] {
            const auto lease = second.acquire("job");
            both();
            const auto held = ours.acquire(wanted);
        });
        const int done = int{one.get()} + int{two.get()};
        CHECK(done == 1);
        CHECK(first.stats().deadlocks + second.stats().deadlocks == 1);
        CHECK(ours.inspect()->waiting == 0);
        CHECK(first.waiters("job").empty());
    }
}

TEST_CASE("a cycle of an upgrade that waits for a reader, which waits for its holder, is broken") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options(quick())};
        client second{database.source(), database.options(quick())};
        shared_mutex theirs{first, "page"};
        shared_mutex ours{second, "page"};
        std::atomic<int> ready{0};
        const auto both = [&] {
            ++ready;
            while (ready < 2) std::this_thread::yield();
        };
        auto one = attempt([&] {
            const auto lease = first.acquire("job");
            auto held = theirs.acquire(upgradeable);
            both();
            held.upgrade();
        });
        auto two = attempt([&] {
            const auto held = ours.acquire(shared);
            both();
            const auto lease = second.acquire("job");
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
        auto job = last.acquire("job");
        std::promise<void> read_it;
        std::promise<void> all_wait;
        auto waits_for_job = attempt([&] {
            const auto held = read.acquire(shared);
            read_it.set_value();
            all_wait.get_future().wait();
            const auto lease = reader.acquire("job");
        });
        read_it.get_future().wait();
        auto writes = attempt([&] { const auto held = write.acquire(exclusive); });
        REQUIRE(eventually([&] { return write.waiters().size() == 1; }));
        // On this thread, which holds the lease.
        auto reads = std::async(std::launch::async, [&] {
            REQUIRE(eventually([&] { return write.waiters().size() == 2; }));
            all_wait.set_value();
        });
        const bool was_victim =
            kind_of([&] { const auto held = behind.acquire(shared); }) == errc::deadlock;
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
            write_waits.wait();
            const auto lease = readers.acquire("job");
        });
        joined.get_future().wait();
        CHECK(page.inspect()->shared == 1);  // they share a grant
        if (first_leaves) page.unlock_shared();
        auto writes = attempt([&] {
            const auto lease = writer.acquire("job");
            const auto held = theirs.acquire(exclusive);
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
            enough.get_future().wait();
        }};
        joined.get_future().wait();
        page.unlock_shared();
        auto writes = attempt([&] {
            const auto lease = writer.acquire("job");
            const auto held = theirs.acquire(exclusive);
        });
        REQUIRE(eventually([&] { return theirs.waiters().size() == 1; }));
        std::jthread ends{[&] {
            std::this_thread::sleep_for(1s);  // a cycle would be found within this time
            enough.set_value();
        }};
        CHECK(kind_of([&] { const auto lease = readers.acquire("job"); }) == errc{});
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
        auto job = second.acquire("job");
        std::promise<void> waits;
        std::promise<void> has_report;
        auto one = attempt([&] {
            page.lock_shared();
            const auto mine = first.acquire("job");  // through the queue
            page.unlock_shared();
            waits.set_value();
            has_report.get_future().wait();
            const auto next = first.acquire("report");
        });
        REQUIRE(eventually([&] { return second.waiters("job").size() == 1; }));
        job.release();
        waits.get_future().wait();
        CHECK(second.inspect("job")->holder->thread.find("readers") == std::string::npos);
        auto two = attempt([&] {
            const auto report = second.acquire("report");
            has_report.set_value();
            const auto back = second.acquire("job");
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
        auto hold = theirs.acquire(upgradeable);  // on this thread
        std::promise<void> reads;
        std::promise<void> has_job;
        auto one = attempt([&] {  // on another
            const auto lease = first.acquire("job");
            has_job.set_value();
            reads.get_future().wait();
            hold.upgrade();
        });
        has_job.get_future().wait();
        auto two = attempt([&] {
            const auto held = ours.acquire(shared);
            reads.set_value();
            const auto lease = second.acquire("job");
        });
        const int done = int{one.get()} + int{two.get()};
        CHECK(done == 1);
        hold = mode_lease{};
        CHECK(ours.inspect()->waiting == 0);
    }
}

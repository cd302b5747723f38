// Each allocation and each system call fails, one after the other. The process survives, errors
// have their kinds, and no lease or queue entry of an unfinished call remains.
// shows: fault-failing-calls

#include "support/failing_calls.hpp"

#include "support/lock_database.hpp"
#include "support/waits.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/mutex.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::failing_allocation;
using support::failing_background;
using support::failing_system_call;
using support::system_call;

namespace {

// Frequent heartbeats, since they clean up, and a ttl for which a busy machine is fast enough.
client_options patient(const support::lock_database& database) {
    return database.options({.ttl = 20s, .heartbeat = 100ms});
}

/// Checks that the action fails only as it may when memory runs out.
void no_memory_is_told(const std::function<void()>& action) {
    try {
        action();
    } catch (const error&) {
    } catch (const std::bad_alloc&) {
    }
}

/// Checks that no lease is held and no queue entry remains.
void nothing_is_held(support::lock_database& database) {
    const bool free = eventually(
        [&] {
            return database.number("select count(*) from rowlock_lock where session is not null") +
                       database.number("select count(*) from rowlock_ticket") ==
                   0;
        },
        30s);
    if (free) return;
    for (const std::string table : {"rowlock_lock where session is not null", "rowlock_ticket"}) {
        const auto rows = database.run("select name from " + table + " order by name");
        std::string names;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            names.append(" ").append(rows.text(row, 0));
        }
        CAPTURE(table);
        CHECK_MESSAGE(rows.rows() == 0, "still there:", names);
    }
}

/// Runs `action` with the 1st, 2nd, 3rd … allocation failing, until all succeed. Each run has its
/// own name, so that a row that is left behind shows the allocation.
/// @param step larger than 1 for actions that take long
int with_each_allocation_failing(const std::string& what,
                                 const std::function<void(const std::string&)>& action,
                                 const std::function<void(const std::string&)>& prepare = {},
                                 const std::function<void()>& finish = {}, int step = 1) {
    constexpr int too_many = 3'000;
    for (int nth = 1; nth < too_many; nth += step) {
        const std::string name = what + "/" + std::to_string(nth);
        if (prepare) prepare(name);
        bool happened = false;
        no_memory_is_told([&] {
            const failing_allocation failing{nth};
            struct note {
                const failing_allocation& of;
                bool& happened;
                ~note() { happened = of.happened(); }
            } const noted{failing, happened};
            action(name);
        });
        if (finish) finish();
        if (!happened) return nth;
    }
    FAIL("it never succeeds");
    return 0;
}

/// Checks that the client works again, at once or after one more error of a connection that was
/// opened with too few resources.
void recovers(client& locks, const std::string& name) {
    try {
        CHECK(locks.try_acquire_for(name, 10s).has_value());
    } catch (const error& told) {
        CHECK(told.kind() == errc::read_only);
        CHECK(locks.try_acquire_for(name, 10s).has_value());
    }
}

}  // namespace

TEST_CASE("a failed allocation anywhere in a call leaves no lease held") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::postgresql) {
        client locks{database.source(), patient(database)};
        REQUIRE(locks.try_acquire("warm").has_value());
        const int acquire = with_each_allocation_failing("acquire", [&](const std::string& name) {
            if (auto held = locks.try_acquire(name)) held->release();
        });
        CHECK(acquire > 5);
        std::optional<lease> held;
        with_each_allocation_failing(
            "destroy", [&](const std::string&) { held.reset(); },
            [&](const std::string& name) { held = locks.try_acquire(name); });
        with_each_allocation_failing(
            "release", [&](const std::string&) { held->release(); },
            [&](const std::string& name) {
                held.reset();
                held = locks.try_acquire(name);
            });
        held.reset();
        with_each_allocation_failing("mutex", [&](const std::string& name) {
            rowlock::mutex first{locks, name};
            recursive_mutex second{locks, name + "/2"};
            const std::scoped_lock both{first, second};
            second.lock();
            second.unlock();
        });
        with_each_allocation_failing("look", [&](const std::string& name) {
            (void)locks.inspect(name);
            (void)locks.list();
            (void)locks.waiters(name);
            (void)locks.force_release(name);
            (void)locks.stats();
        });
        nothing_is_held(database);
        CHECK(locks.try_acquire("after").has_value());
    }
}

TEST_CASE("a failed allocation in a queue leaves no queue entry and blocks no waiter") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::postgresql) {
        client locks{database.source(), patient(database)};
        client rival{database.source(), patient(database)};
        std::optional<lease> theirs;
        SUBCASE("of waiters that are not served") {
            with_each_allocation_failing(
                "vain", [&](const std::string& name) { (void)locks.try_acquire_for(name, 1ms); },
                [&](const std::string& name) { theirs = rival.try_acquire(name); });
            theirs.reset();
        }
        SUBCASE("of waiters that are served") {
            std::thread server;
            std::atomic<bool> over{false};
            with_each_allocation_failing(
                "served",
                [&](const std::string& name) {
                    if (auto ours = locks.try_acquire_for(name, 10s)) ours->release();
                },
                [&](const std::string& name) {
                    theirs = rival.try_acquire(name);
                    over = false;
                    server = std::thread{[&rival, &theirs, &over, name] {
                        eventually([&] { return over || !rival.waiters(name).empty(); });
                        theirs.reset();
                    }};
                },
                [&] {
                    over = true;
                    server.join();
                });
        }
        SUBCASE("of a holder that serves a waiter") {
            std::optional<lease> ours;
            std::thread waiter;
            std::atomic<bool> served{true};
            with_each_allocation_failing(
                "serve", [&](const std::string&) { ours->release(); },
                [&](const std::string& name) {
                    ours.reset();
                    ours = locks.try_acquire(name);
                    waiter = std::thread{[&rival, &served, name] {
                        if (!rival.try_acquire_for(name, 20s)) served = false;
                    }};
                    eventually([&] { return !locks.waiters(name).empty(); });
                },
                [&] { waiter.join(); });
            CHECK(served);
        }
        nothing_is_held(database);
    }
}

TEST_CASE("a failed allocation in a fenced transaction commits nothing without the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::postgresql) {
        client locks{database.source(), patient(database)};
        auto db = database.connect();
        const sql::statement begin{database.speaks() == sql::dialect::sqlite ? "begin immediate"
                                                                             : "begin"};
        const sql::statement commit{"commit"};
        const sql::statement rollback{"rollback"};
        with_each_allocation_failing("fence", [&](const std::string& name) {
            const auto held = locks.try_acquire(name);
            if (!held) return;
            try {
                db->execute(begin, {}, support::soon());
                fence(*db, *held);
                db->execute(commit, {}, support::soon());
            } catch (...) {
                if (!db->alive()) {
                    db = database
                             .connect();  // the old connection's transaction locked the lease's row
                } else if (db->transaction() != sql::transaction_state::none) {
                    db->execute(rollback, {}, support::soon());
                }
                throw;
            }
        });
        nothing_is_held(database);
    }
}

TEST_CASE("a failed allocation between a client's construction and destruction keeps no lock") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::postgresql) {
        const auto options = database.options({.ttl = 1s});
        const int last = with_each_allocation_failing(
            "client",
            [&](const std::string& name) {
                client locks{database.source(), options};
                auto held = locks.try_acquire(name);
                auto other = locks.try_acquire(name + "/2");
                if (held) held->release();
            },
            {}, {}, database.which() == support::backend::sqlite ? 1 : 11);
        CHECK(last > 50);
        // Sessions that could not be ended expire.
        client next{database.source(), patient(database)};
        const auto nobody_holds = [&] {
            return std::ranges::none_of(next.list({}, {.limit = 10'000}), [](const auto& each) {
                return each.holder && each.holder->remaining > 0ms;
            });
        };
        CHECK(eventually(nobody_holds));
        CHECK(next.try_acquire("client/" + std::to_string(last)).has_value());
    }
}

TEST_CASE("failed allocations in rowlock's threads neither end the process nor keep a lock") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::postgresql) {
        for (const int every : {1, 3, 17}) {
            CAPTURE(every);
            client locks{database.source(), patient(database)};
            client rival{database.source(), patient(database)};
            const std::string name = "background/" + std::to_string(every);
            REQUIRE(locks.try_acquire("warm").has_value());
            {
                const failing_background failing{every};
                for (int round = 0; round < 20; ++round) {
                    no_memory_is_told([&] {
                        const auto held = locks.try_acquire(name);
                        (void)rival.try_acquire_for(name, 5ms);
                        (void)locks.try_acquire(name + "/deadline", {.max_duration = 20ms});
                        (void)locks.force_release(name);
                    });
                }
                std::this_thread::sleep_for(250ms);  // two heartbeats without memory
                CHECK(failing.failures() > 0);
            }
            REQUIRE(rival.try_acquire_for(name, 20s).has_value());
            REQUIRE(locks.try_acquire_for(name, 20s).has_value());
        }
        nothing_is_held(database);
    }
}

TEST_CASE("a client can be destroyed while all allocations fail") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::postgresql) {
        for (const int every : {1, 2, 7}) {
            std::optional<client> locks;
            locks.emplace(database.source(), database.options({.ttl = 1s}));
            std::optional<lease> held;
            no_memory_is_told([&] { held = locks->try_acquire("end"); });  // or it comes too late
            const failing_background failing{every};
            no_memory_is_told([&] {
                const failing_allocation first{1};
                locks.reset();
            });
        }
        client next{database.source(), patient(database)};
        CHECK(next.try_acquire_for("end", 10s).has_value());
    }
}

TEST_CASE("a failed system call is reported as an error of its kind, and leaves no lease held") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (int which = 0; which < static_cast<int>(system_call::count_of_calls); ++which) {
            const auto call = static_cast<system_call>(which);
            const std::string called = support::to_string(call);
            CAPTURE(called);
            for (int nth = 1; nth <= 40; ++nth) {
                const std::string name =
                    std::string{support::to_string(call)} + "/" + std::to_string(nth);
                CAPTURE(nth);
                client locks{database.source(), patient(database)};
                bool happened = false;
                {
                    const failing_system_call failing{call, nth, nth % 2 == 0 ? 3 : 0};
                    try {
                        client rival{database.source(), patient(database)};
                        const auto held = locks.try_acquire(name);
                        (void)rival.try_acquire_for(name, 5ms);
                    } catch (const error& told) {
                        CHECK(std::string_view{told.what()}.size() > 10);
                    } catch (const std::exception& other) {
                        FAIL_CHECK("not a rowlock::error: ", other.what());
                    }
                    happened = failing.happened();
                }
                recovers(locks, name);
                if (!happened) break;
            }
        }
        nothing_is_held(database);
    }
}

TEST_CASE("a wait goes on while no descriptor for another connection is available") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        client locks{database.source(), patient(database)};
        auto held = locks.acquire("held");
        REQUIRE(eventually([&] { return locks.stats().heartbeats > 0; }));
        client rival{database.source(), patient(database)};
        std::optional<failing_system_call> failing{std::in_place, system_call::socket, 2, 1'000};
        auto waiting =
            std::async(std::launch::async, [&] { return rival.try_acquire_for("held", 20s); });
        CHECK(eventually([&] { return rival.stats().queued == 1 && failing->happened(); }));
        CHECK(waiting.wait_for(300ms) == std::future_status::timeout);
        failing.reset();
        held.release();
        CHECK(waiting.get().has_value());
    }
}

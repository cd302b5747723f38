// Rows that an operator changes by hand, under clients that rely on them.
// shows: promise-5

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::soon;

namespace {

/// The losses that clients reported.
class losses {
public:
    event_callback callback() {
        return [this](const event& what) {
            if (what.kind != event_kind::lease_lost) return;
            const std::lock_guard lock{mutex_};
            reasons_[what.name] = what.reason;
        };
    }
    loss_reason of(const std::string& name) {
        (void)eventually([&] {
            const std::lock_guard lock{mutex_};
            return reasons_.contains(name);
        });
        const std::lock_guard lock{mutex_};
        return reasons_[name];
    }

private:
    std::mutex mutex_;
    std::map<std::string, loss_reason> reasons_;
};

std::string remedy_of(client& locks, const std::string& name) {
    try {
        (void)locks.try_acquire(name);
    } catch (const error& failure) {
        return failure.what();
    }
    return {};
}

}  // namespace

TEST_CASE("a client detects within five heartbeats that a lease's row was changed by hand") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        losses told;
        auto options = database.watchful({.on_event = told.callback()});
        options.heartbeat = 1s;  // not many of them pass while the machine stalls
        client locks{database.source(), options};
        client other{database.source(), database.options()};
        std::map<std::string, lease> held;
        for (const char* name : {"deleted", "freed", "raised", "lowered", "zeroed", "untouched"}) {
            locks.acquire(name).release();
            held.emplace(name, locks.acquire(name));
        }
        database.run("delete from rowlock_lease where name = 'deleted'");
        database.run("update rowlock_lease set session = null where name = 'freed'");
        database.run("update rowlock_lease set token = token + 5 where name = 'raised'");
        database.run("update rowlock_lease set token = token - 1 where name = 'lowered'");
        database.run("update rowlock_lease set token = 0 where name = 'zeroed'");
        const auto before = locks.stats().heartbeats;

        for (const char* name : {"deleted", "freed", "raised", "lowered", "zeroed"}) {
            CAPTURE(name);
            CHECK(eventually([&] { return !held.at(name).held(); }));
            CHECK(told.of(name) == loss_reason::forced_release);
        }
        CHECK(locks.stats().heartbeats - before <= 5);
        CHECK(held.at("untouched").held());
        CHECK(locks.stats().sessions == 1);

        // Control: the session's row is unchanged, so a heartbeat alone succeeds.
        const auto session =
            database.number("select id from rowlock_session where ttl_us = 60000000");
        CHECK(database.protocol().heartbeat(*database.connect(), session_id{session}, 0, soon()));

        REQUIRE(eventually([&] {
            return database.number("select floor from rowlock_token_floor") >=
                   held.at("lowered").token().value();
        }));
        for (const char* name : {"deleted", "freed", "raised", "lowered", "zeroed"}) {
            CAPTURE(name);
            CHECK(support::acquire_soon(other, name).token() > held.at(name).token());
        }
        CHECK_FALSE(other.try_acquire("untouched"));

        const bool sqlite = database.speaks() == sql::dialect::sqlite;
        database.run(sqlite ? "delete from rowlock_lease" : "truncate table rowlock_lease");
        const auto till_now = locks.stats().heartbeats;
        CHECK(eventually([&] { return !held.at("untouched").held(); }));
        CHECK(locks.stats().heartbeats - till_now <= 5);
    }
}

TEST_CASE("a client detects that the token of its permits, or of its mode, was lowered by hand") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const char* lowered : {"0", "token - 1"}) {
            CAPTURE(lowered);
            client locks{database.source(), database.watchful()};
            semaphore api{locks, "api"};
            shared_mutex page{locks, "page"};
            api.set_capacity(1);
            api.acquire().release();
            page.acquire(lock_mode::exclusive).release();
            const auto permit = api.acquire();
            const auto mode = page.acquire(lock_mode::exclusive);
            database.run("update rowlock_permit set token = " + std::string{lowered});
            CHECK(eventually([&] { return permit.lost().stop_requested(); }));
            CHECK(eventually([&] { return mode.lost().stop_requested(); }));
            client other{database.source(), database.options()};
            semaphore same{other, "api"};
            shared_mutex copy{other, "page"};
            const auto next = same.try_acquire_for(1, support::patience);
            REQUIRE(next);
            CHECK(next->token() > permit.token());
            const auto writer = copy.try_acquire_for(lock_mode::exclusive, support::patience);
            REQUIRE(writer);
            CHECK(writer->token() > mode.token());
        }
    }
}

TEST_CASE("a client with many leases reads their rows three thousand a second at most") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        constexpr int leases = 900;
        support::interception network;
        std::mutex mutex;
        std::vector<std::chrono::steady_clock::time_point> began;
        std::vector<std::chrono::steady_clock::time_point> ended;
        const auto note = [&](auto& into) {
            return [&](std::string_view name) {
                if (name != "held_leases") return;
                const std::lock_guard lock{mutex};
                into.push_back(std::chrono::steady_clock::now());
            };
        };
        network.before(note(began));
        network.after(note(ended));
        client locks{network.wrap(database.source()), database.options({.heartbeat = 20ms})};
        std::vector<lease> held;
        for (int i = 0; i < leases; ++i) held.push_back(locks.acquire("job " + std::to_string(i)));
        const auto reads = [&](const auto& which) {
            const std::lock_guard lock{mutex};
            return which.size();
        };
        // One that has begun before may have been of fewer leases.
        const auto before = reads(began);
        REQUIRE(eventually([&] { return reads(ended) >= before + 3; }));
        const std::lock_guard lock{mutex};
        for (auto i = before + 1; i < before + 3; ++i) {
            CHECK(began[i] - ended[i - 1] >= leases * 333us);
        }
    }
}

TEST_CASE("a client detects with its next heartbeat that its session's row was deleted by hand") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        losses told;
        auto options = database.watchful({.on_event = told.callback()});
        options.heartbeat = 3s;  // no two of them pass while the machine stalls
        client locks{database.source(), options};
        const auto job = locks.acquire("job");
        const auto before = locks.stats().heartbeats;
        database.run("delete from rowlock_session");
        CHECK(eventually([&] { return !job.held(); }));
        CHECK(told.of("job") == loss_reason::session_ended);
        CHECK(locks.stats().heartbeats - before <= 1);
        CHECK(locks.try_acquire("job").has_value());
    }
}

TEST_CASE("a waiter whose queue entry is deleted by hand enqueues again") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options({.poll_interval = 100ms})};
        auto job = holder.acquire("job");
        auto waiting =
            std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "job"); });
        REQUIRE(support::places(database, 1));
        const auto ticket = database.number("select ticket from rowlock_waiter");
        database.run("delete from rowlock_waiter");
        CHECK(eventually([&] {
            return database.number("select coalesce(max(ticket), 0) from rowlock_waiter") > ticket;
        }));
        job.release();
        CHECK(waiting.get().held());
    }
}

TEST_CASE("without the row of the token floor nothing is granted, and the error says so") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto job = locks.acquire("job");
        locks.acquire("free").release();
        client waiter{database.source(), database.options()};
        database.run("delete from rowlock_token_floor");
        for (const char* name : {"new", "free"}) {
            CAPTURE(name);
            CHECK(remedy_of(locks, name).find("token floor") != std::string::npos);
            CHECK(remedy_of(locks, name).find("docs/migrations.md") != std::string::npos);
            CHECK(remedy_of(waiter, name).find("token floor") != std::string::npos);
        }
        CHECK(job.held());
    }
}

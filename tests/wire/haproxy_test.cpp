// Behind HAProxy in TCP mode, which cuts idle connections and may lead to another server.

#include "support/haproxy.hpp"

#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/waits.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::soon;

TEST_CASE("idle connections that a proxy cuts cost neither a lease nor a queue entry") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb) {
        const auto proxy = support::haproxy::start(database.url(), 700ms);
        if (!proxy) return;
        const auto source = database.at(proxy->url());
        const auto options = database.options({.ttl = 30s, .heartbeat = 1500ms});
        client holder{source, options};
        client second{source, options};
        client third{source, options};
        auto held = holder.acquire("behind a proxy");
        auto first_waiter = std::async(
            std::launch::async, [&] { return second.try_acquire_for("behind a proxy", 2min); });
        REQUIRE(eventually([&] { return holder.waiters("behind a proxy").size() == 1; }));
        auto second_waiter = std::async(
            std::launch::async, [&] { return third.try_acquire_for("behind a proxy", 2min); });
        REQUIRE(eventually([&] { return holder.waiters("behind a proxy").size() == 2; }));
        // The proxy has cut the connections that were idle between two heartbeats.
        const auto before = holder.stats().heartbeats;
        REQUIRE(eventually([&] { return holder.stats().heartbeats >= before + 2; }, 60s));
        CHECK(holder.stats().reconnects > 0);
        CHECK(held.held());
        CHECK(holder.waiters("behind a proxy").size() == 2);
        held.release();
        auto next = first_waiter.get();
        REQUIRE(next);
        CHECK(next->held());
        CHECK(second_waiter.wait_for(0s) == std::future_status::timeout);
        next->release();
        const auto last = second_waiter.get();
        REQUIRE(last);
        CHECK(last->held());
        CHECK(second.stats().lost == 0);
    }
}

TEST_CASE("a proxy that switches to another server costs the leases, and the events say why") {
    const auto check = [](support::server which) {
        CAPTURE(which == support::server::postgresql);
        auto first = support::own_server::start(which);
        const auto second = support::own_server::start(
            which, {.arguments = which == support::server::mariadb
                                     ? std::vector<std::string>{"--server-id=2"}
                                     : std::vector<std::string>{}});
        if (!first || !second) return;
        migrate(open(first->url()));
        migrate(open(second->url()));
        // The users differ, and the proxy forwards the client's.
        const auto user_of = [](const std::string& url) { return url.substr(0, url.rfind('@')); };
        const auto proxy = support::haproxy::start(first->url(), 1min, second->url());
        if (!proxy) return;
        if (user_of(first->url()) != user_of(second->url())) {
            const auto password =
                user_of(first->url()).substr(user_of(first->url()).rfind(':') + 1);
            open(second->url())
                .connect(soon())
                ->query(which == support::server::postgresql
                            ? "alter role rowlock password '" + password + "'"
                            : "alter user rowlock@'%' identified by '" + password + "'",
                        soon());
        }
        std::atomic<bool> server_changed{false};
        client holder{
            open(proxy->url()),
            {.ttl = 1min, .heartbeat = 500ms, .margin = 1s, .on_event = [&](const event& what) {
                 if (what.kind == event_kind::lease_lost &&
                     what.reason == loss_reason::server_changed) {
                     server_changed = true;
                 }
             }}};
        const auto held = holder.acquire("led astray");
        first->stop();
        REQUIRE(eventually([&] { return !held.held(); }, 60s));
        CHECK(eventually([&] { return server_changed.load(); }));
        // The client goes on at the other server.
        CHECK(holder.try_acquire_for("led astray", 20s));
    };
    // Servers take seconds to start.
    auto aside = std::async(std::launch::async, check, support::server::mariadb);
    check(support::server::postgresql);
    aside.get();
}

// A call that changes something, and whose attempt was not answered: no later failure says that
// nothing was done. The reply to each statement of each such call is lost in turn, and nothing is
// sent after it.

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/election.hpp>
#include <rowlock/periodic_run.hpp>
#include <rowlock/rowlock.hpp>
#include <rowlock/semaphore.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::interception;
using support::kind_of;

namespace {

/// A call that is about to be made, and whether the database shows its change.
struct pending {
    std::function<void()> make;
    std::function<bool()> is_made;
};

struct change {
    const char* what;
    std::function<pending(client& by, client& other, const std::string& name)> prepare;
    std::string shown_by{};  ///< what no client tells: SQL that counts its rows, less the name
};

pending of_lease(client& by, client& other, const std::string& name,
                 const std::function<void(lease&)>& make,
                 const std::function<bool(const holder_info&)>& is_made) {
    auto held = std::make_shared<lease>(by.acquire(name, {.max_duration = 20s}));
    return {[=] { make(*held); },
            [=, &other] {
                const auto seen = other.inspect(name);
                return !seen || !seen->holder || is_made(*seen->holder);
            }};
}

pending of_permits(client& by, client& other, const std::string& name,
                   const std::function<void(permits&)>& make,
                   const std::function<bool(const permit_holder&)>& is_made) {
    semaphore limit{other, name};
    limit.set_capacity(5);
    auto held = std::make_shared<permits>(semaphore{by, name}.acquire(3, {.max_duration = 20s}));
    return {[=] { make(*held); },
            [=, &other] {
                const auto seen = semaphore{other, name}.holders();
                return seen.empty() || is_made(seen.front());
            }};
}

const std::vector<change>& changes() {
    static const std::vector<change> all{
        {"lease::extend",
         [](client& by, client& other, const std::string& name) {
             return of_lease(
                 by, other, name, [](lease& held) { held.extend(50s); },
                 [](const holder_info& seen) { return seen.remaining > 25s; });
         }},
        {"permits::extend",
         [](client& by, client& other, const std::string& name) {
             return of_permits(
                 by, other, name, [](permits& held) { held.extend(50s); },
                 [](const permit_holder& seen) { return seen.who.remaining > 25s; });
         }},
        {"permits::release",
         [](client& by, client& other, const std::string& name) {
             return of_permits(
                 by, other, name, [](permits& held) { held.release(1); },
                 [](const permit_holder& seen) { return seen.permits < 3; });
         }},
        {"client::request_release",
         [](client& by, client& other, const std::string& name) {
             return of_lease(
                 other, other, name,
                 [&by](lease& held) {
                     static_cast<void>(
                         by.request_release(held.name(), held.token(), {.within = 30s}));
                 },
                 [](const holder_info& seen) { return seen.asked.has_value(); });
         }},
        {"client::force_release",
         [](client& by, client& other, const std::string& name) {
             return of_lease(
                 other, other, name, [&by](lease& held) { by.force_release(held.name()); },
                 [](const holder_info&) { return false; });
         }},
        {"semaphore::request_release",
         [](client& by, client& other, const std::string& name) {
             return of_permits(
                 other, other, name,
                 [&by](permits& held) {
                     static_cast<void>(
                         semaphore{by, held.name()}.request_release(held.token(), {.within = 30s}));
                 },
                 [](const permit_holder&) { return false; });
         },
         "select count(*) from rowlock_hold where requested = 1 and name = "},
        {"semaphore::force_release",
         [](client& by, client& other, const std::string& name) {
             return of_permits(
                 other, other, name,
                 [&by](permits& held) {
                     semaphore{by, held.name()}.force_release(held.token());
                 },
                 [](const permit_holder&) { return false; });
         }},
        {"semaphore::set_capacity",
         [](client& by, client& other, const std::string& name) {
             return pending{[=, &by] {
                                semaphore{by, name}.set_capacity(5);
                            },
                            [=, &other] {
                                return semaphore{other, name}.inspect().has_value();
                            }};
         }},
        {"semaphore::create",
         [](client& by, client& other, const std::string& name) {
             return pending{[=, &by] {
                                semaphore{by, name}.create(5);
                            },
                            [=, &other] {
                                return semaphore{other, name}.inspect().has_value();
                            }};
         }},
        {"client::set_max_hold",
         [](client& by, client& other, const std::string& name) {
             return pending{[=, &by] { by.set_max_hold(name, 1h); },
                            [=, &other] { return other.max_hold(name).has_value(); }};
         }},
        {"leadership::proclaim",
         [](client& by, client& other, const std::string& name) {
             auto term = std::make_shared<leadership>(
                 election{by, name, {.value = "a"}}.try_campaign().value());
             return pending{[=] { term->proclaim("b"); },
                            [=, &other] {
                                const auto seen = election{other, name}.leader();
                                return seen && seen->value == "b";
                            }};
         }},
        {"periodic_run::finish",
         [](client& by, client& other, const std::string& name) {
             auto run = std::make_shared<periodic_run>(periodic_run::begin(by, name).run.value());
             return pending{[=] { run->finish(); },
                            [=, &other] {
                                const auto seen = periodic_run::inspect(other, name);
                                return seen && seen->finished;
                            }};
         }},
    };
    return all;
}

/// Loses the reply to this thread's nth statement, and sends none after it.
class cut_after {
public:
    cut_after(interception& network, int nth) : network_{network}, left_{nth} {
        const auto self = std::this_thread::get_id();
        network_.before([this, self](std::string_view) {
            if (std::this_thread::get_id() == self && left_ == 0) interception::refuse_to_send();
        });
        network_.after([this, self](std::string_view) {
            if (std::this_thread::get_id() == self && --left_ == 0) interception::lose_reply();
        });
    }
    cut_after(const cut_after&) = delete;
    cut_after& operator=(const cut_after&) = delete;
    ~cut_after() {
        network_.before({});
        network_.after({});
    }
    [[nodiscard]] bool happened() const { return left_ <= 0; }

private:
    interception& network_;
    int left_;
};

}  // namespace

// shows: promise-6
ROWLOCK_SIMULATED_CASE("a call whose change may have been made does not say that nothing was done",
                       database) {
    client other{database.source(), database.options({.ttl = 60s})};
    for (const auto& each : changes()) {
        CAPTURE(std::string{each.what});
        interception network;
        client by{network.wrap(database.source()),
                  database.options(
                      {.ttl = 60s, .heartbeat = 20s, .retry = {.attempts = 2, .backoff = 1ms}})};
        int unknown = 0;
        bool cut = true;
        for (int nth = 1; cut && nth < 40; ++nth) {
            CAPTURE(nth);
            const auto name = std::string{each.what} + "/" + std::to_string(nth);
            const auto change = each.prepare(by, other, name);
            errc told{};
            {
                const cut_after here{network, nth};
                told = kind_of(change.make);
                cut = here.happened();
            }
            const bool made = each.shown_by.empty()
                                  ? change.is_made()
                                  : database.number(each.shown_by + "'" + name + "'") > 0;
            CAPTURE(to_string(told));
            CHECK((told == errc{} || told == errc::outcome_unknown ||
                   told == errc::database_unreachable));
            if (made) CHECK(told != errc::database_unreachable);
            if (made && told == errc::outcome_unknown) ++unknown;
        }
        CHECK_FALSE(cut);
        CHECK(unknown > 0);
    }
}

// F42: an operator changes the tables by hand.

#include "fault/frame.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>

#include <array>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using support::eventually;
using steady = std::chrono::steady_clock;

constexpr milliseconds ttl = 30s;
constexpr milliseconds heartbeat = 300ms;
constexpr milliseconds five_heartbeats = 5 * heartbeat;

struct edit {
    const char* what;
    const char* sql;
};

constexpr std::array edits{
    edit{"a lease was deleted", "delete from rowlock_lock where name = '"},
    edit{"a lease was freed", "update rowlock_lock set session = null where name = '"},
    edit{"a token was raised", "update rowlock_lock set token = token + 9 where name = '"},
    edit{"a token was lowered", "update rowlock_lock set token = 0 where name = '"}};

void change_by_hand(trial& in, support::lock_database& database) {
    const milliseconds slack = 300ms;  // for the machine
    rowlock::client locks{
        database.source(),
        database.options({.ttl = ttl, .heartbeat = heartbeat, .margin = heartbeat / 2})};
    rowlock::client other{database.source(), database.options({.ttl = 60s})};
    for (int round = 0; round < in.rounds(); ++round) {
        const auto& how = edits[static_cast<std::size_t>(round) % edits.size()];
        const auto name = "job-" + std::to_string(round);
        locks.acquire(name).release();
        const auto mine = locks.acquire(name);
        const auto sessions = locks.stats().sessions;
        const auto at = steady::now();
        database.run(how.sql + name + "'");
        in.must(eventually([&] { return !mine.held(); }, 10s),
                std::string{"the holder never knew that "} + how.what);
        in.took(steady::now() - at, std::string{"until the holder knew that "} + how.what,
                five_heartbeats + slack);
        in.must(locks.stats().sessions == sessions, "the whole session was lost");
        if (database.number("select count(*) from rowlock_session where ended = " +
                            std::string{database.speaks() == rowlock::sql::dialect::postgresql
                                            ? "false"
                                            : "0"}) >= 1) {
            in.unprotected("the session alone does not tell");
        }
        // The holder raises the floor once it detects the change.
        in.must(eventually([&] {
                    const auto next = other.try_acquire(name);
                    return next && next->token() > mine.token();
                }),
                "a token fell");
        in.made();
    }
    rowlock::lease last = locks.acquire("last");
    database.run("delete from rowlock_session where ttl_us = " + std::to_string(ttl.count()) +
                 "000");
    in.must(eventually([&] { return !last.held(); }, 10s), "a deleted session was not noticed");
    database.run("delete from rowlock_token_floor");
    try {
        (void)other.try_acquire("none");
        in.violation("something was granted without the token floor");
    } catch (const rowlock::error& failure) {
        in.must(std::string{failure.what()}.find("token floor") != std::string::npos,
                "the message does not name the token floor");
    }
}

const fault::on_databases f42{{.id = "F42",
                               .what = "an operator changes rows by hand",
                               .databases = fault::all_databases,
                               .quick_rounds = 4,
                               .full_rounds = 100,
                               .run = change_by_hand,
                               .control_inside = true,
                               .neighbours = fault::beside::few}};

}  // namespace

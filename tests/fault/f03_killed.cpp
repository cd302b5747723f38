// F3, F4 and F6: holders and waiters that are killed, and waiters whose session has ended.

#include "fault/holders.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>
#include <rowlock/reaper.hpp>

#include <algorithm>
#include <future>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::duration;
using fault::name_of;
using fault::trial;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

constexpr milliseconds ttl = 2400ms;
constexpr milliseconds poll = 500ms;

// --- F3 ----------------------------------------------------------------------------------------

struct killed_holder {
    steady::time_point last_heartbeat;
    rowlock::session_id session{};
    std::int64_t token = 0;
};

/// Kills a holder, and reads from the database how long its session still has to live.
killed_holder kill_one(fault::holders& all, std::size_t i, rowlock::client& locks,
                       milliseconds its_ttl) {
    all[i].kill();
    const auto diary = all.diary(i);
    const auto found = locks.inspect(name_of(static_cast<int>(i)));
    const auto now = steady::now();
    if (!found || !found->holder) throw fault::not_prepared{"freed before it was checked"};
    return {now - (its_ttl - found->holder->remaining), diary.session, diary.token};
}

/// Whether the dead session had expired, by the database's clock, when the lease was granted again.
bool over_before_the_grant(support::lock_database& database, int i, rowlock::session_id session) {
    return database.number(
               "select count(*) from rowlock_session s, rowlock_lock l where l.name = '" +
               name_of(i) + "' and s.id = " + to_string(session) +
               " and s.expires_at > l.acquired_at") == 0;
}

void kill_holders_of(trial& in, support::lock_database& database, milliseconds its_ttl) {
    constexpr int at_once = 5;
    for (int left = in.rounds(); left > 0; left -= at_once) {
        const int count = std::min(left, at_once);
        std::vector<fault::holder_role> parts;
        for (int i = 0; i < count; ++i) {
            parts.push_back({.name = name_of(i), .ttl = its_ttl, .poll = poll});
        }
        fault::holders doomed{database, parts};
        rowlock::client locks{database.source(), database.options({.poll_interval = poll})};
        std::vector<std::future<std::pair<rowlock::lease, steady::time_point>>> line;
        for (int i = 0; i < count; ++i) {
            line.push_back(std::async(std::launch::async, [&locks, i] {
                auto lease = support::acquire_soon(locks, name_of(i));
                return std::pair{std::move(lease), steady::now()};
            }));
        }
        fault::await_places(database, count);
        std::vector<killed_holder> killed;
        for (int i = 0; i < count; ++i) {
            killed.push_back(kill_one(doomed, static_cast<std::size_t>(i), locks, its_ttl));
        }
        for (int i = 0; i < count; ++i) {
            const auto each = static_cast<std::size_t>(i);
            const auto [lease, at] = line[each].get();
            in.made();
            in.took(at - killed[each].last_heartbeat, "from the last heartbeat to the next grant");
            in.must(lease.token().value() > killed[each].token, "the token did not grow");
            in.must(over_before_the_grant(database, i, killed[each].session),
                    "granted while the dead holder's session was not over");
        }
    }
}

const fault::on_databases f3{
    {.id = "F3",
     .what = "kill -9 of the holder",
     .databases = fault::all_databases,
     .quick_rounds = 5,
     .full_rounds = 100,
     .bound = ttl + poll,
     .run = [](trial& in, support::lock_database& database) { kill_holders_of(in, database, ttl); },
     // Shows that the bound is measured: a session with a longer ttl is detected too late.
     .control = [](trial& in,
                   support::lock_database& database) { kill_holders_of(in, database, 2 * ttl); }}};

// --- F4 ----------------------------------------------------------------------------------------

constexpr int waiters = 12;
const std::vector<std::size_t> killed_places{0, 4, 5, 11};

struct served_line {
    std::vector<stress::observed_hold> holds{};  ///< in the order of their tokens
    bool whole = true;                           ///< no waiter lost its session and entry
    stress::micros released = 0;
};

/// Waiters that enqueue one after the other and note when they are served.
served_line serve_a_line(support::lock_database& database, bool barging) {
    rowlock::reap(database.source(),
                  database.reaping(60s, 10s));  // deletes entries of the round before
    rowlock::client holder{database.source(), database.options({.ttl = 20s})};
    auto held = holder.acquire("lock-0");
    stress::crew crew{database};
    for (int i = 0; i < waiters; ++i) {
        stress::role part;
        part.count = 1;
        part.ttl_ms = static_cast<int>(ttl.count());
        part.poll_ms = static_cast<int>(poll.count());
        part.fails_when_cut_off = true;
        part.barging = barging;
        crew.add(part);
    }
    int place = 0;
    for (const auto& each : crew.members()) {
        each->begin();
        ++place;
        if (barging) {
            std::this_thread::sleep_for(5ms);
        } else {
            fault::await_places(database, place);
        }
    }
    for (const auto each : killed_places) crew.members()[each]->kill();
    served_line line{.released = stress::boot_time()};
    held.release();
    for (const auto& each : crew.members()) {
        if (!each->killed() && !each->done(30s)) throw std::runtime_error{"a waiter still waits"};
    }
    const auto past = crew.past();
    line.holds = past.holds;
    std::ranges::sort(line.holds, {}, &stress::observed_hold::token);
    line.whole = std::ranges::find(past.attempts, "the_lock_was_lost", &stress::attempt::result) ==
                 past.attempts.end();
    crew.stop();
    return line;
}

void kill_waiters(trial& in, support::lock_database& database, bool barging) {
    for (int i = 0; i < in.rounds(); ++i) {
        const auto line = serve_a_line(database, barging);
        in.made();
        if (!in.must_alone(line.whole, "a waiter was blocked until its session was over")) return;
        const auto& served = line.holds;
        in.must(served.size() == waiters - killed_places.size(), "not all were served");
        in.must(std::ranges::is_sorted(served, {}, &stress::observed_hold::process),
                "not in the order of arrival");
        if (!barging && !served.empty()) {
            in.took(fault::micros_to_duration(served.back().acquired - line.released),
                    "until all others were served");
        }
    }
}

const fault::on_databases f4{
    {.id = "F4",
     .what = "kill -9 of waiters at the head, in the middle, at the tail",
     .databases = fault::all_databases,
     .quick_rounds = 2,
     .full_rounds = 25,
     .bound = ttl + poll,
     .run = [](trial& in, support::lock_database& database) { kill_waiters(in, database, false); },
     // Without tickets there is no order.
     .control = [](trial& in,
                   support::lock_database& database) { kill_waiters(in, database, true); },
     .neighbours = fault::beside::few}};

// --- F6 ----------------------------------------------------------------------------------------

constexpr milliseconds heartbeat = ttl / 3;

std::int64_t only_waiting_session(support::lock_database& database) {
    return database.number("select max(session) from rowlock_ticket");
}

/// The result of a waiter's only call, once it has returned.
stress::attempt end_of_call(stress::crew& crew, std::size_t which) {
    auto& member = *crew.members().at(which);
    if (!member.done(20s)) return {};
    stress::history all;
    all.read(member.log(), 0);
    return all.attempts.at(0);
}

/// Ends the session while its process runs, as if others had found it expired.
stress::micros end_its_session(support::lock_database& database, stress::member&) {
    const auto at = stress::boot_time();
    database.run("update rowlock_session set ended = true where id = " +
                 std::to_string(only_waiting_session(database)));
    return at;
}

/// Stops the process until its session has expired, and ends that. Returns the time of SIGCONT.
stress::micros stop_it_until_it_is_over(support::lock_database& database, stress::member& one) {
    const auto session = std::to_string(only_waiting_session(database));
    const bool sqlite = database.which() == support::backend::sqlite;
    if (sqlite) database.run("begin immediate");
    one.pause();
    if (sqlite) database.run("commit");
    const bool over = support::eventually([&] {
        rowlock::reap(database.source(), database.reaping(60s, 10s));
        return database.number("select count(*) from rowlock_session where id = " + session +
                               " and not ended") == 0;
    });
    if (!over) throw std::runtime_error{"no client ended the session"};
    const auto at = stress::boot_time();
    one.resume();
    return at;
}

void end_waiting_sessions(trial& in, support::lock_database& database) {
    rowlock::client holder{database.source(), database.options({.ttl = 20s})};
    const auto held = holder.acquire("lock-0");
    for (int i = 0; i < in.rounds(); ++i) {
        for (const auto how : {end_its_session, stop_it_until_it_is_over}) {
            stress::crew crew{database};
            stress::role part;
            part.count = 1;
            part.ttl_ms = static_cast<int>(ttl.count());
            part.poll_ms = static_cast<int>(poll.count());
            part.fails_when_cut_off = true;
            auto& waiter = crew.add(part);
            crew.begin();
            fault::await_places(database, 1);
            const auto from = how(database, waiter);
            const auto call = end_of_call(crew, 0);
            in.made();
            if (in.must(call.returned != 0, "the call does not end")) {
                in.must(call.result == "the_lock_was_lost", "the call ended with: " + call.result);
                in.took(fault::micros_to_duration(call.returned - from), "until the call failed");
            }
            crew.stop();
            rowlock::reap(database.source(), database.reaping(60s, 10s));
            fault::await_places(database, 0);
        }
    }
    in.must(held.held(), "the holder lost its lock");
}

/// A queue entry without a client that checks whether its session still lives.
void wait_for_the_turn_alone(trial& in, support::lock_database& database) {
    rowlock::client holder{database.source(), database.options({.ttl = 20s})};
    auto held = holder.acquire("lock-0");
    const auto& protocol = database.protocol();
    const auto& queue = database.queue();
    const auto db = database.connect();
    constexpr rowlock::session_id session{7};
    protocol.sessions().open(*db, {session, "naive", "host", "program", 1, 60s}, support::soon());
    queue.enqueue(*db, {"lock-0", session, rowlock::grant_id{70}, "1", "", std::nullopt},
                  support::soon());
    database.run("update rowlock_session set ended = true where id = 7");
    held.release();
    const bool served = support::eventually(
        [&] { return database.number("select count(*) from rowlock_lock where session = 7") == 1; },
        heartbeat);
    if (!served) in.violation("the lock is free, and the waiter still waits");
}

const fault::on_databases f6{{.id = "F6",
                              .what = "a waiter's own session ends while the holder lives",
                              .databases = fault::all_databases,
                              .quick_rounds = 2,
                              .full_rounds = 50,
                              .bound = heartbeat,
                              .run = end_waiting_sessions,
                              .control = wait_for_the_turn_alone}};

}  // namespace

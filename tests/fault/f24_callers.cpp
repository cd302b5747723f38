// F24 and F27: mistakes of the program itself.

#include "fault/frame.hpp"
#include "stress/history.hpp"
#include "support/failure.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>
#include <rowlock/mutex.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using rowlock::errc;
using std::chrono::milliseconds;
using support::eventually;
using support::kind_of;
using steady = std::chrono::steady_clock;

// --- F24 ---------------------------------------------------------------------------------------

constexpr milliseconds ttl = 9s;
constexpr milliseconds heartbeat = 1s;
constexpr milliseconds tolerance = 100ms;
constexpr milliseconds block = 10s;

/// The time of a signal.
class signal_time {
public:
    void note() { at_ = stress::boot_time(); }
    [[nodiscard]] bool came() const { return at_ != 0; }
    [[nodiscard]] stress::micros at() const { return at_; }

private:
    std::atomic<stress::micros> at_{0};
};

/// Four leases, of which two are lost. The callback of the first blocks.
void block_callbacks(trial& in, support::lock_database& database) {
    std::atomic<int> events{0};
    const auto on_event = [&](const rowlock::event&) {
        if (events++ == 0) std::this_thread::sleep_for(block);
        throw std::runtime_error{"the user's"};
    };
    rowlock::client locks{
        database.source(),
        database.options({.ttl = ttl, .heartbeat = heartbeat, .on_event = on_event})};
    rowlock::client other{database.source(), database.options()};
    auto a = locks.acquire("a");
    auto b = locks.acquire("b");
    auto c = locks.acquire("c");
    auto d = locks.acquire("d");
    signal_time a_lost;
    signal_time a_lost_again;
    signal_time b_lost;
    // The callbacks of one stop_token run one after another, the last one first.
    const std::stop_callback second{a.lost(), [&] { a_lost_again.note(); }};
    const std::stop_callback first{a.lost(), [&] {
                                       a_lost.note();
                                       std::this_thread::sleep_for(block);
                                   }};
    const std::stop_callback another{b.lost(), [&] { b_lost.note(); }};

    in.must(other.force_release("a"), "nothing was forced");
    in.must(eventually([&] { return a_lost.came(); }), "lost() does not fire");
    const auto blocked = steady::now();
    const auto beats = locks.stats().heartbeats;
    const auto at = stress::boot_time();
    in.must(other.force_release("b"), "nothing was forced");
    if (in.must(eventually([&] { return b_lost.came(); }, block),
                "lost() of another does not fire")) {
        in.took(std::chrono::microseconds{b_lost.at() - at}, "until another lease's lost() fired");
    }
    while (steady::now() < blocked + block - 100ms) {
        in.must(c.held() && d.held(), "a lease that no call touched was lost");
        std::this_thread::sleep_for(20ms);
    }
    const auto most = static_cast<std::uint64_t>(block / heartbeat);
    in.must_alone(locks.stats().heartbeats >= beats + most - 1, "heartbeats were left out");
    in.must_alone(locks.stats().heartbeat_failures == 0, "heartbeats failed");
    in.must(events > 0, "no event was delivered");
    if (!a_lost_again.came() || a_lost_again.at() - a_lost.at() > 1000 * in.bound().count()) {
        in.unprotected("a callback after one that blocks");
    }
    in.must(eventually([&] { return a_lost_again.came(); }), "a callback never ran");
    in.must(eventually([&] { return events > 4; }), "events stopped after one that threw");
    c.release();
    d.release();
    in.made();
}

const fault::on_databases f24{{.id = "F24",
                               .what = "callbacks block for seconds, and throw",
                               .databases = fault::all_databases,
                               .quick_rounds = 1,
                               .full_rounds = 6,
                               .bound = heartbeat + tolerance,
                               .run =
                                   [](trial& in, support::lock_database& database) {
                                       for (int i = 0; i < in.rounds(); ++i) {
                                           block_callbacks(in, database);
                                       }
                                   },
                               .control_inside = true,
                               .neighbours = fault::beside::few}};

// --- F27 ---------------------------------------------------------------------------------------

/// Runs it on another thread.
errc kind_elsewhere(const std::function<void()>& action) {
    return std::async(std::launch::async, [&] { return kind_of(action); }).get();
}

rowlock::grant_id holder_of(support::lock_database& database, const std::string& name) {
    const auto found = database.run(
        "select grant_id from rowlock_lock where session is not null and name = '" + name + "'");
    return found.empty() ? rowlock::grant_id{} : found.integer<rowlock::grant_id>(0, 0);
}

template <typename Mutex>
void misuse(trial& in, support::lock_database& database, rowlock::client& locks,
            rowlock::client& other, const std::string& name) {
    Mutex mine{locks, name};
    Mutex theirs{other, name};
    in.must(kind_of([&] { mine.release(); }) == errc::not_owner, "unlock of a free lock");
    mine.lock();
    const auto grant = holder_of(database, name);
    in.must(kind_elsewhere([&] { mine.release(); }) == errc::not_owner, "unlock by another thread");
    in.must(kind_of([&] { theirs.release(); }) == errc::not_owner, "unlock by another owner");
    theirs.unlock();  // causes only an event
    std::thread{[&] { mine.unlock(); }}.join();
    in.must(mine.held() && holder_of(database, name) == grant, "a foreign unlock freed the lock");
    mine.release();
    theirs.lock();
    const auto newer = holder_of(database, name);
    in.must(kind_of([&] { mine.release(); }) == errc::not_owner, "double unlock");
    in.must(theirs.held() && holder_of(database, name) == newer,
            "a double unlock freed another's lock");
    theirs.release();
}

/// Unlocks after the lock was lost and another client has it.
template <typename Mutex>
void unlock_late(trial& in, support::lock_database& database, rowlock::client& locks,
                 rowlock::client& other, const std::string& name) {
    Mutex mine{locks, name};
    mine.lock();
    other.force_release(name);
    auto newer = support::acquire_soon(other, name);
    in.must(kind_of([&] { mine.release(); }) == errc::lock_lost, "unlock of a lost lock");
    in.must(kind_of([&] { mine.release(); }) == errc::not_owner, "a second unlock of a lost lock");
    in.must(newer.held() && holder_of(database, name) == newer.grant_id(),
            "an unlock after the loss freed another's lock");
    newer.release();
}

/// The session has expired: its client could not reach the database.
void unlock_expired(trial& in, support::lock_database& database, rowlock::client& other) {
    rowlock::client locks{database.source(), database.options({.ttl = 10s})};
    auto lease = locks.acquire("expired");
    rowlock::mutex lock{locks, "expired too"};
    lock.lock();
    const auto session = to_string(lease.session_id());
    // As a client that finds it expired does.
    database.run("update rowlock_session set ended = true where id = " + session);
    auto newer = support::acquire_soon(other, "expired");
    auto newer_too = support::acquire_soon(other, "expired too");
    in.must(kind_of([&] { lease.release(); }) == errc::lock_lost, "release after expiry");
    in.must(kind_of([&] { lock.release(); }) == errc::lock_lost, "unlock after expiry");
    in.must(holder_of(database, "expired") == newer.grant_id() &&
                holder_of(database, "expired too") == newer_too.grant_id(),
            "a release after expiry freed another's lock");
}

void release_twice(trial& in, support::lock_database& database, rowlock::client& locks,
                   rowlock::client& other) {
    auto lease = locks.acquire("twice");
    lease.release();
    auto newer = support::acquire_soon(other, "twice");
    in.must(kind_of([&] { lease.release(); }) == errc{}, "a second release is not silent");
    in.must(!lease.held(), "a released lease is held");
    in.must(newer.held() && holder_of(database, "twice") == newer.grant_id(),
            "a second release freed another's lock");
}

void misuse_locks(trial& in, support::lock_database& database) {
    rowlock::client locks{database.source(), database.options()};
    rowlock::client other{database.source(), database.options()};
    for (int i = 0; i < in.rounds(); ++i) {
        misuse<rowlock::mutex>(in, database, locks, other, "mutex");
        misuse<rowlock::recursive_mutex>(in, database, locks, other, "recursive");
        unlock_late<rowlock::mutex>(in, database, locks, other, "late");
        unlock_late<rowlock::recursive_mutex>(in, database, locks, other, "late recursive");
        release_twice(in, database, locks, other);
        unlock_expired(in, database, other);
        in.made();
    }
    in.must(locks.stats().lost == 2 * static_cast<std::uint64_t>(in.rounds()),
            "others' leases were lost");
    in.must(support::nobody_holds(database), "a hold is left");
}

/// A release that checks only the name.
void release_by_name(trial& in, support::lock_database& database) {
    rowlock::client other{database.source(), database.options()};
    auto newer = other.acquire("job");
    database.run("update rowlock_lock set session = null where name = 'job'");
    if (holder_of(database, "job") != newer.grant_id()) in.violation("another's lock was freed");
}

const fault::on_databases f27{{.id = "F27",
                               .what = "unlock by a stranger, twice, after the loss",
                               .databases = fault::all_databases,
                               .quick_rounds = 10,
                               .full_rounds = 500,
                               .run = misuse_locks,
                               .control = release_by_name}};

}  // namespace

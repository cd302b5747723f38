#pragma once

#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/reaper.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock {

/// @addtogroup options
/// @{

/// When and how often a failed call is repeated: reconnects, deadlock victims, serialization
/// failures, a busy SQLite file. Contention for a lock is not a failure and is not governed by this
/// policy.
struct retry_policy {
    /// 1 = never repeat. The pauses between ten attempts add up to 2.1 to 4.3 s: most fail-overs of
    /// a proxy and every deadlock storm seen in tests are over by then.
    int attempts = 10;
    /// First pause; each further one is twice as long, up to max_backoff. 20 ms is a few round
    /// trips.
    std::chrono::milliseconds backoff{20};
    /// The longest pause. After 1 s at most a server that is back is found.
    std::chrono::milliseconds max_backoff{std::chrono::seconds{1}};
    /// Each pause is shortened at random by up to this fraction, so that clients that lost their
    /// connections together do not reconnect together.
    double jitter = 0.5;
    /// No pause begins later than this after the first attempt, or ends after the caller's limit.
    std::chrono::milliseconds total{std::chrono::seconds{10}};
    /// Replaces all of the above: given the failure, the number of attempts made and the time since
    /// the first, returns the pause before the next attempt, or nullopt to give up. Thread-safe.
    std::function<std::optional<std::chrono::milliseconds>(const error&, int attempts,
                                                           std::chrono::milliseconds elapsed)>
        decide = {};

    /// The pause before the next attempt, or nullopt to give up.
    [[nodiscard]] std::optional<std::chrono::milliseconds> next(
        const error& failure, int attempts_made, std::chrono::milliseconds elapsed) const;
};

/// The client's own clock: CLOCK_BOOTTIME, which keeps running while the machine sleeps. Tests
/// replace it by rowlock::testing::manual_clock.
class time_source {
public:
    virtual ~time_source() = default;
    /// The time since a moment in the past that stays the same. Never goes back. Thread-safe.
    [[nodiscard]] virtual std::chrono::nanoseconds now() const noexcept = 0;
    /// Calls `wake` each time a clock that is moved by hand has moved, until the returned handle is
    /// destroyed.
    [[nodiscard]] virtual std::shared_ptr<void> on_advance(std::function<void()> wake) = 0;
};

/// How a waiter learns of its grant, and a holder that another client requested or took its lock.
/// In every mode the client still polls each poll_interval, and the heartbeat remains.
enum class wakeup_mode : unsigned char {
    /// A client on this machine (in the same network namespace of Linux) is notified directly, by a
    /// kernel datagram; any other client by the database.
    automatic,
    /// PostgreSQL: LISTEN/NOTIFY, for waiters and holders. Elsewhere for waiters only: on MySQL and
    /// MariaDB a statement that sleeps in the server and is interrupted, on SQLite changes of the
    /// file; holders there are not woken. Where that is impossible (a transaction pooler, SOCI): as
    /// `polling`.
    database,
    /// Polls the table, soon at first, then with growing pauses up to poll_interval.
    polling,
};

/// What counts as one party of a deadlock cycle.
enum class deadlock_detection : unsigned char {
    off,  ///< cycles are not looked for
    /// The acquiring thread. Correct where the thread that acquired a lease also releases it, as
    /// with a mutex. A lease handed to another thread hides a cycle or fakes one.
    by_thread,
    /// The whole client. Correct for one job at a time per client; in a client with independent
    /// threads it reports cycles that would have dissolved.
    by_client,
};

/// What a waiter does when its session is lost, or the database stays unreachable for longer than
/// retry_policy retries. A waiter is a call that has found the lock held and has time left.
enum class when_cut_off : unsigned char {
    /// The call fails: errc::lock_lost if the session is over, else with the failure itself.
    fail,
    /// The call goes on until its own time limit or stop: as soon as the database answers, it opens
    /// a new session and takes a new queue entry, at the end of the queue
    /// (event_kind::queue_entry_lost).
    /// It waits likewise for a server that has no connection left, from the first attempt on. A
    /// thread that holds another lease of this client fails as above: that lease may be lost too.
    requeue,
};

/// The order in which waiters are served.
enum class queueing : unsigned char {
    /// In ticket order: a queue entry confirmed before another was requested is served before it.
    fair,
    /// A spin lock: does not enqueue, but polls with growing pauses (spin_pauses) and takes the
    /// lease whenever it is free, overtaking the queue. Writes nothing while waiting. Can starve.
    barging,
};

/// The pauses of a caller that spins (queueing::barging). Each is half as long again as the one
/// before, up to the longest, and shortened at random by up to half, so that callers which found
/// the lock held together do not come back together. Each costs a read.
struct spin_pauses {
    /// 1 ms to one day. 20 ms is a few round trips, and many times the time of a short hold.
    std::chrono::milliseconds first{20};
    /// 0 = client_options::poll_interval, or `first` if that is longer. At least `first`, up to one
    /// day.
    std::chrono::milliseconds longest{0};
};

/// Options of a client, validated once by its constructor (errc::invalid_options).
struct client_options {
    /// The session's time to live: how long leases outlive a client that vanishes. 30 s forgives a
    /// long garbage collection or a database restart and still frees a crashed worker's job soon.
    /// 100 ms to 1 day.
    std::chrono::milliseconds ttl{std::chrono::seconds{30}};
    /// 0 = ttl/3, so that two heartbeats in a row may fail before the trust window ends.
    std::chrono::milliseconds heartbeat{0};
    /// 0 = ttl/6. How much earlier than the database the client stops trusting its leases: covers
    /// clock rates that differ and the time the holder needs to stop working. The margin is kept
    /// even if the database is back earlier, unless the holder reports that it stopped (lease.hpp).
    /// heartbeat + margin must stay under ttl.
    std::chrono::milliseconds margin{0};
    /// The longest pause between two polls of the queues that the client waits in (one statement
    /// for all its waiters). The holder's expiry is checked exactly when due. 1 s bounds the cost
    /// of a lost wake-up and costs little. Up to one day.
    std::chrono::milliseconds poll_interval{std::chrono::seconds{1}};
    /// See wakeup_mode.
    rowlock::wakeup_mode wake_ups = wakeup_mode::automatic;
    /// A waiter that would close a cycle of waiters fails with errc::deadlock. Costs one read per
    /// wait and poll, only in a client that holds a lease while it waits for another.
    rowlock::deadlock_detection deadlock_detection = deadlock_detection::by_thread;
    /// See when_cut_off. By default an acquire() keeps waiting: most callers could only call it
    /// again.
    rowlock::when_cut_off when_cut_off = when_cut_off::requeue;
    /// For one statement, connecting included, enforced by the server where it can and by the
    /// client. Up to one minute: the reaper's grace depends on it. 5 s is beyond any healthy
    /// statement and within a third of the ttl.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// Open connections, besides the one reserved for the heartbeat, and one for a fence that is
    /// refused: its transaction may have locked what all others wait for. Calls beyond this limit
    /// wait for a free connection within their own deadline. Four keep a server's disk busy:
    /// simultaneous commits share a flush. SQLite uses at most two: one writer. 1 to 1 000.
    int max_connections = 4;
    /// One connection for everything: calls, waits and heartbeats alternate on it, a statement at a
    /// time, heartbeats first. For programs that run in many processes at once, such as `rowlock
    /// run`, each waiting for and holding one lease. A heartbeat waits at most 100 ms for a
    /// statement that waits for a locked row (MySQL, MariaDB: 1 s); if one stalls, the client opens
    /// a second connection, which replaces the first. On MySQL and MariaDB the database does not
    /// wake a waiter, and a hand-over from another machine is noticed after up to a poll_interval.
    /// No effect on SQLite, where a connection is an open file.
    bool single_connection = false;
    /// Name of this process, stable across restarts, for reclaim(); unique among live processes.
    /// Empty: a random one, and no reclaim(). At most 255 bytes; it may not begin with `random:`.
    std::string owner = {};
    /// Shown beside the host name and pid. Empty: the executable's name. At most 255 bytes.
    std::string program = {};
    /// Called for each event: see event_callback.
    event_callback on_event = {};
    /// The class that a lock's name counts under in metrics::prometheus(), such as "report" for
    /// "report/2024-11-03": names themselves would make a time series each. Text of 1 to 64 bytes
    /// of UTF-8; whatever else it returns or throws, and every class after the first 64, counts as
    /// "other". Empty: there are no classes. Called once by each acquire and once for each grant,
    /// on any thread: it must be thread-safe, must not block, and must not call this client.
    std::function<std::string(std::string_view name)> metric_class = {};
    /// Of each call that talks to the database.
    retry_policy retry = {};
    /// Runs a reaper thread in this client, from its first session on, if set. Its statement
    /// timeout is taken from here.
    std::optional<reaper_options> reaper = {};
    /// For tests only.
    std::shared_ptr<time_source> time = {};
};

/// Options of one acquisition.
struct acquire_options {
    /// Shown to people beside the lease. Up to 1 000 bytes of UTF-8.
    std::string note = {};
    /// The lease ends this long after its grant, unless it is extended (lease::extend()): for work
    /// that must not run on indefinitely. Its deadline is the moment at which it ends. It counts as
    /// lost before that, by the margin or by a sixth of max_duration, whichever is less. A grant
    /// that arrives too late for the deadline is given back; after three, errc::timed_out. 10 ms to
    /// 366 days.
    std::optional<std::chrono::milliseconds> max_duration = {};
    /// See rowlock::queueing.
    rowlock::queueing queueing = queueing::fair;
    spin_pauses spin = {};  ///< for queueing::barging
};

/// Terms of client::request_release.
struct request_options {
    /// How long the holder may take, at least until its session would have expired without another
    /// heartbeat. 0: it loses the lease when it learns of the request. Up to 366 days.
    std::chrono::milliseconds within{0};
    /// Shown to the holder if `within` is not 0. Up to 1 000 bytes of UTF-8.
    std::string reason = {};
};

/// Options of a watch.
struct watch_options {
    /// The longest time that a change stays unnoticed. Each poll is a light read by key. 10 ms to
    /// one day.
    std::chrono::milliseconds poll_interval{250};
};

/// @}

}  // namespace rowlock

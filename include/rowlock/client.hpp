#pragma once

#include <rowlock/ids.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lease_offer.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/multi_lease.hpp>
#include <rowlock/options.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/stats.hpp>
#include <rowlock/timeout.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock {

class client;

namespace detail {
class engine;
class member_access;
struct hold;
}  // namespace detail

namespace metrics {
[[nodiscard]] std::string prometheus(const client& locks);
}

class lock_watch;
struct page;
struct reclaimed_holds;
struct semaphore_info;
struct shared_mutex_info;

/// @addtogroup leases
/// @{

/// The holder of a lock, for people. Text comes from other programs: escape it for a terminal.
struct holder_info {
    session_id session{};                   ///< its session in the database
    rowlock::grant_id grant_id{};           ///< of the grant that it holds
    std::string owner{};                    ///< client_options::owner, or a random one
    std::string host{};                     ///< its host name
    std::string program{};                  ///< client_options::program
    std::string thread{};                   ///< that acquired it
    std::string note{};                     ///< acquire_options::note
    std::int64_t pid = 0;                   ///< of its process
    std::chrono::milliseconds held_for{0};  ///< since the grant
    /// Until the holder's session or the lease's own deadline expires, by the database's clock, if
    /// no further heartbeat comes; negative if past.
    std::chrono::milliseconds remaining{0};
    /// Of a lease: its release was asked for, within a time that `remaining` shows. An empty
    /// `asked_by`: at once, by another client, or by a reaper (client::set_max_hold).
    std::optional<release_request> asked{};
};

/// Snapshot of a lock that the database knows.
struct lease_info {
    std::string name{};                         ///< of the lock
    fencing_token token{};                      ///< of the latest grant; 0: unknown
    std::chrono::milliseconds changed{0};       ///< since the last grant or release
    std::optional<holder_info> holder{};        ///< empty: free
    std::int64_t waiting = 0;                   ///< live waiters in its queue
    std::chrono::milliseconds longest_wait{0};  ///< of the first waiter
};

/// A waiter for a lock, for people. Text comes from other programs: escape it for a terminal.
struct waiter_info {
    std::string name{};                   ///< of the lock
    std::int64_t position = 0;            ///< 1 = served next
    ticket_no ticket{};                   ///< its number in the queue
    session_id session{};                 ///< its session in the database
    std::string owner{};                  ///< client_options::owner, or a random one
    std::string host{};                   ///< its host name
    std::string program{};                ///< client_options::program
    std::string thread{};                 ///< that waits
    std::string note{};                   ///< acquire_options::note
    std::int64_t pid = 0;                 ///< of its process
    std::chrono::milliseconds waited{0};  ///< since it entered the queue
    std::int64_t locks = 1;               ///< how many it waits for at once (client::acquire_all)
    std::int64_t priority = 0;            ///< of a candidate: election.hpp
};

/// A page of client::list, by name.
struct page {
    std::string after = {};  ///< the last name of the previous page
    int limit = 100;         ///< 1 to 10 000
};

/// Start here: a client opens one session in the database and acquires leases in it; one heartbeat
/// keeps all of them. One client per process is the rule. Thread-safe.
///
/// The constructor connects to nothing: a client may be built while the database is down. The first
/// call that needs the database opens the session (two more round trips) and reports what is wrong.
/// Leases of a lost session stay lost; the next acquire opens a new session.
///
/// Errors of every call that talks to the database: errc::database_unreachable, access_denied,
/// read_only, out_of_resources, schema_outdated, timed_out, outcome_unknown, database_error; after
/// the retries of retry_policy. In a forked child every call throws errc::wrong_process.
class client {
public:
    /// @throws error errc::invalid_options
    explicit client(sql::connection_source source, client_options options = {});
    /// Releases what is held, within twice statement_timeout; leases that still exist become inert
    /// and count as lost. These leases, and those lost before, have no margin: the next holder may
    /// follow at once.
    ~client();
    client(const client&) = delete;
    client& operator=(const client&) = delete;

    /// Waits until the lock is granted. One round trip if it is free (two on MySQL/MariaDB). If it
    /// is held, one more round trip enqueues the caller, and the thread sleeps; a waiter whose
    /// queue entry is requested after this one was confirmed is served later. All waiters of a
    /// client share one light read per poll. A time limit or a stop ends the wait within 50 ms,
    /// even if the database does not answer; the statements before the wait have a
    /// statement_timeout each.
    ///
    /// A thread that acquires a name it holds waits for its own lease. Deadlock detection does not
    /// report that, as another thread may release the lease; rowlock::mutex does. A waiter survives
    /// the end of its session and an outage of the database but loses its queue entry
    /// (client_options::when_cut_off). Until the lock is found held, retry_policy applies.
    /// @throws error errc::lock_lost if the session ended during the wait and when_cut_off is
    /// `fail`, or the thread holds another lease: the queue entry is gone, and so are the leases of
    /// this client; errc::deadlock if this waiter closes a cycle of waiters and is the youngest in
    /// it
    [[nodiscard]] lease acquire(const lock_name& name, const acquire_options& options = {});
    /// The same; empty if and only if `stop` was requested first. (A template, like the others that
    /// take a std::stop_token, so that `{}` always stands for the options.)
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<lease> acquire(const lock_name& name, Stop stop,
                                               const acquire_options& options = {}) {
        return acquire_until(name, time_point::max(), std::move(stop), options);
    }
    /// One attempt; empty if another caller holds the lock or waits for it. One round trip without
    /// a write.
    [[nodiscard]] std::optional<lease> try_acquire(const lock_name& name,
                                                   const acquire_options& options = {});
    /// Waits up to `timeout`; empty if the lock was held all that time. A timeout ≤ 0: as
    /// try_acquire(). No attempt starts after the limit; one that runs has its statement_timeout.
    /// @throws error errc::timed_out if the limit passed before the lock was found held or free; if
    /// the last attempt before the limit failed, its error instead
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<lease> try_acquire_for(
        const lock_name& name, const std::chrono::duration<Rep, Period>& timeout,
        const acquire_options& options = {}) {
        return acquire_until(name, detail::after(timeout), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Rep, typename Period, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<lease> try_acquire_for(
        const lock_name& name, const std::chrono::duration<Rep, Period>& timeout, Stop stop,
        const acquire_options& options = {}) {
        return acquire_until(name, detail::after(timeout), std::move(stop), options);
    }
    /// As try_acquire_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] std::optional<lease> try_acquire_until(
        const lock_name& name, const std::chrono::time_point<Clock, Duration>& until,
        const acquire_options& options = {}) {
        return acquire_until(name, detail::at(until), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Clock, typename Duration, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<lease> try_acquire_until(
        const lock_name& name, const std::chrono::time_point<Clock, Duration>& until, Stop stop,
        const acquire_options& options = {}) {
        return acquire_until(name, detail::at(until), std::move(stop), options);
    }

    /// Several locks at once, 1 to 16, each as a whole, in a mode, or some permits of a semaphore:
    /// all of them, or none.
    ///
    ///     auto transfer = locks.acquire_all({"account-1", "account-2"});
    ///     auto report = locks.acquire_all({{"prices", rowlock::lock_mode::shared}, "stock"});
    ///
    /// One round trip if they are free and no client waits for any of them (two on MySQL/MariaDB,
    /// and one more each with a part among them), in one commit. Otherwise the caller is
    /// enqueued for all of them at one moment, and takes them, in one commit again, when all are
    /// free and it is the first to wait for each. It never holds some of them while it waits for
    /// others, so two such calls cannot wait for each other, whatever the order of the names; and
    /// no client that asks later for one of the names overtakes it. The price: a free lock stays
    /// idle while its first waiter waits for another. Otherwise as acquire().
    /// @throws error errc::would_deadlock if this thread holds one of the locks already;
    /// errc::invalid_options for no name, a name given twice, or more than 16; for the name of a
    /// semaphore without permits, and for permits that none has, or not as many; for a part with
    /// queueing::barging, which stands in no queue
    [[nodiscard]] multi_lease acquire_all(const std::vector<lock_request>& wanted,
                                          const acquire_options& options = {});
    /// The same; empty if and only if `stop` was requested first.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<multi_lease> acquire_all(const std::vector<lock_request>& wanted,
                                                         Stop stop,
                                                         const acquire_options& options = {}) {
        return acquire_all_until(wanted, time_point::max(), std::move(stop), options);
    }
    /// One attempt, as try_acquire(); empty if another holds or waits for one of the locks.
    [[nodiscard]] std::optional<multi_lease> try_acquire_all(
        const std::vector<lock_request>& wanted, const acquire_options& options = {});
    /// As try_acquire_for(): waits up to `timeout`, or until `stop` is requested.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<multi_lease> try_acquire_all_for(
        const std::vector<lock_request>& wanted, const std::chrono::duration<Rep, Period>& timeout,
        const acquire_options& options = {}) {
        return acquire_all_until(wanted, detail::after(timeout), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Rep, typename Period, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<multi_lease> try_acquire_all_for(
        const std::vector<lock_request>& wanted, const std::chrono::duration<Rep, Period>& timeout,
        Stop stop, const acquire_options& options = {}) {
        return acquire_all_until(wanted, detail::after(timeout), std::move(stop), options);
    }

    /// For a supervised singleton that was restarted: ends the sessions of its predecessors, those
    /// with the same client_options::owner, and takes their holds over with new tokens, in one
    /// transaction, without waiting for the ttl; see reclaim.hpp. Permits and modes that another
    /// client has asked for, holds that were taken, and those past their own deadline, end. Two
    /// live processes with one owner would end each other's sessions, without the margin. Call it
    /// before any acquire.
    /// @throws error errc::invalid_options without an owner; errc::lock_lost while the margin of a
    /// lease that this client lost still runs and its holder has not stopped
    [[nodiscard]] reclaimed_holds reclaim();

    /// Takes over a lease that another client offers (lease::offer()), in one transaction: from its
    /// commit on this client holds it, with a new token, and the giver's fences fail. Waits for a
    /// transaction that the giver has fenced with it, as long as retry_policy repeats a statement
    /// that timed out. The lease keeps its note, its deadline (acquire_options::max_duration) and
    /// another client's request for its release, and belongs to no thread. Returns nullopt if that
    /// grant is over: it was withdrawn or lost, asked for at once, another client has adopted it,
    /// or the giver's session has ended; or if its deadline is too near. So keep the giver's client
    /// until then. A failure leaves the offer as it was: call again. Nine or ten round trips.
    ///
    /// Nothing here can tell an offer of another client from a lease whose holder still works under
    /// it: adopt what lease::offer() returned, not what inspect() shows.
    /// @throws error errc::invalid_options if a number of the offer is missing, or if this client
    /// holds the lease and has not offered it
    [[nodiscard]] std::optional<lease> adopt(const lease_offer& offer);

    /// Whether a live holder has the lock, or a part of it, now, by the database's clock; waiters
    /// do not count. For people and monitoring: the answer may be outdated when it arrives. To work
    /// only if the lock is free use try_acquire(); for a lease of this client lease::held() costs
    /// no round trip. Changes nothing and needs no session. One round trip.
    [[nodiscard]] bool is_locked(const lock_name& name);

    /// Whether this client holds a lock of that name, of any kind and by any of its threads, as
    /// lease::held() knows it: from the return of the call that acquired it to its release or loss.
    /// No round trip.
    [[nodiscard]] bool holds(const lock_name& name) const;
    /// For code that must run under a lock: refuses to go on without it. No round trip.
    /// @throws error errc::not_owner if this client does not hold a lock of that name
    void assert_held(const lock_name& name) const;

    /// State of one name; empty if it was never locked, or has been reaped, and has no waiter. One
    /// round trip.
    [[nodiscard]] std::optional<lease_info> inspect(const lock_name& name);
    /// State of the names that start with `prefix`, in byte order. One round trip.
    [[nodiscard]] std::vector<lease_info> list(std::string_view prefix = {}, const page& page = {});

    /// Follows the holders of one name; see watch.hpp. No round trip.
    /// @throws error errc::invalid_options
    [[nodiscard]] lock_watch watch(const lock_name& name, const watch_options& options = {});

    /// The live waiters of one name, in the order in which they will be served;
    /// election::candidates has the order of an election. One round trip.
    [[nodiscard]] std::vector<waiter_info> waiters(const lock_name& name);

    /// Asks the holder to give the lock up: the holder loses its lease, with
    /// loss_reason::release_requested. It learns of that at once on the same machine and on
    /// PostgreSQL, and with its next heartbeat where it cannot be woken (see wakeup_mode). The lock
    /// becomes free when that lease is released or destroyed, otherwise when the holder's session
    /// would have expired without another heartbeat. That takes no longer than the returned time: a
    /// ttl of the holder's, so that the whole margin lies between its lost() and the next holder.
    /// Returns nullopt if the lock is free, or held by another grant than `holder`, from inspect().
    /// A lease whose own deadline comes before that keeps it. Six to nine round trips.
    ///
    /// With request_options::within the holder keeps the lease for that time, learns who asks and
    /// why (lease::release_requested()), and loses it the margin before the time is over, if it has
    /// not released it.
    /// @throws error errc::invalid_options
    std::optional<std::chrono::milliseconds> request_release(const lock_name& name,
                                                             fencing_token holder,
                                                             const request_options& options = {});

    /// Takes the lock from its holder at once, without the margin, although that holder may still
    /// be working. Raises the token, so that the holder's fenced writes fail at once; the holder
    /// learns of the loss as it does of a request. Returns true if the lock was held.
    bool force_release(const lock_name& name);
    /// Only if the grant with that token, from inspect(), still holds the lock; otherwise returns
    /// false and changes nothing.
    bool force_release(const lock_name& name, fencing_token holder);

    /// Limits how long one grant of this name may be held: a lease, or a hold of a semaphore or a
    /// shared_mutex of the name. From 10 ms to 366 days; nullopt removes the limit. It is kept in
    /// the database until it is removed, and counts for grants that are held at this moment too.
    ///
    /// A reaper enforces it (client_options::reaper, `rowlock reap`); without one no limit has any
    /// effect. Each of its rounds asks for the release of what has been held for longer by the
    /// database's clock, at once, as request_release() does: the holder's lost() fires, and the
    /// whole margin lies before the next holder. So a hold ends at most the limit, the time between
    /// two rounds, a round, and a ttl of its holder after its acquisition; one that `rowlock
    /// acquire` took, at its own deadline if that is later. A fenced transaction that keeps the
    /// hold's row locked delays the request.
    ///
    /// The time counts from the acquisition. A renewal (`rowlock renew`, lease::extend()), an
    /// upgrade and an adoption (adopt()) do not start it anew; a reclaim() does. A round that has
    /// begun may still ask by an earlier limit. Latches and barriers have no limit. Needs no
    /// session. One round trip.
    /// @throws error errc::invalid_options
    void set_max_hold(const lock_name& name, std::optional<std::chrono::milliseconds> limit);
    /// The limit of this name, as set_max_hold() has set it; nullopt if there is none. Needs no
    /// session. One round trip.
    [[nodiscard]] std::optional<std::chrono::milliseconds> max_hold(const lock_name& name);

    /// Counters of this client. No round trip.
    [[nodiscard]] client_stats stats() const;
    /// client_options::owner, or the random one.
    [[nodiscard]] const std::string& owner() const noexcept;

private:
    friend class double_barrier;
    friend class election;
    friend class latch;
    friend class detail::member_access;
    friend class mutex;
    friend class periodic_run;
    friend class recursive_mutex;
    friend class semaphore;
    friend class shared_mutex;
    friend std::string metrics::prometheus(const client& locks);
    friend std::vector<semaphore_info> list_semaphores(client& locks, std::string_view prefix,
                                                       const page& page);
    friend std::vector<shared_mutex_info> list_shared_mutexes(client& locks,
                                                              std::string_view prefix,
                                                              const page& page);

    using time_point = std::chrono::steady_clock::time_point;

    std::optional<lease> acquire_until(const lock_name& name, time_point until,
                                       std::stop_token stop, const acquire_options& options);
    std::optional<multi_lease> acquire_all_until(const std::vector<lock_request>& wanted,
                                                 time_point until, std::stop_token stop,
                                                 const acquire_options& options);

    std::shared_ptr<detail::engine> engine_;
};

/// @}

}  // namespace rowlock

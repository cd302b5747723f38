#pragma once

#include <rowlock/client.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lock_mode.hpp>
#include <rowlock/lock_name.hpp>
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

/// @addtogroup shared
/// @{

namespace detail {
class mode_holds;
}  // namespace detail

/// Options of a hold of a shared_mutex.
struct mode_options {
    /// Shown to people. Up to 1 000 bytes of UTF-8.
    std::string note = {};
    /// As acquire_options::max_duration: the hold ends this long after its grant, without renewal.
    std::optional<std::chrono::milliseconds> max_duration = {};
    /// Threads of one client that lock_shared() use one grant together: a thread joins that of
    /// another, without a round trip, until so long after it was granted. A writer waits for the
    /// longest reader and for this time. 0, or with a max_duration: each has a grant of its own.
    /// For acquire() it has no meaning. At most an hour.
    std::chrono::milliseconds reader_linger = std::chrono::milliseconds{20};
};

/// A hold of a shared_mutex, until it is destroyed. It behaves as a lease: see there, also for
/// threads, loss and a forked child. upgrade(), downgrade(), extend() and release() may be called
/// from one thread at a time.
class [[nodiscard]] mode_lease {
public:
    mode_lease() noexcept;  ///< holds nothing, as if released
    /// To change the mode of what was acquired with other locks (client::acquire_all), as a lease,
    /// or reclaimed. No round trip. If it throws, the lease holds what it held.
    /// @throws error errc::not_owner if it holds nothing; errc::invalid_options for permits of a
    /// semaphore
    explicit mode_lease(lease&& hold);
    /// `other` holds nothing then.
    mode_lease(mode_lease&& other) noexcept;
    /// Releases what it held before, as the destructor does.
    mode_lease& operator=(mode_lease&& other) noexcept;
    ~mode_lease();

    /// Of the shared_mutex.
    [[nodiscard]] const std::string& name() const noexcept;
    /// `shared` if it holds nothing.
    [[nodiscard]] lock_mode mode() const noexcept;
    /// Greater than those of all grants that were over when this one was made. An upgrade brings a
    /// new one, so a token of an exclusive hold is greater than those of all exclusive holds before
    /// it.
    [[nodiscard]] fencing_token token() const noexcept;
    /// As lease::held().
    [[nodiscard]] bool held() const noexcept;
    explicit operator bool() const noexcept { return held(); }  ///< held()
    /// As lease::remaining().
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// As lease::lost().
    [[nodiscard]] std::stop_token lost() const;
    /// As lease::release_requested() and lease::release_request(). Threads of a client that share a
    /// grant (mode_options::reader_linger) share its requests. They stand if the hold is upgraded.
    [[nodiscard]] std::stop_token release_requested() const;
    /// As lease::release_request().
    [[nodiscard]] std::optional<rowlock::release_request> release_request() const;
    /// Releases it, upgraded or not. One round trip (two on MySQL/MariaDB), and some to serve
    /// waiters if there were any lately. Errors as lease::release().
    void release();

    /// As lease::extend(), of a hold with a max_duration. Five round trips.
    void extend(std::chrono::milliseconds duration);

    /// Makes an upgradeable hold exclusive: waits until the readers have left, before all waiters;
    /// no reader enters meanwhile. Until it returns, and if it throws, the hold is upgradeable as
    /// before. Does nothing for an exclusive hold. Round trips and errors as
    /// shared_mutex::acquire().
    /// @throws error errc::would_deadlock for a shared hold: two of them would wait for each other;
    /// errc::lock_lost if the hold was lost; errc::not_owner if it was released
    void upgrade();
    /// The same; false if and only if `stop` was requested first.
    [[nodiscard]] bool upgrade(const std::stop_token& stop);
    /// One attempt, also for a shared hold: false if another client holds the lock in any mode. It
    /// passes the queue.
    [[nodiscard]] bool try_upgrade();
    /// Waits up to `timeout`; false if the time was over first, or `stop` was requested. Errors as
    /// client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_upgrade_for(const std::chrono::duration<Rep, Period>& timeout,
                                       const std::stop_token& stop = {}) {
        return upgrade_until(detail::after(timeout), stop);
    }
    /// As try_upgrade_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] bool try_upgrade_until(const std::chrono::time_point<Clock, Duration>& until,
                                         const std::stop_token& stop = {}) {
        return upgrade_until(detail::at(until), stop);
    }

    /// Goes to a weaker mode without a moment in which the lock is free, and lets waiters in that
    /// fit now. Does nothing if this is the mode. Up to five round trips, and some to serve waiters
    /// if there were any lately. Not while a transaction of yours has it fenced: it would wait for
    /// that.
    /// @throws error errc::invalid_options for a stronger mode; errc::lock_lost,
    /// errc::not_owner as above. After any other error this hold is one of the weaker mode, or of
    /// the mode from before its upgrade if that is weaker still: see mode(). The database learns of
    /// that with the next upgrade, downgrade or release.
    void downgrade(lock_mode to);

    /// The session that holds it.
    [[nodiscard]] rowlock::session_id session_id() const noexcept;
    /// Of the latest grant.
    [[nodiscard]] rowlock::grant_id grant_id() const noexcept;

private:
    friend class shared_mutex;
    friend struct detail::grant_of;

    explicit mode_lease(std::shared_ptr<detail::grant> granted) noexcept;
    bool upgrade_until(std::chrono::steady_clock::time_point until, const std::stop_token& stop);
    [[nodiscard]] detail::grant& require_grant() const;
    void require_held() const;
    [[nodiscard]] std::shared_ptr<detail::engine> tell_weaker_mode() const;

    lease hold_{};
};

/// Snapshot of a shared_mutex.
struct shared_mutex_info {
    std::string name{};        ///< its name
    std::int64_t shared = 0;   ///< holds to read
    bool upgradeable = false;  ///< whether one is held to read and perhaps to write
    bool exclusive = false;    ///< whether it is held to write
    std::int64_t waiting = 0;  ///< live waiters in its queue
};

/// A holder of a shared_mutex, for people. Text comes from other programs: escape it for a
/// terminal.
struct mode_holder {
    holder_info who{};      ///< the holder of the hold
    fencing_token token{};  ///< of its latest grant
    lock_mode mode{};       ///< of the hold
    /// From before its upgrade: another one if it is upgraded. A hold that went from `shared` to
    /// `upgradeable` by an upgrade has none from before that.
    fencing_token first_token{};
};

/// A waiter for a shared_mutex, for people.
struct mode_waiter {
    waiter_info who{};     ///< the waiter
    lock_mode mode{};      ///< that it waits for
    bool upgrade = false;  ///< of its upgradeable hold
};

/// A lock for many readers or one writer, over all clients of the tables. It satisfies
/// SharedTimedMutex, for std::shared_lock, std::unique_lock and std::scoped_lock; and there are
/// leases of it, without thread identity (acquire()).
///
/// One fair queue: neither a writer nor a reader is overtaken by a request behind it, so a writer
/// waits for the readers that were there before it, and not for later ones. Readers that stand in
/// line together enter together.
///
/// A `mutex` or lease of the same name is the same lock, held in the exclusive mode. The name of a
/// semaphore is refused. It needs no set-up.
///
/// Objects of one name in one client share the holds of its threads and the options of the first of
/// them; threads that read at the same time share a grant (mode_options::reader_linger). A thread
/// holds it once: in a mode by lock() or lock_upgrade(), and any number of times shared besides;
/// the further ones cost no round trip, also while a writer waits. The client must outlive the
/// object. Thread-safe.
///
/// Unlike a std::shared_mutex it can be lost: check held() or watch lost() while working. Errors of
/// every call that talks to the database: those of `client`. Deadlocks are detected as for leases,
/// also among both (client_options::deadlock_detection).
class shared_mutex {
public:
    /// No round trip. The options are those of lock(), lock_shared() and lock_upgrade(), of the
    /// client's first object of that name.
    shared_mutex(client& locks, const lock_name& name, mode_options options = {});
    /// If this is the client's last object of that name, releases what its threads hold.
    ~shared_mutex();
    shared_mutex(const shared_mutex&) = delete;
    shared_mutex& operator=(const shared_mutex&) = delete;

    /// @name Leases
    /// @{

    /// Waits until the lock is granted in this mode. The exclusive one costs what client::acquire
    /// does. Another costs one round trip if it is possible at once (MySQL/MariaDB, SQLite: three),
    /// and one to make it durable; two or three more the first time that a name is used. Otherwise
    /// up to four enqueue the caller; as client::acquire, also for time limits, outages and errors.
    /// @throws error errc::invalid_options for the name of a semaphore
    [[nodiscard]] mode_lease acquire(lock_mode mode, const mode_options& options = {});
    /// The same; empty if and only if `stop` was requested first.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<mode_lease> acquire(lock_mode mode, Stop stop,
                                                    const mode_options& options = {}) {
        return acquire_until(mode, time_point::max(), std::move(stop), options);
    }
    /// One attempt; empty if another holder keeps the lock from this mode, or a caller waits.
    [[nodiscard]] std::optional<mode_lease> try_acquire(lock_mode mode,
                                                        const mode_options& options = {});
    /// Waits up to `timeout`; as client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<mode_lease> try_acquire_for(
        lock_mode mode, const std::chrono::duration<Rep, Period>& timeout,
        const mode_options& options = {}) {
        return acquire_until(mode, detail::after(timeout), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Rep, typename Period, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<mode_lease> try_acquire_for(
        lock_mode mode, const std::chrono::duration<Rep, Period>& timeout, Stop stop,
        const mode_options& options = {}) {
        return acquire_until(mode, detail::after(timeout), std::move(stop), options);
    }
    /// As try_acquire_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] std::optional<mode_lease> try_acquire_until(
        lock_mode mode, const std::chrono::time_point<Clock, Duration>& until,
        const mode_options& options = {}) {
        return acquire_until(mode, detail::at(until), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Clock, typename Duration, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<mode_lease> try_acquire_until(
        lock_mode mode, const std::chrono::time_point<Clock, Duration>& until, Stop stop,
        const mode_options& options = {}) {
        return acquire_until(mode, detail::at(until), std::move(stop), options);
    }

    /// @}

    /// @name The calling thread's hold: exclusive
    /// @{

    /// Waits until the lock is granted.
    /// @throws error errc::would_deadlock if this thread holds the lock in any mode
    void lock() { static_cast<void>(lock_until(lock_mode::exclusive, time_point::max(), {})); }
    /// The same; false if and only if `stop` was requested first. Then nothing is locked.
    [[nodiscard]] bool lock(const std::stop_token& stop) {
        return lock_until(lock_mode::exclusive, time_point::max(), stop);
    }
    /// One attempt; false without a round trip if this thread holds the lock in any mode.
    [[nodiscard]] bool try_lock() { return try_lock_in(lock_mode::exclusive); }
    /// Waits up to the time limit. Errors as lock(), and as client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& timeout,
                                    const std::stop_token& stop = {}) {
        return lock_until(lock_mode::exclusive, detail::after(timeout), stop);
    }
    /// As try_lock_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& until,
                                      const std::stop_token& stop = {}) {
        return lock_until(lock_mode::exclusive, detail::at(until), stop);
    }
    /// Never throws; what went wrong (not_owner, lock_lost, no database) is an event unlock_failed.
    /// If the thread has locked it shared besides, this is a downgrade to that.
    void unlock() noexcept { unlock_from(lock_mode::exclusive); }

    /// @}

    /// @name The calling thread's hold: shared
    /// @{

    /// Waits until no writer has the lock, or waited for it before.
    /// @throws error errc::lock_lost if the thread's hold was lost meanwhile: unlock as often as
    /// you locked, then start over
    void lock_shared() { static_cast<void>(lock_until(lock_mode::shared, time_point::max(), {})); }
    /// The same; false if and only if `stop` was requested first. Then nothing is locked.
    [[nodiscard]] bool lock_shared(const std::stop_token& stop) {
        return lock_until(lock_mode::shared, time_point::max(), stop);
    }
    /// One attempt; without a round trip if this thread holds the lock.
    [[nodiscard]] bool try_lock_shared() { return try_lock_in(lock_mode::shared); }
    /// Waits up to the time limit. Errors as lock_shared(), and as client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& timeout,
                                           const std::stop_token& stop = {}) {
        return lock_until(lock_mode::shared, detail::after(timeout), stop);
    }
    /// As try_lock_shared_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& until,
                                             const std::stop_token& stop = {}) {
        return lock_until(lock_mode::shared, detail::at(until), stop);
    }
    /// As unlock(), of a hold by lock_shared().
    void unlock_shared() noexcept { unlock_from(lock_mode::shared); }

    /// @}

    /// @name The calling thread's hold: upgradeable
    /// @{

    /// Waits until the lock is granted; readers may hold it meanwhile.
    /// @throws error errc::would_deadlock if this thread holds the lock in any mode
    void lock_upgrade() {
        static_cast<void>(lock_until(lock_mode::upgradeable, time_point::max(), {}));
    }
    /// The same; false if and only if `stop` was requested first. Then nothing is locked.
    [[nodiscard]] bool lock_upgrade(const std::stop_token& stop) {
        return lock_until(lock_mode::upgradeable, time_point::max(), stop);
    }
    /// One attempt; false without a round trip if this thread holds the lock in any mode.
    [[nodiscard]] bool try_lock_upgrade() { return try_lock_in(lock_mode::upgradeable); }
    /// Waits up to the time limit. Errors as lock_upgrade(), and as client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_lock_upgrade_for(const std::chrono::duration<Rep, Period>& timeout,
                                            const std::stop_token& stop = {}) {
        return lock_until(lock_mode::upgradeable, detail::after(timeout), stop);
    }
    /// As try_lock_upgrade_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] bool try_lock_upgrade_until(const std::chrono::time_point<Clock, Duration>& until,
                                              const std::stop_token& stop = {}) {
        return lock_until(lock_mode::upgradeable, detail::at(until), stop);
    }
    /// As unlock(), of a hold by lock_upgrade().
    void unlock_upgrade() noexcept { unlock_from(lock_mode::upgradeable); }

    /// @}

    /// @name The calling thread's hold: from one mode to another
    /// @{

    /// As mode_lease::upgrade() and so on, of the calling thread's hold; unlock() unlocks it then.
    /// @throws error errc::not_owner if the thread has not locked it
    void upgrade() { static_cast<void>(upgrade_until(time_point::max(), {})); }
    /// The same; false if and only if `stop` was requested first. Then the hold is upgradeable as
    /// before.
    [[nodiscard]] bool upgrade(const std::stop_token& stop) {
        return upgrade_until(time_point::max(), stop);
    }
    /// As mode_lease::try_upgrade().
    [[nodiscard]] bool try_upgrade() { return upgrade_until(time_point::min(), {}); }
    /// As mode_lease::try_upgrade_for().
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_upgrade_for(const std::chrono::duration<Rep, Period>& timeout,
                                       const std::stop_token& stop = {}) {
        return upgrade_until(detail::after(timeout), stop);
    }
    /// As mode_lease::downgrade(); unlock_upgrade() or unlock_shared() unlocks it then.
    void downgrade(lock_mode to);

    /// @}

    /// @name Questions
    /// @{

    [[nodiscard]] const std::string& name() const noexcept;  ///< of the lock
    /// For the calling thread's hold, as for a mode_lease; empty, 0, false or an empty token if it
    /// has none. No round trip.
    [[nodiscard]] std::optional<lock_mode> mode() const noexcept;
    /// As mode_lease::token().
    [[nodiscard]] fencing_token token() const noexcept;
    /// As mode_lease::held().
    [[nodiscard]] bool held() const noexcept;
    /// As mode_lease::remaining().
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// As mode_lease::lost().
    [[nodiscard]] std::stop_token lost() const;

    /// Whether the database knows a shared_mutex of this name, held or not. One round trip.
    [[nodiscard]] bool exists();
    /// Its state, by the database; empty if the name was not used lately. One round trip. The
    /// waiters are all live ones, but of a lock held as a whole those for a part of it.
    [[nodiscard]] std::optional<shared_mutex_info> inspect();
    /// Its holders, the oldest grant first. Two round trips.
    /// @param limit 1 to 10 000
    [[nodiscard]] std::vector<mode_holder> holders(int limit = 100);
    /// Its live waiters, in the order in which they will be served. One round trip.
    [[nodiscard]] std::vector<mode_waiter> waiters();

    /// As semaphore::request_release and semaphore::force_release, for a token from holders(). A
    /// hold that several threads of a client read under ends for all of them.
    std::optional<std::chrono::milliseconds> request_release(fencing_token holder,
                                                             const request_options& options = {});
    /// As semaphore::force_release; likewise for all threads.
    bool force_release(fencing_token holder);

    /// @}

private:
    using time_point = std::chrono::steady_clock::time_point;

    std::optional<mode_lease> acquire_until(lock_mode mode, time_point until, std::stop_token stop,
                                            const mode_options& options,
                                            const std::string& shared_label = {});
    bool lock_until(lock_mode mode, time_point until, const std::stop_token& stop);
    bool try_lock_in(lock_mode mode);
    bool upgrade_until(time_point until, const std::stop_token& stop);
    void unlock_from(lock_mode mode) noexcept;

    friend struct detail::grant_of;
    friend std::vector<shared_mutex_info> list_shared_mutexes(client& locks,
                                                              std::string_view prefix,
                                                              const page& page);

    std::shared_ptr<detail::mode_holds> holds_;
};

/// The locks whose names start with `prefix` and that somebody holds in a mode but the exclusive
/// one, or waits for in such a mode, in byte order; client::list() has those that are held as a
/// whole. One round trip.
[[nodiscard]] std::vector<shared_mutex_info> list_shared_mutexes(client& locks,
                                                                 std::string_view prefix = {},
                                                                 const page& page = {});

/// @}

}  // namespace rowlock

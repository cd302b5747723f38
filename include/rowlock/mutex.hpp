#pragma once

#include <rowlock/client.hpp>
#include <rowlock/timeout.hpp>

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

namespace rowlock {

/// @addtogroup leases
/// @{

/// A std::timed_mutex over a lease, for scoped_lock, unique_lock and std::lock. Two objects of one
/// name exclude each other, in one client or in several. One object may be shared by threads; it is
/// unlocked by the thread that locked it. The client must outlive it.
///
/// Unlike a std::mutex it can be lost: check held() or watch lost() while working.
class mutex {
public:
    /// No round trip. The options are those of each acquisition.
    mutex(client& locks, const lock_name& name, acquire_options options = {});
    /// Unlocks if locked.
    ~mutex();
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;

    /// Waits until the lock is granted.
    /// @throws error errc::would_deadlock if this thread holds the lock, by this or another mutex
    /// object of this name and client; those of client::acquire.
    void lock();
    /// The same; false if and only if `stop` was requested first. Then nothing is locked.
    [[nodiscard]] bool lock(const std::stop_token& stop);
    /// One attempt; false without a round trip if this thread holds the lock.
    [[nodiscard]] bool try_lock();
    /// Waits up to the time limit; false if the lock was held all that time, or if `stop` was
    /// requested first. Errors as client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& timeout,
                                    const std::stop_token& stop = {}) {
        return lock_until(detail::after(timeout), stop);
    }
    /// As try_lock_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& until,
                                      const std::stop_token& stop = {}) {
        return lock_until(detail::at(until), stop);
    }
    /// Never throws; what went wrong (not_owner, lock_lost, no database) is an event unlock_failed.
    void unlock() noexcept;
    /// The same, and throws what went wrong.
    /// @throws error errc::not_owner if this thread has not locked it, errc::lock_lost …
    void release();

    [[nodiscard]] const std::string& name() const noexcept;  ///< of the lock
    /// For the calling thread's hold, as for a lease; 0, false or an empty token if it has none.
    /// After a loss another thread may hold the lock by now. No round trip.
    [[nodiscard]] fencing_token token() const noexcept;
    /// Whether the calling thread may still trust that it holds the lock.
    [[nodiscard]] bool held() const noexcept;
    /// How long held() stays true if no further heartbeat succeeds.
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// Stopped when the calling thread's hold is lost.
    [[nodiscard]] std::stop_token lost() const;

private:
    friend struct detail::grant_of;

    bool lock_until(std::chrono::steady_clock::time_point until, const std::stop_token& stop);

    std::shared_ptr<detail::hold> hold_;
};

/// A std::recursive_timed_mutex over a lease. The owner is a thread of a client: objects of one
/// name in one client share their hold and the options of the first of them, and the thread that
/// has it locks again without a round trip.
class recursive_mutex {
public:
    /// No round trip. The options are those of each acquisition, of the client's first object of
    /// that name.
    recursive_mutex(client& locks, const lock_name& name, acquire_options options = {});
    /// If this is the client's last object of that name, releases the calling thread's hold.
    ~recursive_mutex();
    recursive_mutex(const recursive_mutex&) = delete;
    recursive_mutex& operator=(const recursive_mutex&) = delete;

    /// Waits until the lock is granted.
    /// @throws error errc::lock_lost on re-entry if the lease was lost meanwhile: unlock as often
    /// as you locked, then start over. errc::would_deadlock if this thread holds the lock by a
    /// `mutex`.
    void lock();
    /// The same; false if and only if `stop` was requested before the lock was granted. A thread
    /// that has the lock does not wait, so it locks again even after a stop.
    [[nodiscard]] bool lock(const std::stop_token& stop);
    /// One attempt; a thread that has the lock locks it again.
    [[nodiscard]] bool try_lock();
    /// Waits up to the time limit, as mutex::try_lock_for().
    template <typename Rep, typename Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& timeout,
                                    const std::stop_token& stop = {}) {
        return lock_until(detail::after(timeout), stop);
    }
    /// As try_lock_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& until,
                                      const std::stop_token& stop = {}) {
        return lock_until(detail::at(until), stop);
    }
    /// As mutex::unlock(); the lock is released with the last of the thread's holds.
    void unlock() noexcept;
    /// The same, and throws what went wrong, as mutex::release().
    void release();

    [[nodiscard]] const std::string& name() const noexcept;  ///< of the lock
    /// For the calling thread's hold; see mutex.
    [[nodiscard]] fencing_token token() const noexcept;
    /// As mutex::held().
    [[nodiscard]] bool held() const noexcept;
    /// As mutex::remaining().
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// As mutex::lost().
    [[nodiscard]] std::stop_token lost() const;
    /// How many times the calling thread has locked it.
    [[nodiscard]] int depth() const noexcept;

private:
    friend struct detail::grant_of;

    bool lock_until(std::chrono::steady_clock::time_point until, const std::stop_token& stop);

    std::shared_ptr<detail::hold> hold_;
};

/// @}

}  // namespace rowlock

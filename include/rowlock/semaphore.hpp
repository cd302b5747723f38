#pragma once

#include <rowlock/client.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/timeout.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup shared
/// @{

/// Snapshot of a semaphore.
struct semaphore_info {
    std::string name{};         ///< its name
    std::int64_t capacity = 0;  ///< how many permits there are
    std::int64_t used = 0;      ///< above the capacity if that was lowered below it
    std::int64_t waiting = 0;   ///< live waiters in its queue
    std::int64_t wanted = 0;    ///< how many permits those wait for
    /// How many are free: 0 if more are used than there are.
    [[nodiscard]] std::int64_t available() const noexcept {
        return capacity > used ? capacity - used : 0;
    }
};

/// A holder of permits, for people. Text comes from other programs: escape it for a terminal.
struct permit_holder {
    holder_info who{};         ///< the holder of the hold
    fencing_token token{};     ///< of the grant
    std::int64_t permits = 0;  ///< how many it holds
};

/// A waiter for permits, for people.
struct permit_waiter {
    waiter_info who{};         ///< the waiter
    std::int64_t permits = 0;  ///< how many it waits for
};

/// Options of one acquisition of permits.
struct permit_options {
    /// Shown to people. Up to 1 000 bytes of UTF-8.
    std::string note = {};
    /// As acquire_options::max_duration: the hold ends this long after its grant, without renewal.
    std::optional<std::chrono::milliseconds> max_duration = {};
};

/// Some permits of a semaphore, held until it is destroyed. It behaves as a lease: see there, also
/// for threads, loss and a forked child. A second release gives nothing back twice.
class [[nodiscard]] permits {
public:
    permits() noexcept = default;  ///< holds nothing, as if released
    /// `other` holds nothing then.
    permits(permits&& other) noexcept
        : hold_{std::move(other.hold_)}, count_{std::exchange(other.count_, 0)} {}
    /// Gives back what it held before, as the destructor does.
    permits& operator=(permits&& other) noexcept {
        hold_ = std::move(other.hold_);
        count_ = std::exchange(other.count_, 0);
        return *this;
    }
    ~permits() = default;

    /// Of the semaphore.
    [[nodiscard]] const std::string& name() const noexcept { return hold_.name(); }
    /// How many: 0 if it holds nothing, or was moved from. Only release(count) changes it: it stays
    /// as it is after release().
    [[nodiscard]] std::int64_t count() const noexcept { return count_; }
    /// Greater than that of every earlier grant of this semaphore.
    [[nodiscard]] fencing_token token() const noexcept { return hold_.token(); }
    /// As lease::held().
    [[nodiscard]] bool held() const noexcept { return hold_.held(); }
    explicit operator bool() const noexcept { return held(); }  ///< held()
    /// As lease::remaining().
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept { return hold_.remaining(); }
    /// As lease::lost().
    [[nodiscard]] std::stop_token lost() const { return hold_.lost(); }
    /// As lease::release_requested() and lease::release_request().
    [[nodiscard]] std::stop_token release_requested() const { return hold_.release_requested(); }
    /// As lease::release_request().
    [[nodiscard]] std::optional<rowlock::release_request> release_request() const {
        return hold_.release_request();
    }
    /// Gives them back. One round trip (two on MySQL/MariaDB), and some to serve waiters if there
    /// were any lately. Errors as lease::release().
    void release() { hold_.release(); }
    /// Gives back some of them, and serves waiters. The others stay held: with the same token,
    /// deadline and fences. Two or three round trips, and some to serve waiters if there were any
    /// lately. Waits for a fenced transaction of this hold, as release() does.
    /// @param count 1 to count(); all of them: as release()
    /// @throws error errc::invalid_options for another number; errc::lock_lost if the hold was
    /// lost; errc::not_owner if it was released, or holds nothing. After another error count() is
    /// lower all the same, and the permits may stay taken until the next release, which gives them
    /// back as well
    void release(std::int64_t count);

    /// As lease::extend(). Four to six round trips.
    void extend(std::chrono::milliseconds duration) { hold_.extend(duration); }

    /// The session that holds them.
    [[nodiscard]] rowlock::session_id session_id() const noexcept { return hold_.session_id(); }
    /// The grant; every acquisition has another.
    [[nodiscard]] rowlock::grant_id grant_id() const noexcept { return hold_.grant_id(); }

private:
    friend class client;
    friend class semaphore;
    friend struct detail::grant_of;
    permits(lease hold, std::int64_t count) noexcept : hold_{std::move(hold)}, count_{count} {}

    lease hold_{};
    std::int64_t count_ = 0;
};

/// At most so many permits at a time, over all clients of the tables: for a limit on connections to
/// a fragile service, or on jobs of one kind. Weighted and fair: a caller may ask for several
/// permits at once, all or none, and a large request is not overtaken by smaller ones behind it.
///
/// The permits of a client that vanishes come back when its session has expired: within its ttl and
/// a poll_interval. A hold is one row, however many permits it has. An object of this class holds
/// no state of its own; any number of them may name one semaphore. A lease or mutex is another
/// lock: a name that is known as one of theirs when the semaphore is made is refused. Thread-safe.
///
/// Errors of every call that talks to the database: those of `client`.
class semaphore {
public:
    /// @param locks must outlive this object
    semaphore(client& locks, lock_name name) noexcept : locks_{locks}, name_{std::move(name)} {}

    /// Sets how many permits there are, and makes the semaphore if it is new. Takes effect at once,
    /// for all clients: waiters that fit are served. Less than what is used is allowed: then
    /// nothing is granted until enough has been given back, and no holder is disturbed. Three or
    /// four round trips.
    /// @param permits 0 to 999,999,999
    /// @throws error errc::invalid_options for another number, and for the name of a shared_mutex,
    /// or of a lease that is not forgotten yet (reaper_options::retention)
    void set_capacity(std::int64_t permits);
    /// Makes the semaphore with this capacity; false, and nothing changes, if it is there. After a
    /// lost reply true, although another client may have made it meanwhile. One or two round trips.
    /// @throws error errc::invalid_options as above
    bool create(std::int64_t permits);

    /// Waits until so many permits are granted. Two round trips if they are free (three on
    /// MySQL/MariaDB). Otherwise up to four enqueue the caller; as client::acquire, also for time
    /// limits, outages and errors, except that no deadlock is detected.
    /// @throws error errc::invalid_options for less than one permit, more than the capacity, or a
    /// semaphore that was never made
    [[nodiscard]] permits acquire(std::int64_t count = 1, const permit_options& options = {});
    /// The same; empty if and only if `stop` was requested first.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<permits> acquire(std::int64_t count, Stop stop,
                                                 const permit_options& options = {}) {
        return acquire_until(count, time_point::max(), std::move(stop), options);
    }
    /// One attempt; empty if too few are free, or another caller waits for some.
    [[nodiscard]] std::optional<permits> try_acquire(std::int64_t count = 1,
                                                     const permit_options& options = {});
    /// Waits up to `timeout`; as client::try_acquire_for.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<permits> try_acquire_for(
        std::int64_t count, const std::chrono::duration<Rep, Period>& timeout,
        const permit_options& options = {}) {
        return acquire_until(count, detail::after(timeout), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Rep, typename Period, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<permits> try_acquire_for(
        std::int64_t count, const std::chrono::duration<Rep, Period>& timeout, Stop stop,
        const permit_options& options = {}) {
        return acquire_until(count, detail::after(timeout), std::move(stop), options);
    }
    /// As try_acquire_for(): waits up to `until`.
    template <typename Clock, typename Duration>
    [[nodiscard]] std::optional<permits> try_acquire_until(
        std::int64_t count, const std::chrono::time_point<Clock, Duration>& until,
        const permit_options& options = {}) {
        return acquire_until(count, detail::at(until), {}, options);
    }
    /// The same; empty also if `stop` was requested first.
    template <typename Clock, typename Duration, std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<permits> try_acquire_until(
        std::int64_t count, const std::chrono::time_point<Clock, Duration>& until, Stop stop,
        const permit_options& options = {}) {
        return acquire_until(count, detail::at(until), std::move(stop), options);
    }

    /// How many permits are free now; 0 if the semaphore was never made. For people and monitoring:
    /// to work only if some are free use try_acquire(). One round trip.
    [[nodiscard]] std::int64_t available();
    /// Its state; empty if it was never made. One round trip.
    [[nodiscard]] std::optional<semaphore_info> inspect();
    /// The holders of its permits, the oldest grant first. One round trip.
    /// @param limit 1 to 10 000
    [[nodiscard]] std::vector<permit_holder> holders(int limit = 100);
    /// Its live waiters, in the order in which they will be served. One round trip.
    [[nodiscard]] std::vector<permit_waiter> waiters();

    /// Asks the holder of the grant with this token, from holders(), to give its permits back; as
    /// client::request_release. Returns nullopt if that grant is over. Six to nine round trips.
    std::optional<std::chrono::milliseconds> request_release(fencing_token holder,
                                                             const request_options& options = {});
    /// Takes the permits of that grant at once, although its holder may still be working: its
    /// fenced transactions fail from then on; as client::force_release. Returns false, and changes
    /// nothing, if that grant is over. Six to nine round trips, and some to serve waiters.
    bool force_release(fencing_token holder);

    /// Of the semaphore.
    [[nodiscard]] const std::string& name() const noexcept { return name_.str(); }

private:
    using time_point = std::chrono::steady_clock::time_point;

    std::optional<permits> acquire_until(std::int64_t count, time_point until, std::stop_token stop,
                                         const permit_options& options);

    friend std::vector<semaphore_info> list_semaphores(client& locks, std::string_view prefix,
                                                       const page& page);

    client& locks_;
    lock_name name_;
};

/// The semaphores whose names start with `prefix`, in byte order. One round trip.
[[nodiscard]] std::vector<semaphore_info> list_semaphores(client& locks,
                                                          std::string_view prefix = {},
                                                          const page& page = {});

/// @}

}  // namespace rowlock

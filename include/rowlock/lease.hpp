#pragma once

#include <rowlock/fencing_token.hpp>
#include <rowlock/ids.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace rowlock {

/// @addtogroup leases
/// @{

class client;
struct lease_offer;

namespace detail {
struct grant;
struct grant_of;
}  // namespace detail

/// Another client's request for a release, for people. Text comes from other programs: escape it
/// for a terminal.
struct release_request {
    /// That client: client_options::program, its process and its host.
    std::string asked_by{};
    std::string reason{};  ///< request_options::reason
};

/// Ownership of one grant of one name. The object is the lock: it releases when destroyed.
///
///     state      held()  lost()       release()
///     held       true    not stopped  frees the lock
///     lost       false   stopped      throws errc::lock_lost
///     released   false   not stopped  does nothing
///
/// After release_on_commit() (transaction.hpp) the caller's transaction decides whether the lease
/// is held or released: held() is false, lost() not stopped, and release() frees the lock if the
/// transaction did not. After offer() another client decides: see there.
///
/// A lost lease stays lost. From lost() on its holder has client_options::margin to stop: this
/// library does not give the lock to another holder before the margin is over, or before the holder
/// reports that it stopped, by release() or by destroying the lease (a mutex: unlock()). A forced
/// release (loss_reason::forced_release) and a destroyed client leave no such time.
///
/// No thread identity: any thread may use or release it; held(), token(), name(), remaining() and
/// lost() may be called from several threads at once, extend(), release() and moving from one at a
/// time. In a forked child a lease is inert: held() is false, nothing is released.
class [[nodiscard]] lease {
public:
    lease() noexcept = default;  ///< holds nothing, as if released
    /// `other` holds nothing then, as if released.
    lease(lease&&) noexcept;
    /// Releases what it held before, as the destructor does.
    lease& operator=(lease&&) noexcept;
    /// Releases the lock; a failure is reported as an event and retried in the background. Takes at
    /// most statement_timeout.
    ~lease();

    /// The name of the lock; empty if it holds nothing.
    [[nodiscard]] const std::string& name() const noexcept;
    /// Fixed for the lifetime of this lease. No round trip.
    [[nodiscard]] fencing_token token() const noexcept;
    /// Whether this client may still trust that it holds the lock. No round trip: compares
    /// CLOCK_BOOTTIME with the trust window, so it turns false in time even without a network.
    [[nodiscard]] bool held() const noexcept;
    explicit operator bool() const noexcept { return held(); }  ///< held()
    /// How long held() stays true if no further heartbeat succeeds; 0 if it is false. No round
    /// trip.
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// Stopped when the lease is lost, soon after held() turned false. Callbacks run on a library
    /// thread; one that blocks delays no other lease's signal. One that throws terminates the
    /// process.
    [[nodiscard]] std::stop_token lost() const;

    /// Stopped when another client asks for the lock within a time (client::request_release), which
    /// is then its deadline: the lease is held on, remaining() says how long, and its holder is to
    /// finish what it does and release it. Callbacks as for lost(). Not by a request without a
    /// time, which is a loss.
    [[nodiscard]] std::stop_token release_requested() const;
    /// Who asked, and why: the latest. No round trip.
    [[nodiscard]] std::optional<rowlock::release_request> release_request() const;

    /// Offers the lease to another process, which takes it over by client::adopt(): without a
    /// moment in which the lock is free, past all waiters. First stop what you do under it: held()
    /// is false from here on, and fence() refuses it. Its row stays as it is, and the heartbeat
    /// keeps it, until one of these comes first:
    ///  - a client adopts it, the one that offers it included: lost() is stopped, at once on the
    ///    same machine and on PostgreSQL, else after the next heartbeat; release() does nothing;
    ///  - release() or the destructor withdraws the offer and frees the lock;
    ///  - the lease ends, as any lease may, and counts as lost. But a forced release looks as if
    ///    another client had adopted it.
    /// No round trip. Returns the same again if it was offered before.
    /// @throws error errc::lock_lost if it was lost before; errc::not_owner if it was released
    [[nodiscard]] lease_offer offer();

    /// For a hold with a max_duration: it ends this long from now, never earlier than before.
    /// remaining() grows once the database has confirmed that; nobody is granted the lock by its
    /// deadline from before. Waits for transactions that are fenced with it, so not inside one.
    /// token() stays, and the time of the acquisition, from which max_hold counts. The token that
    /// inspect() shows rises, and it is the one to name in request_release() and force_release().
    /// A fence() beside it may fail with errc::conflict. Five round trips.
    /// @param duration 10 ms to 366 days
    /// @throws error errc::invalid_options for another duration, without a max_duration, or once
    /// another client has asked for the release; errc::lock_lost if it was lost, also by a request
    /// for its release; errc::not_owner if it was released or offered, or holds nothing. After
    /// another error it may have been extended or not; remaining() is as before, and another call
    /// finds out
    void extend(std::chrono::milliseconds duration);

    /// Frees the lock. One round trip. For a lost lease: reports that its holder has stopped; no
    /// round trip.
    /// @throws error errc::lock_lost if it was lost before: another client may have touched what it
    /// protected. errc::outcome_unknown or database_unreachable if no answer came within
    /// statement_timeout: the release is repeated in the background and the lease counts as
    /// released. errc::wrong_process in a forked child.
    void release();

    /// Identity of the grant in the database, for SQL of your own and for people.
    [[nodiscard]] rowlock::session_id session_id() const noexcept;
    /// The grant; every acquisition has another.
    [[nodiscard]] rowlock::grant_id grant_id() const noexcept;

private:
    friend class client;
    friend class election;
    friend class leadership;
    friend class periodic_run;
    friend class permits;
    friend class semaphore;
    friend class shared_mutex;
    friend struct detail::grant_of;
    friend class mode_lease;
    friend class multi_lease;
    explicit lease(std::shared_ptr<detail::grant> grant) noexcept;

    std::shared_ptr<detail::grant> grant_;
};

/// @}

}  // namespace rowlock

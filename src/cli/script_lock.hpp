#pragma once

#include "cli/commands.hpp"
#include "cli/link.hpp"
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace rowlock::cli {

/// One attempt of a script, and later its hold. It belongs to a session of its own.
struct script_hold {
    session_id session{};
    rowlock::grant_id grant_id{};
};

/// An entry in the queue of a lock.
struct place_in_line {
    bool session_live = false;
    bool there = false;  ///< our entry
    std::int64_t position = 0;
    std::chrono::microseconds remaining{0};  ///< until a holder's time is over, if it is known
    ticket_no ticket{};
    bool behind_watermark = false;
    bool free = false;            ///< the first waiter can be served
    bool holder_expired = false;  ///< who has all of it; its session is not ended
    bool counted = false;         ///< counted holds are in the way of all of the lock
    session_id holder_session{};  ///< of who has all of it
};

/// What `rowlock acquire` asks of the database, alike for a lease, a shared_mutex and permits of a
/// semaphore. Each call is one attempt.
class script_lock {
public:
    virtual ~script_lock() = default;
    script_lock(const script_lock&) = delete;
    script_lock& operator=(const script_lock&) = delete;

    /// Before anything is taken, and again before a wait.
    /// @throws failure if a lock of this name is of another kind
    virtual void require_kind(sql::connection& db, sql::deadline until) = 0;
    /// @throws failure if a `rowlock run` that we run under keeps it from us
    virtual void require_another_holder(sql::connection& db, sql::deadline until) = 0;

    /// Why an attempt would fail now; nullopt if it may succeed. Needs no session.
    virtual std::optional<protocol::attempt> look(sql::connection& db, sql::deadline until) = 0;
    /// What a failed attempt found, after it has ended holders that have expired: then contested.
    virtual protocol::attempt take(sql::connection& db, const script_hold& hold,
                                   sql::deadline until) = 0;
    virtual std::optional<std::int64_t> find_grant(sql::connection& db, const script_hold& hold,
                                                   sql::deadline until) = 0;

    virtual void enqueue(sql::connection& db, const script_hold& hold, sql::deadline until) = 0;
    virtual place_in_line find_place(sql::connection& db, const script_hold& hold,
                                     sql::deadline until) = 0;
    /// Serves the queue if it can be served. Returns whether a waiter may have been.
    virtual bool serve_first(sql::connection& db, const place_in_line& seen,
                             sql::deadline until) = 0;
    virtual bool cancel(sql::connection& db, const script_hold& hold, sql::deadline until) = 0;
    virtual std::optional<protocol::queue_grant> served(sql::connection& db,
                                                        const script_hold& hold,
                                                        sql::deadline until) = 0;
    /// Serves waiters that can be served. Returns whether there were some.
    virtual bool serve_next(sql::connection& db, sql::deadline until) = 0;

    /// Ends the hold, serves the next waiter, and removes its session. Idempotent. Returns whether
    /// there was such a hold.
    virtual bool give_back(sql::connection& db, const script_hold& hold, sql::deadline until) = 0;
    /// Lets the hold last so long from now, and its session a little longer. Returns its token,
    /// which may be a new one; nullopt if it is over, or another client has asked for its release.
    /// Repeat it after a lost reply.
    virtual std::optional<std::int64_t> renew(sql::connection& db, const script_hold& hold,
                                              std::chrono::milliseconds duration,
                                              sql::deadline until) = 0;
    /// The holder with this grant id, of whatever mode or number of permits; nullopt if there is
    /// none.
    virtual std::optional<holder_info> holder(sql::connection& db, rowlock::grant_id grant_id,
                                              sql::deadline until) = 0;

protected:
    script_lock() = default;
};

/// Serves the waiters for what a session that has ended held, of any kind.
void serve_after(sql::connection& db, const link& to, session_id ended_session,
                 sql::deadline until);

/// The lock of that name and kind. The arguments must outlive it.
[[nodiscard]] std::unique_ptr<script_lock> make_script_lock(const link& to,
                                                            const acquire_options& options);

}  // namespace rowlock::cli

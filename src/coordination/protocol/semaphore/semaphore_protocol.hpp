#pragma once

#include "coordination/protocol/hold/hold_protocol.hpp"
#include "sql/statements.hpp"
#include <rowlock/client.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Semaphores: a number of permits, of which each hold has some. A shared_mutex is one whose
/// permits stand for modes. Each transition is one conditional statement or one short transaction,
/// and every end of a hold lowers the counter in the same one: `used` is the sum of the holds in
/// every committed state. No state, no retries, no clocks. The rule of the queues holds here too:
/// after each release, sweep, set_capacity, enqueue and cancel the client calls grant_next, in a
/// commit of its own.
namespace rowlock::protocol {

/// Sums of permits stay far below what a number can count.
inline constexpr std::int64_t largest_capacity = 1'000'000'000'000;

/// How many permits a mode of a shared_mutex takes: any number of shared holds fit beside each
/// other and beside one upgradeable hold, a second upgradeable hold does not fit, and nothing fits
/// beside an exclusive hold, which has all.
[[nodiscard]] constexpr std::int64_t permits_for(lock_mode mode) noexcept {
    constexpr std::int64_t upgradeable = 1'000'000'000;
    switch (mode) {
        case lock_mode::shared:
            return 1;
        case lock_mode::upgradeable:
            return upgradeable;
        case lock_mode::exclusive:
            break;
    }
    return 2 * upgradeable - 1;
}

/// The mode that so many permits stand for; nullopt if they are part of a hold, as of an upgrade.
[[nodiscard]] constexpr std::optional<lock_mode> mode_for(std::int64_t permits) noexcept {
    for (const auto each : {lock_mode::shared, lock_mode::upgradeable, lock_mode::exclusive}) {
        if (permits == permits_for(each)) return each;
    }
    return std::nullopt;
}

/// The state of one of our entries in the queue of a semaphore.
struct permit_entry {
    std::string name;
    rowlock::grant_id grant_id;
    ticket_no ticket;
    std::int64_t position;  ///< 1 = is served next; dead waiters are not counted
    bool servable;          ///< the first waiter of its queue can be served: run grant_next
    bool counted;           ///< false: the counter was deleted; create() it
    bool behind_several;    ///< that waiter is one of a request for several: it takes them itself
};

struct permit_entries {
    bool session_live;  ///< our session is live
    std::vector<permit_entry> waiting;
};

/// Whether permits can be taken back from holders. One snapshot.
struct permit_holders {
    bool expired = false;   ///< a session has expired, and must be ended first (expired_holders)
    bool over = false;      ///< there are holds that have ended: sweep
    std::int64_t free = 0;  ///< permits that are free; less than 0 after the capacity was lowered
    /// Until the next of the others ends without a heartbeat; 0 if there is none.
    std::chrono::microseconds remaining{0};

    /// Whether so many permits were free, or perhaps will be before any live holder gives some up:
    /// then an attempt that found too few may have looked while another client took some back.
    [[nodiscard]] bool may_have(std::int64_t wanted) const noexcept {
        return expired || over || free >= wanted;
    }
};

/// A semaphore for the reaper.
struct neglected_semaphore {
    std::string name;
    std::int64_t difference;  ///< of the counter and the sum of the holds
};

/// A shared_mutex that was not in use for long.
struct idle_shared_mutex {
    std::string name;
    std::int64_t token;
    bool deletable;  ///< the settled token floor covers its token
};

enum class hold_state : unsigned char { alive, requested, over };

/// A hold of a semaphore.
struct hold_id {
    session_id session{};
    rowlock::grant_id grant_id{};
};

/// A hold, for people.
struct held_permits {
    permit_holder shown;
    rowlock::grant_id base{};  ///< of an upgrade: the hold that it was added to
};

/// A hold of the client's, with the permits that it has most likely.
struct own_hold {
    rowlock::grant_id grant_id{};
    std::int64_t permits = 0;
};

/// Waiters that were given permits; and with the token 0 one of a request for several, whose client
/// is to be woken: it fits, and takes all of them itself (multi_protocol).
struct granted_permits {
    std::vector<handed_over> served{};
    bool more = false;  ///< there may be others that fit
};

/// As hold_protocol, where acquire() writes nothing if it takes nothing. One implementation a
/// dialect (make_semaphore_protocol). Thread-safe.
///
/// @throws error of acquire(): errc::invalid_options for less than one permit, more
/// than the capacity, a semaphore without a capacity, the name of a counter of another kind
class semaphore_protocol : public hold_protocol {
public:
    /// Makes a semaphore, or changes its capacity; below what is used, nothing is granted until
    /// enough has been given back. Idempotent. Two or three round trips.
    /// @throws error errc::invalid_options for the name of a shared_mutex or a lease
    virtual void set_capacity(sql::connection& db, std::string_view name, std::int64_t capacity,
                              sql::deadline until) const = 0;
    /// Makes a semaphore. Returns false, and changes nothing, if one of this name is there, or a
    /// shared_mutex. One round trip, two if it returns false.
    /// @throws error errc::invalid_options for the name of a lease
    virtual bool create(sql::connection& db, std::string_view name, std::int64_t capacity,
                        sql::deadline until) const = 0;
    /// Makes a shared_mutex. Returns false, and changes nothing, if it is there, or a semaphore of
    /// this name. One round trip, two if it returns false.
    /// @throws error errc::invalid_options for the name of a lease
    virtual bool create_shared_mutex(sql::connection& db, std::string_view name,
                                     sql::deadline until) const = 0;
    /// acquire() for several requests, by one commit: for as many, from the first on, as fit
    /// together. Returns nullopt for each of which only acquire() can tell. After a lost reply each
    /// grant is looked up by its id. PostgreSQL: one round trip, two if not all were granted; the
    /// others three, four for more than 16 requests.
    /// @param requests of one session and one semaphore or shared_mutex, none an upgrade; at most
    /// `most_together`
    [[nodiscard]] virtual std::vector<std::optional<attempt>> acquire_together(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const = 0;
    /// Ends several holds of one session, by one commit. Returns which: for the others call
    /// release(), which finds out why. Then check the queue. Waits for a hold that a fenced
    /// transaction has locked. One round trip; MySQL and SQLite need two or three more if a hold
    /// is over, or has other permits than said.
    /// @param holds at most `most_together`
    [[nodiscard]] virtual std::vector<bool> release_together(sql::connection& db,
                                                             std::string_view name,
                                                             session_id session,
                                                             std::span<const own_hold> holds,
                                                             sql::deadline until) const = 0;
    static constexpr std::size_t most_together = 32;

    /// Lowers the permits of a hold to this number, if it has more. Returns false if it is over.
    /// Then check the queue. Idempotent.
    virtual bool shrink(sql::connection& db, std::string_view name, session_id session,
                        grant_id grant_id, std::int64_t to, sql::deadline until) const = 0;

    /// Sets the deadline of a hold that has one to so long from now, never earlier. Idempotent.
    /// Four to six round trips.
    /// @param revision of the session's rows, as the holder knows it
    [[nodiscard]] virtual extension extend(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           std::chrono::microseconds by, std::int64_t revision,
                                           sql::deadline until) const = 0;

    /// Serves a prefix of the queue that fits: no request overtakes another. Idempotent; any client
    /// may run it, and repeats it while there may be more. What was granted may not be durable, and
    /// the tokens of MySQL and SQLite are hints: a waiter reads its own (served). If it fails after
    /// some were served, it returns those, with `more`.
    [[nodiscard]] virtual granted_permits grant_next(sql::connection& db, std::string_view name,
                                                     sql::deadline until) const = 0;
    /// Takes back what ended sessions and holds past their deadline have; returns how many permits.
    virtual std::int64_t sweep(sql::connection& db, std::string_view name,
                               sql::deadline until) const = 0;

    /// All entries of a session in the queues of semaphores, in one statement; reads only.
    [[nodiscard]] virtual permit_entries entries_of(sql::connection& db, session_id session,
                                                    sql::deadline until) const = 0;
    [[nodiscard]] virtual permit_holders holders_of(sql::connection& db, std::string_view name,
                                                    sql::deadline until) const = 0;
    /// Some of the sessions that hold permits and have expired, but are not ended.
    [[nodiscard]] virtual std::vector<session_id> expired_holders(sql::connection& db,
                                                                  std::string_view name,
                                                                  sql::deadline until) const = 0;
    /// As read: a caller relies on none of them before find_grant().
    [[nodiscard]] virtual std::vector<session_lease> permits_of(sql::connection& db,
                                                                session_id session,
                                                                sql::deadline until) const = 0;
    /// Moves the holds of a predecessor's session to one of ours, with new tokens. Within the
    /// transaction that has ended that session. Four round trips for each hold.
    virtual void reclaim(sql::connection& db, session_id predecessor, session_id session,
                         sql::deadline until) const = 0;
    /// The semaphores that the end of this session concerns: sweep() and grant_next() each.
    [[nodiscard]] virtual std::vector<std::string> names_of(sql::connection& db, session_id session,
                                                            sql::deadline until) const = 0;
    /// Whether permits are held or waited for.
    [[nodiscard]] virtual bool any(sql::connection& db, sql::deadline until) const = 0;
    /// As queue_protocol::deadlocks, among leases and shared_mutexes.
    [[nodiscard]] virtual std::vector<deadlock_found> deadlocks(sql::connection& db,
                                                                session_id session,
                                                                sql::deadline until) const = 0;

    // For the reaper.
    /// A batch of semaphores, by name, with something to sweep, to grant or to correct.
    [[nodiscard]] virtual std::vector<neglected_semaphore> neglected(sql::connection& db,
                                                                     std::string_view after,
                                                                     std::int64_t limit,
                                                                     sql::deadline until) const = 0;
    /// Sets a counter to the sum of its holds. Returns whether it was another number.
    virtual bool correct(sql::connection& db, std::string_view name, sql::deadline until) const = 0;
    /// A batch of shared_mutexes, by name, that were not in use for so long.
    [[nodiscard]] virtual std::vector<idle_shared_mutex> idle_shared_mutexes(
        sql::connection& db, std::string_view after, std::int64_t limit, std::int64_t retention_us,
        sql::deadline until) const = 0;
    /// Deletes a shared_mutex, unless it has been used since this token. A waiter whose entry comes
    /// meanwhile makes it anew.
    virtual bool delete_shared_mutex(sql::connection& db, std::string_view name, std::int64_t token,
                                     sql::deadline until) const = 0;

    /// The state of a hold, behind any client that has it locked to end it. One round trip.
    [[nodiscard]] virtual hold_state recheck(sql::connection& db, std::string_view name,
                                             session_id session, grant_id grant_id,
                                             sql::deadline until) const = 0;

    // For an operator. A token of a shared_mutex stands for the whole hold: with what an upgrade
    // added to it.
    /// As lease_protocol::request_release.
    [[nodiscard]] virtual std::optional<requested_release> request_release(
        sql::connection& db, std::string_view name, std::int64_t token, const release_terms& terms,
        sql::deadline until) const = 0;
    /// Ends the grant with that token: its fences fail from then on. Returns false if it is over.
    /// sweep() and grant_next() follow. Six round trips.
    /// @param whom what is ended; kept across the attempts of one call: empty at the first
    /// @param by who does it, for people
    virtual bool force_release(sql::connection& db, std::string_view name, std::int64_t token,
                               std::string_view by, std::optional<hold_id>& whom,
                               sql::deadline until) const = 0;

    // For people; one round trip each.
    [[nodiscard]] virtual bool exists(sql::connection& db, std::string_view name, counter_kind kind,
                                      sql::deadline until) const = 0;
    [[nodiscard]] virtual std::optional<semaphore_info> inspect(sql::connection& db,
                                                                std::string_view name,
                                                                counter_kind kind,
                                                                sql::deadline until) const = 0;
    [[nodiscard]] virtual std::vector<semaphore_info> list(sql::connection& db,
                                                           std::string_view prefix,
                                                           counter_kind kind, const page& page,
                                                           sql::deadline until) const = 0;
    [[nodiscard]] virtual std::vector<held_permits> holders(sql::connection& db,
                                                            std::string_view name, int limit,
                                                            sql::deadline until) const = 0;
    [[nodiscard]] virtual std::vector<permit_waiter> queue(sql::connection& db,
                                                           std::string_view name,
                                                           sql::deadline until) const = 0;

protected:
    semaphore_protocol() = default;
};

/// The protocol of the dialect that `statements` are written in.
[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_semaphore_protocol(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

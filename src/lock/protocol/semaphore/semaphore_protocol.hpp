#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
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

/// Counted holds of a lock: permits of a semaphore, or modes of a shared_mutex, for which the
/// number of permits stands. Each transition is one conditional statement or one short transaction,
/// and every end of a hold lowers the lock's row in the same one: `used` is the sum of the holds in
/// every committed state. Nobody takes any while a sole holder has all of the lock. No state, no
/// retries, no clocks. The rule of the queues holds here too: after each release, sweep,
/// set_capacity, enqueue and cancel the client calls queue_protocol::serve, in a commit of its own.
namespace rowlock::protocol {

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
    return all_of_a_lock;
}

/// What a caller asks for that wants this mode: the exclusive one is all of the lock.
[[nodiscard]] constexpr wanted_permits wanted_for(lock_mode mode) noexcept {
    const bool all = mode == lock_mode::exclusive;
    return {.count = all ? 0 : permits_for(mode), .of = counter_kind::shared_mutex};
}

/// Of a semaphore: fewer permits than any mode but shared takes. An entry for a mode that outlives
/// its name's change into a semaphore is granted nothing that others have not.
inline constexpr std::int64_t largest_capacity = permits_for(lock_mode::upgradeable) - 1;

/// The mode that so many permits stand for; nullopt if they are what an upgrade lacks.
[[nodiscard]] constexpr std::optional<lock_mode> mode_for(std::int64_t permits) noexcept {
    for (const auto each : {lock_mode::shared, lock_mode::upgradeable, lock_mode::exclusive}) {
        if (permits == permits_for(each)) return each;
    }
    return std::nullopt;
}

/// @param capacity of the name, if that is a semaphore's
/// @throws error errc::invalid_options if the name can never give what is wanted: it is, or is not,
/// a semaphore's, or of a smaller capacity
void require_obtainable(std::string_view name, const wanted_permits& wanted,
                        std::optional<std::int64_t> capacity);

/// Whether what the holders of a lock have can be taken back. One snapshot.
struct permit_holders {
    bool expired = false;   ///< a session has expired, and must be ended first (expired_holders)
    bool over = false;      ///< there are holds that have ended: sweep
    std::int64_t free = 0;  ///< permits that are free; less than 0 after the capacity was lowered
    /// Until the next of the others ends without a heartbeat; 0 if there is none.
    std::chrono::microseconds remaining{0};
    /// Who has all of the lock.
    struct sole_holder {
        session_id session{};
        std::int64_t token = 0;  ///< of the row
        bool gone = false;       ///< it has ended: queue_protocol::clear_sole
        bool expired = false;    ///< its session has expired, and must be ended first
    };
    std::optional<sole_holder> sole{};

    [[nodiscard]] bool can_be_taken_back() const noexcept {
        return expired || over || (sole && (sole->gone || sole->expired));
    }

    /// Whether so many permits were free, or perhaps will be before any live holder gives some up:
    /// then an attempt that found too few may have looked while another client took some back.
    [[nodiscard]] bool may_have(std::int64_t wanted) const noexcept {
        return can_be_taken_back() || (!sole && free >= wanted);
    }
};

/// A semaphore for the reaper.
struct neglected_semaphore {
    std::string name;
    std::int64_t difference;  ///< of the counter and the sum of the holds
};

/// A hold of a semaphore.
struct hold_id {
    session_id session{};
    rowlock::grant_id grant_id{};
};

/// A hold, for display.
struct held_permits {
    permit_holder shown;
    fencing_token first_token{};  ///< another one than `shown` has, if it is upgraded
};

/// A hold of the client's, with the permits that it has most likely.
struct own_hold {
    rowlock::grant_id grant_id{};
    std::int64_t permits = 0;
};

/// The upgrade of a hold is a grant with another id: until it is released, or the hold ends.
/// Dialects differ in how the row and its holds are changed together. Thread-safe.
///
/// @throws error of acquire(): errc::invalid_options for less than one permit, more
/// than the capacity, a semaphore without a capacity, the name of a lock of another kind
class semaphore_protocol {
public:
    virtual ~semaphore_protocol() = default;
    semaphore_protocol(const semaphore_protocol&) = delete;
    semaphore_protocol& operator=(const semaphore_protocol&) = delete;

    /// One attempt; writes nothing if it takes nothing. After a lost reply ask find_grant().
    attempt acquire(sql::connection& db, const grant_request& request, sql::deadline until) const;
    /// The token of a grant whose reply was lost, made durable.
    std::optional<std::int64_t> find_grant(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const;
    /// The grant that served an entry, made durable; nullopt if there is none.
    virtual std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                              session_id session, grant_id grant_id,
                                              sql::deadline until) const = 0;
    /// Ends a grant; returns false if it is over. Then check the queue.
    /// @param permits what it has most likely; 0: unknown. A wrong guess costs a round trip or two
    bool release(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
                 std::int64_t permits, sql::deadline until) const;
    /// Makes a semaphore, or changes its capacity; below what is used, nothing is granted until
    /// enough has been given back. Idempotent. Two or three round trips.
    /// @throws error errc::invalid_options for the name of a lock that is held or waited for
    void set_capacity(sql::connection& db, std::string_view name, std::int64_t capacity,
                      sql::deadline until) const;
    /// Makes a semaphore of a name that no lock has, or of a lock that nobody holds or waits for.
    /// Returns false, and changes nothing, if there is one. One round trip on PostgreSQL, elsewhere
    /// two; one more if it returns false.
    /// @throws error errc::invalid_options for the name of a lock that is held or waited for
    bool create(sql::connection& db, std::string_view name, std::int64_t capacity,
                sql::deadline until) const;
    /// acquire() for several requests, by one commit: for as many, from the first on, as fit
    /// together. Returns nullopt for each of which only acquire() can tell. After a lost reply each
    /// grant is looked up by its id. PostgreSQL: one round trip, two if not all were granted; the
    /// others three, four for more than 16 requests.
    /// @param requests of one session and one semaphore or shared_mutex, none an upgrade; at most
    /// `most_together`
    [[nodiscard]] std::vector<std::optional<attempt>> acquire_together(
        sql::connection& db, std::span<const grant_request> requests, sql::deadline until) const;
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

    /// Ends an upgrade of a hold in which a caller has believed; release() ends another one. The
    /// hold stays, with so many permits and another token, or as it was. Returns false if the
    /// upgrade is over. Waits for a transaction that is fenced with the hold. Then check the queue.
    /// Idempotent. One round trip on PostgreSQL, elsewhere four or five.
    virtual bool end_upgrade(sql::connection& db, std::string_view name, grant_id upgrade,
                             std::optional<std::int64_t> to, sql::deadline until) const = 0;
    /// Lowers the permits of a hold to this number, if it has more. Returns false if it is over.
    /// Then check the queue. Idempotent.
    bool shrink(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
                std::int64_t to, sql::deadline until) const;

    /// Makes a hold with so many permits of a grant of all of the lock, with its id and token; as
    /// shrink() if it is one already. Returns false if the grant is over. Then check the queue.
    /// Idempotent. Waits for a transaction that is fenced with the grant. One round trip on
    /// PostgreSQL, elsewhere one to five.
    bool lower(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
               std::int64_t to, sql::deadline until) const;

    /// Sets the deadline of a hold that has one to so long from now, never earlier; not one whose
    /// release another client has asked for: that is a change that its holder has not seen.
    /// Idempotent. Four to six round trips.
    /// @param revision of the session's rows, as the holder knows it
    [[nodiscard]] extension extend(sql::connection& db, std::string_view name, session_id session,
                                   grant_id grant_id, std::chrono::microseconds by,
                                   std::int64_t revision, sql::deadline until) const;

    /// Takes back what ended sessions and holds past their deadline have; returns how many permits.
    std::int64_t sweep(sql::connection& db, std::string_view name, sql::deadline until) const;

    [[nodiscard]] permit_holders holders_of(sql::connection& db, std::string_view name,
                                            sql::deadline until) const;
    /// Some of the sessions that hold permits and have expired, but are not ended.
    [[nodiscard]] std::vector<session_id> expired_holders(sql::connection& db,
                                                          std::string_view name,
                                                          sql::deadline until) const;
    /// As read: a caller relies on none of them before find_grant().
    [[nodiscard]] std::vector<session_lease> permits_of(sql::connection& db, session_id session,
                                                        sql::deadline until) const;
    /// Moves the holds of a predecessor's session to one of ours, with new tokens. Within the
    /// transaction that has ended that session. Four round trips for each hold.
    void reclaim(sql::connection& db, session_id predecessor, session_id session,
                 sql::deadline until) const;
    // For the reaper.
    /// A batch of locks, by name, with something to sweep or to correct.
    [[nodiscard]] std::vector<neglected_semaphore> neglected(sql::connection& db,
                                                             std::string_view after,
                                                             std::int64_t limit,
                                                             sql::deadline until) const;
    /// Sets a counter to the sum of its holds. Returns whether it was another number.
    bool correct(sql::connection& db, std::string_view name, sql::deadline until) const;

    // For an operator. The token of an upgrade stands for its hold.
    /// As lease_protocol::request_release.
    [[nodiscard]] std::optional<requested_release> request_release(sql::connection& db,
                                                                   std::string_view name,
                                                                   std::int64_t token,
                                                                   const release_terms& terms,
                                                                   sql::deadline until) const;
    /// Ends the grant with that token: its fences fail from then on. Returns false if it is over.
    /// sweep() and serve() follow. Six round trips.
    /// @param whom what is ended; kept across the attempts of one call: empty at the first
    /// @param by who does it, for people
    bool force_release(sql::connection& db, std::string_view name, std::int64_t token,
                       std::string_view by, std::optional<hold_id>& whom,
                       sql::deadline until) const;

    // For people; one round trip each.
    [[nodiscard]] bool exists(sql::connection& db, std::string_view name, counter_kind kind,
                              sql::deadline until) const;
    [[nodiscard]] std::optional<semaphore_info> inspect(sql::connection& db, std::string_view name,
                                                        counter_kind kind,
                                                        sql::deadline until) const;
    [[nodiscard]] std::vector<semaphore_info> list(sql::connection& db, std::string_view prefix,
                                                   counter_kind kind, const page& page,
                                                   sql::deadline until) const;
    [[nodiscard]] std::vector<held_permits> holders(sql::connection& db, std::string_view name,
                                                    int limit, sql::deadline until) const;
    [[nodiscard]] std::vector<permit_waiter> queue(sql::connection& db, std::string_view name,
                                                   sql::deadline until) const;

protected:
    explicit semaphore_protocol(const sql::statement_set& statements);

    /// The token, or nullopt if nothing was taken. Durable when it returns.
    virtual std::optional<std::int64_t> take(sql::connection& db, const grant_request& request,
                                             sql::deadline until) const = 0;
    /// take() for several requests, by one commit: a token for each, from the first on, that fits;
    /// 0 for one that is over already.
    [[nodiscard]] virtual std::vector<std::int64_t> take_together(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const = 0;
    /// Returns false if this hold is over already, or the grant is no hold.
    /// @param permits what it has most likely; 0: unknown
    virtual bool give(sql::connection& db, std::string_view name, session_id session,
                      grant_id grant_id, std::int64_t permits, sql::deadline until) const = 0;
    struct found_hold {
        queue_grant granted;
        std::int64_t permits;
        [[nodiscard]] bool is_upgrade() const noexcept { return permits == 0; }
    };
    /// Returns false, and changes nothing, if this hold is not as it was read.
    virtual bool shrink_now(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, const found_hold& read, std::int64_t to,
                            sql::deadline until) const = 0;
    /// Returns false, and changes nothing, if the session does not have all of the lock by this
    /// grant.
    virtual bool lower_now(sql::connection& db, std::string_view name, session_id session,
                           grant_id grant_id, std::int64_t to, sql::deadline until) const = 0;
    /// Ends a batch of holds that are over. Returns how many permits they had; 0: there are none.
    virtual std::int64_t sweep_some(sql::connection& db, std::string_view name,
                                    sql::deadline until) const = 0;

    /// For a loop that other clients can keep going.
    /// @throws error errc::timed_out behind the deadline
    static void check_time(sql::deadline until);

    /// A lock, and the session that asks.
    struct state {
        bool present = false;                    ///< it has a row
        std::optional<std::int64_t> capacity{};  ///< of a semaphore
        std::int64_t used = 0;
        bool session_live = false;
        bool waited = false;
        bool sole = false;  ///< the row names a sole holder, alive or not
        session_id holder{};
        rowlock::grant_id holders_grant{};
        /// What an attempt that found no room reports.
        [[nodiscard]] lease_probe seen() const {
            return {.session_live = session_live,
                    .grant_id = holders_grant,
                    .session = holder,
                    .waited = waited,
                    .counted = true};
        }
        /// Whether one counted hold has all of the lock.
        [[nodiscard]] bool is_upgraded() const {
            return !sole && holders_grant != rowlock::grant_id{};
        }
        [[nodiscard]] counter_kind kind() const {
            return capacity ? counter_kind::semaphore : counter_kind::shared_mutex;
        }
        [[nodiscard]] bool has(std::int64_t permits) const {
            const auto all = capacity.value_or(permits_for(lock_mode::exclusive));
            return present && !sole && !is_upgraded() && permits <= all - used;
        }
    };
    [[nodiscard]] state state_of(sql::connection& db, std::string_view name, session_id session,
                                 sql::deadline until) const;
    /// As read: it may not be durable.
    [[nodiscard]] std::optional<found_hold> read(sql::connection& db, std::string_view name,
                                                 session_id session, grant_id grant_id,
                                                 sql::deadline until) const;

private:
    [[nodiscard]] attempt upgrade(sql::connection& db, const grant_request& request,
                                  sql::deadline until) const;
    [[nodiscard]] attempt judge(sql::connection& db, const grant_request& request,
                                sql::deadline until) const;
    [[nodiscard]] std::optional<hold_id> hold_to_end(sql::connection& db, std::string_view name,
                                                     std::int64_t token, sql::deadline until) const;

    const sql::statement set_capacity_, create_, make_row_, state_, find_, holders_, expired_,
        permits_of_, neglected_, lock_, correct_, exists_, inspect_, list_, holders_for_people_,
        queue_, to_end_, lock_hold_, shorten_, end_, bump_revision_, extend_, session_,
        raise_token_, reclaim_, upgrade_look_, upgrade_lock_, drop_upgrade_;
};

/// The protocol of the dialect that `statements` are written in.
[[nodiscard]] std::unique_ptr<const semaphore_protocol> make_semaphore_protocol(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

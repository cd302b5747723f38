#pragma once

#include "lock/protocol/session/session_protocol.hpp"
#include "sql/statements.hpp"
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The transitions of leases, each one conditional statement or one short transaction on a
/// connection given by the caller. No state, no retries, no clocks: those are the client's.
namespace rowlock::protocol {

/// What keeps permits. The numbers are those of the column `kind`.
enum class counter_kind : std::int64_t {
    semaphore = 0,
    shared_mutex = 1,  ///< permits stand for modes (permits_for); made when it is first used
};

/// What a lock without a capacity has room for: the weight of an exclusive hold.
inline constexpr std::int64_t all_of_a_lock = 1'999'999'999;

/// The permits that a hold is to have.
struct wanted_permits {
    std::int64_t count = 0;  ///< 0: it is a lease
    counter_kind of = counter_kind::semaphore;
    /// If not 0: what this upgradeable or shared hold lacks to be the exclusive one. It passes the
    /// queue, or waits at its head, and needs that hold to be alive.
    rowlock::grant_id upgrades{};

    [[nodiscard]] bool is_part() const noexcept { return count > 0; }
    [[nodiscard]] bool of_semaphore() const noexcept {
        return is_part() && of == counter_kind::semaphore;
    }
    /// In a mode, the exclusive one included.
    [[nodiscard]] bool of_shared_mutex() const noexcept { return of == counter_kind::shared_mutex; }
    [[nodiscard]] bool is_upgrade() const noexcept { return upgrades != rowlock::grant_id{}; }
    /// How much room it needs.
    [[nodiscard]] std::int64_t weight() const noexcept { return count > 0 ? count : all_of_a_lock; }
};

/// A grant, as its client names it. Refers to the name.
struct hold_key {
    std::string_view name;
    session_id session;
    rowlock::grant_id grant_id;
    bool part = false;  ///< it is a counted hold; else it is all of the lock
    /// If set, and once that is true, the table may have the grant as either.
    const std::atomic<bool>* perhaps_lowered = nullptr;
};

/// The key of what a request or an entry of a queue is, or will be, granted.
[[nodiscard]] inline hold_key key_of(const wanted_permits& wanted, std::string_view name,
                                     session_id session, rowlock::grant_id grant_id) noexcept {
    return {name, session, grant_id, wanted.is_part()};
}

struct grant_request {
    std::string_view name;
    session_id session;
    rowlock::grant_id grant_id;
    std::string_view thread;
    std::string_view note;
    std::optional<std::int64_t> deadline_us;
    bool barging = false;  ///< also past waiters in the queue
    wanted_permits permits{};
    std::string_view blocks{};  ///< of a queue entry: party_labels.hpp
    std::int64_t priority = 0;  ///< of a queue entry: of a candidate in an election
    std::string_view server{};  ///< on which the session lives; '': any. For batch_protocol
    /// Of a queue entry: how long its caller waits from now on; nullopt: without a limit. The entry
    /// is not served later than that.
    std::optional<std::int64_t> limit_us{};
};

/// The state of a lease in one snapshot.
struct lease_probe {
    std::int64_t next_token = 0;  ///< that a grant would carry; 0: no floor, or PostgreSQL
    bool session_live = false;    ///< the asking session
    bool present = false;
    std::int64_t token = 0;
    bool free = false;
    rowlock::grant_id grant_id{};            ///< of the holder
    session_id session{};                    ///< of the holder
    bool holder_expired = false;             ///< but is not ended: end it, then take the lease
    std::chrono::microseconds remaining{0};  ///< until the holder expires
    bool waited = false;                     ///< free, but a live waiter is queued
    bool promised = false;                   ///< the next token, to a waiter: no client passes it
    bool counted = false;                    ///< counted holds are, or may be, in the way
    bool semaphore = false;                  ///< the name is a semaphore's: never free
    /// Whether an acquire could succeed.
    [[nodiscard]] bool takeable(bool barging) const {
        return free && !promised && (barging || !waited);
    }
};

/// Whether a lease is held, where no more is asked.
struct lease_glance {
    bool free = false;
    std::chrono::microseconds remaining{0};  ///< until the holder expires
};

/// Reads the columns of `glance`.
[[nodiscard]] lease_glance read_glance(const sql::result& row);

/// Reads the columns of `acquire` and `probe` from the second on.
[[nodiscard]] lease_probe read_probe(const sql::result& row);
/// Reads only the lease's columns, from the fourth on: `row` contains a lease.
[[nodiscard]] lease_probe read_lease(const sql::result& rows, std::size_t row);

/// Who asked for a release within a time, and why; nullopt if the column is NULL.
[[nodiscard]] std::optional<rowlock::release_request> read_request(const sql::result& rows,
                                                                   std::size_t row,
                                                                   std::size_t column);

/// The name is a semaphore's, of which nobody can hold all.
[[nodiscard]] error name_of_semaphore(std::string_view name);

/// Whether a statement that inserts one row, and commits by itself, failed because another client
/// inserts the same row. Either the row exists (errc::unique_violation), or both clients waited for
/// a third that deletes it or rolls its own insertion back: InnoDB then gives both a shared lock,
/// each waits for the other to release it, and InnoDB ends one (errc::deadlock). Nothing was done;
/// probe again, the other has committed by then.
[[nodiscard]] bool another_inserts(const error& failure) noexcept;

/// Makes the row of a lock that has none: free, at the token floor. If another client inserts it,
/// that is as good. One round trip.
/// @param restore the statement restore_lease
void restore_row(sql::connection& db, const sql::statement& restore, std::string_view name,
                 sql::deadline until);

struct attempt {
    enum class outcome {
        granted,
        held,          ///< by another session, see `seen`; or free and waited for
        contested,     ///< another client won between probe and write: probe again
        session_dead,  ///< the caller's
    };
    outcome what = outcome::contested;
    std::int64_t token = 0;  ///< if granted
    lease_probe seen{};
};

/// A grant, as the client that asked for it names it.
struct granted_name {
    std::string_view name;
    rowlock::grant_id grant_id;
};

struct session_lease {
    std::string name;
    rowlock::grant_id grant_id;
    std::int64_t token;
    std::optional<std::int64_t> deadline_us;  ///< time left until then
    bool forced = false;                      ///< it was ended by force, and is not swept yet
    std::int64_t permits = 0;                 ///< 0: it is a lease
    bool requested = false;                   ///< another client asked for the release
    /// Another client asked for the release by the deadline above; else at once.
    std::optional<rowlock::release_request> asked{};
    rowlock::grant_id upgrade{};     ///< of a counted hold: it has all of the lock by this grant
    std::int64_t upgrade_token = 0;  ///< of that
    bool of_semaphore = false;       ///< of a counted hold

    /// What of the lock it has; a whole one as the exclusive mode.
    [[nodiscard]] wanted_permits what() const noexcept {
        return {.count = permits,
                .of = of_semaphore ? counter_kind::semaphore : counter_kind::shared_mutex};
    }
};

/// The holder that a forced release targets, kept across its attempts.
struct victim {
    std::string by{};                     ///< who does it, for people
    std::optional<std::int64_t> only{};   ///< if set: the holder with this token, and no other
    std::optional<std::int64_t> token{};  ///< set by the first
    session_id session{};                 ///< of the latest that was, or may have been, evicted
    rowlock::grant_id grant_id{};         ///< likewise
};

/// What a holder is asked for.
struct release_terms {
    std::chrono::microseconds within{0};  ///< 0: at once
    std::string_view asked_by{};          ///< empty: at once
    std::string_view reason{};            ///< for people
};

/// The result of an attempt to extend a hold.
enum class extension : unsigned char {
    done,
    over,           ///< the hold has ended
    unseen_change,  ///< another client has changed rows of the session: read them first
    requested,      ///< another client has asked for its release
    done_before,    ///< a lease: by an earlier attempt, for so long from then
};

/// A grant of a lease that is to be extended.
struct grant_to_extend {
    std::string_view name;
    session_id session;
    rowlock::grant_id grant_id;
    std::int64_t token;      ///< of its row
    std::int64_t new_token;  ///< of its row, if it is extended: token + 2
};

/// A lease of another session that is to be taken over.
struct offered_lease {
    std::string_view name;
    session_id session;  ///< the giver's
    rowlock::grant_id grant_id;
    std::int64_t token;  ///< of its row, which may be an extension ahead whose reply was lost
};

/// An offered lease in its new hands.
struct adopted_lease {
    std::int64_t token = 0;
    std::optional<std::chrono::microseconds> left{};   ///< until its own deadline, if it has one
    std::optional<std::chrono::microseconds> whole{};  ///< from its acquisition to that
    std::optional<rowlock::release_request> asked{};
};

struct requested_release {
    session_id session;              ///< the holder's
    std::chrono::microseconds left;  ///< until the lease ends at the latest
};

/// Dialects differ in how a lease is acquired. Thread-safe.
class lease_protocol {
public:
    virtual ~lease_protocol() = default;
    lease_protocol(const lease_protocol&) = delete;
    lease_protocol& operator=(const lease_protocol&) = delete;

    /// One round trip on PostgreSQL, and on SQLite a probe more if the lease is held; on MySQL a
    /// probe and, if that finds it free, a compare-and-set.
    /// @throws error errc::invalid_options for the name of a semaphore
    virtual attempt acquire(sql::connection& db, const grant_request& request,
                            sql::deadline until) const = 0;
    lease_probe probe(sql::connection& db, std::string_view name, session_id session,
                      sql::deadline until) const;
    /// One round trip, cheaper than that of probe().
    lease_glance glance(sql::connection& db, std::string_view name, sql::deadline until) const;
    /// Returns false if the row is not, or no longer, this grant.
    bool release(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
                 sql::deadline until) const;
    /// The token of a grant whose reply was lost, made durable; two round trips.
    std::optional<std::int64_t> find_grant(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const;
    /// Makes grants of one session that were read, and may not be on disk yet, durable by one later
    /// commit. Returns for each whether it is still this grant. One round trip for one grant, n + 2
    /// for n.
    std::vector<bool> make_durable(sql::connection& db, session_id session,
                                   std::span<const granted_name> grants, sql::deadline until) const;
    /// As read: a caller relies on none of them before find_grant() or make_durable().
    std::vector<session_lease> leases_of(sql::connection& db, session_id session,
                                         sql::deadline until) const;
    /// Returns true if a holder was evicted, false if the lease was free. A retry after a lost
    /// reply passes the same `whom` and leaves a newer holder alone. The lease is left free: the
    /// caller runs queue_protocol::serve afterwards.
    bool force_release(sql::connection& db, std::string_view name, victim& whom,
                       sql::deadline until) const;
    /// Asks the grant `token` to end. Its row gets a deadline: the time at which the holder's
    /// session would expire without another heartbeat, or the time that the terms allow, if that is
    /// later. The holder, whose revision moves, finds that deadline; until then it keeps the lease.
    /// Returns nullopt if that grant does not hold the lease. Repeat it after a lost reply: a
    /// deadline only moves earlier.
    std::optional<requested_release> request_release(sql::connection& db, std::string_view name,
                                                     std::int64_t token, const release_terms& terms,
                                                     sql::deadline until) const;

    /// Ends the owner's other sessions and moves their leases to `session`, past waiters, in one
    /// transaction. The queue entries of those sessions die with them. Returns the sessions that
    /// were ended: a lease that was being handed to one of them, or whose deadline has passed,
    /// reaches no waiter unless the caller looks (queue_protocol::queues_of_session, serve).
    /// Returns nullopt and changes nothing if `session` is over: it could hold none of them.
    /// @param also if not empty, called for each session once it is ended, in the transaction
    std::optional<std::vector<session_id>> reclaim(sql::connection& db, std::string_view owner,
                                                   session_id session,
                                                   const std::function<void(session_id)>& also,
                                                   sql::deadline until) const;

    /// Moves an offered lease to `session`, as the grant `as`, if it is still that grant, the
    /// giver's session lives, and no client has asked for its release at once; the giver's revision
    /// moves. Nullopt if not: after a lost reply find_adopted() tells whether it was done before.
    std::optional<adopted_lease> adopt(sql::connection& db, const offered_lease& offer,
                                       session_id session, rowlock::grant_id as,
                                       sql::deadline until) const;
    /// The same of an earlier attempt, made durable.
    std::optional<adopted_lease> find_adopted(sql::connection& db, std::string_view name,
                                              session_id session, rowlock::grant_id as,
                                              sql::deadline until) const;
    /// Sets the deadline of a lease that has one, and whose session nothing keeps alive, to so long
    /// from now, with a new token: a client that judged it over by the old deadline compares that.
    /// Never earlier than it was. Its session lives `slack` longer. Returns the token; nullopt if
    /// the grant is over, or another client has asked for its release. Repeat it after a lost
    /// reply: it is renewed again.
    std::optional<std::int64_t> renew(sql::connection& db, std::string_view name,
                                      session_id session, rowlock::grant_id grant_id,
                                      std::chrono::microseconds duration,
                                      std::chrono::microseconds slack, sql::deadline until) const;

    /// Sets the deadline of a lease that has one to so long from now, never earlier, and raises its
    /// row's token: who judged it over by the old deadline compares that. Five round trips. After a
    /// lost reply: repeat it with the same tokens.
    /// @param revision of the session's rows, as the holder knows it
    [[nodiscard]] extension extend(sql::connection& db, const grant_to_extend& which,
                                   std::chrono::microseconds by, std::int64_t revision,
                                   sql::deadline until) const;

    std::optional<lease_info> inspect(sql::connection& db, std::string_view name,
                                      sql::deadline until) const;
    std::vector<lease_info> list(sql::connection& db, std::string_view prefix, const page& page,
                                 sql::deadline until) const;
    std::vector<waiter_info> queue(sql::connection& db, std::string_view name,
                                   sql::deadline until) const;

    /// The sessions that leases live by.
    [[nodiscard]] const session_protocol& sessions() const noexcept { return *sessions_; }

protected:
    explicit lease_protocol(const sql::statement_set& statements);

    /// Grants the lease by the statement `acquire`.
    [[nodiscard]] attempt acquire_by(const sql::statement& acquire, sql::connection& db,
                                     const grant_request& request, sql::deadline until) const;
    /// The statement that release() runs.
    [[nodiscard]] virtual const sql::statement& release_on(const sql::connection& db) const;
    /// Whether the lease survives a server crash as it was seen. False if it has changed since.
    [[nodiscard]] virtual bool is_durable(sql::connection& db, std::string_view name,
                                          const lease_probe& seen, sql::deadline until) const;

private:
    [[nodiscard]] std::optional<adopted_lease> read_adopted(sql::connection& db,
                                                            std::string_view name,
                                                            session_id session,
                                                            rowlock::grant_id as,
                                                            sql::deadline until) const;
    bool evict(sql::connection& db, std::string_view name, const lease_probe& seen,
               std::string_view by, sql::deadline until) const;

    const std::unique_ptr<const session_protocol> sessions_;
    const sql::statement probe_, glance_, release_, find_grant_, confirm_grant_, session_leases_,
        force_release_, lock_lease_, shorten_lease_, lease_deadline_, reclaim_lease_, adopt_lease_,
        adopted_lease_, renew_lease_, extend_lease_, inspect_, list_, queue_;
};

/// The protocol of the dialect that `statements` are written in.
[[nodiscard]] std::unique_ptr<const lease_protocol> make_lease_protocol(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

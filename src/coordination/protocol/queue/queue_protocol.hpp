#pragma once

#include "coordination/protocol/lease/lease_protocol.hpp"
#include "coordination/wakeup/hint.hpp"
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The queues: adds and cancels entries, whatever they wait for; serves those for leases in ticket
/// order (semaphore_protocol::grant_next serves those for permits). Like
/// lease_protocol: each transition is one conditional statement or one short transaction; no state,
/// no clocks.
///
/// The rule that loses no wake-up: after each write (a ticket, a release, the end of a session, the
/// deletion of a ticket) the client checks, in a commit of its own, whether a waiter can be served.
namespace rowlock::protocol {

/// A lease that grant_next or a release has given to a waiter. Or, with the token 0, a lease that
/// is free and whose first waiter asks for several: that one was given nothing, and is to look
/// itself.
struct handed_over {
    session_id session;
    rowlock::grant_id grant_id;
    std::int64_t token;
    bool woken = false;         ///< the statement itself woke it (PostgreSQL, MariaDB)
    bool asynchronous = false;  ///< the commit may not be on disk yet
    wakeup::wake_address to{};  ///< of that session; needed only if it was not `woken`

    [[nodiscard]] bool granted() const noexcept { return token != 0; }
};

/// The state of one of our queue entries.
struct queue_entry {
    std::string name;
    rowlock::grant_id grant_id;
    ticket_no ticket;
    /// 1 = is served next; waiters that cannot be served are not counted. 0: this one cannot be.
    std::int64_t position;
    bool free;                  ///< the lease may be granted: run grant_next
    session_id holder_session;  ///< 0 if none
    bool holder_expired;        ///< but not ended: end that session, then run grant_next
    /// Until the holder's session or the lease's own deadline expires; 0 if the lease is free.
    std::chrono::microseconds remaining{0};
    /// Scans of this queue start behind this entry and miss it: call reset_watermark.
    bool behind_watermark;
    /// The first entry of this queue is one of a request for several leases: grant_next serves
    /// none.
    bool behind_several = false;
};

struct queue_entries {
    bool session_live;  ///< our session is live
    std::vector<queue_entry> waiting;
};

struct queue_grant {
    std::int64_t token = 0;
    std::optional<std::int64_t> deadline_us;  ///< what is left of the lease's own deadline
};

struct release_outcome {
    bool freed = false;               ///< false: the row was not this grant (any more)
    std::optional<handed_over> next;  ///< granted in the same commit
    /// There is no waiter, and a newcomer finds the lease free, so no check is needed. Only on
    /// SQLite, where a release and an enqueue cannot overlap.
    bool unwaited = false;
};

/// The waiter that a holder saw behind it, and the data that a hand-over to it needs.
struct next_waiter {
    ticket_no ticket{};
    session_id session{};
    rowlock::grant_id grant_id{};
    std::string thread{}, note{};
    std::optional<std::int64_t> deadline_us{};
    wakeup::wake_address to{};           ///< of the waiter's session
    std::chrono::microseconds alive{0};  ///< what was left of the waiter's session
    bool promised = false;               ///< the next token, durably: it may be notified at once
    std::optional<rowlock::grant_id> after{};  ///< grant id of the waiter behind it
    std::optional<ticket_no> looks_from{};
    // MySQL and SQLite:
    std::int64_t seen = 0;   ///< the lease's token, which the hand-over compares
    std::int64_t token = 0;  ///< of the grant
};

struct confirmed_grant {
    queue_grant granted;
    std::optional<next_waiter> next;
};

struct served_row {
    rowlock::grant_id grant_id{};
    queue_grant granted;
    bool durable = false;  ///< the granter still holds the lock that says its commit has returned
};

/// A deadlock cycle, seen from the queue entry that has to give way.
struct deadlock_found {
    rowlock::grant_id grant_id;  ///< of the entry that gives way: the youngest of the cycle
    std::string description;     ///< "a (held by … ) -> b (held by …) -> a", without our ids
    std::vector<rowlock::grant_id> entries;  ///< the cycle's queue entries
};

/// One implementation a dialect (make_queue_protocol). Thread-safe.
class queue_protocol {
public:
    virtual ~queue_protocol() = default;
    queue_protocol(const queue_protocol&) = delete;
    queue_protocol& operator=(const queue_protocol&) = delete;

    /// Adds a queue entry. Locks rows of the table of tickets alone: the holder's fenced
    /// transaction may lock the lease row for long. One round trip, asynchronous commit where there
    /// is one. After a lost reply use another grant id and cancel this one: it may have been served
    /// already. Returns the lease as it was then, if the statement reads it (PostgreSQL).
    virtual std::optional<lease_glance> enqueue(sql::connection& db, const grant_request& request,
                                                sql::deadline until) const = 0;

    /// Cancels queue entries; returns those that this call deleted. Ask find_grant about the
    /// others: they were served, or never inserted. After it deleted an entry the caller must run
    /// grant_next for that name if cancel_leaves_queue_unserved(), or if the entry was one of a
    /// request for several leases, for which others had left the lease free.
    virtual std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                         sql::deadline until) const = 0;
    /// Whether a statement that chose an entry, and then finds it deleted, ends without a look for
    /// the next one (PostgreSQL).
    ///
    /// Elsewhere nobody has to look behind a cancelled entry of one lease. Let the lease be free
    /// and E the first entry. (1) Whoever freed the lease looks after that commit (release(),
    /// names_with_waiters()), and so does whoever's ticket was committed later: it polls at once,
    /// and serves the first of the queue whatever its own place is. So a client looks that is not
    /// done. (2) A look ends in one of three ways: it sees no entry, then those that come later
    /// look themselves; it grants the lease; or its compare-and-set finds E gone, rolls back and
    /// looks again (grant_next(), release()). None of them leaves the rest to the client of E, nor
    /// does a look see E after its deletion. (3) If the lease is held, its release chooses anew in
    /// the same way. A client that dies amid its look leaves the queue to the polls, with E or
    /// without.
    [[nodiscard]] virtual bool cancel_leaves_queue_unserved() const noexcept { return false; }

    /// All queue entries of a session, in one statement; reads only.
    virtual queue_entries entries_of(sql::connection& db, session_id session,
                                     sql::deadline until) const = 0;

    /// Like entries_of, but at least these entries: for one that was just added.
    virtual queue_entries entries_at(sql::connection& db, session_id session,
                                     std::span<const grant_id> grant_ids,
                                     sql::deadline until) const = 0;

    /// For an entry that was overtaken: makes scans of its queue start at it again. Waits for the
    /// lease's row as grant_next does.
    virtual void reset_watermark(sql::connection& db, std::string_view name, ticket_no ticket,
                                 sql::deadline until) const = 0;

    /// The grant that served an entry, or nullopt; no crash of the server takes it back. MySQL
    /// shows a commit before it is on disk: there a durable commit of ours follows (one more round
    /// trip). Elsewhere one round trip.
    /// @param reported the token that the granter reported after its commit: a grant with this
    /// token is durable, and only read
    virtual std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                              session_id session, grant_id grant_id,
                                              sql::deadline until,
                                              std::optional<std::int64_t> reported = {}) const = 0;
    /// The same for several entries of one session: one round trip for each, and one commit for
    /// all.
    virtual std::vector<std::optional<queue_grant>> served(sql::connection& db, session_id session,
                                                           std::span<const granted_name> entries,
                                                           sql::deadline until) const = 0;
    /// The same as read, for a caller that makes the grant durable before it reports it.
    virtual std::optional<queue_grant> read_served(sql::connection& db, std::string_view name,
                                                   session_id session, grant_id grant_id,
                                                   sql::deadline until) const = 0;

    /// The grants that this session has of these names, served entries among them. Only on MySQL
    /// and MariaDB, where a wake-up says only that there is one. As read: a grant not known to be
    /// durable has to be made so (lease_protocol::make_durable) before it is reported. One round
    /// trip for each 16 names.
    /// @throws error errc::unsupported elsewhere
    virtual std::vector<served_row> served_of(sql::connection& db, session_id session,
                                              std::span<const std::string> names,
                                              sql::deadline until) const = 0;

    /// Which of these names' rows are grants of this session, to compare a holder's belief with the
    /// tables. By primary key; one round trip on PostgreSQL, elsewhere one for each 16 names.
    virtual std::vector<served_row> held_of(sql::connection& db, session_id session,
                                            std::span<const std::string> names,
                                            sql::deadline until) const = 0;

    /// If the lease is free and has a live waiter, grants it to the lowest ticket, deletes that
    /// ticket and (PostgreSQL) notifies its session alone: all or nothing, durable. If that ticket
    /// is one of a request for several leases, only the notification. Idempotent; any client may
    /// run it. Waits for the lease row's lock as long as the connection's lock timeout allows; then
    /// errc::timed_out, and the caller must come back.
    virtual std::optional<handed_over> grant_next(sql::connection& db, std::string_view name,
                                                  sql::deadline until) const = 0;

    /// Frees a lease, or hands it straight to the first waiter that the statement sees. If it sees
    /// none the caller checks again afterwards (names_with_waiters), since a ticket may have been
    /// committed meanwhile.
    /// @param contended whether waiters are to be expected. If so PostgreSQL and MySQL hand over in
    /// one round trip; MySQL in two without datagrams, in five on a borrowed connection and SOCI.
    /// If not, all free it in one if there is no waiter; if there is, PostgreSQL (in a second) and
    /// SQLite hand over all the same, while MySQL does not check and frees it.
    virtual release_outcome release(sql::connection& db, std::string_view name, session_id session,
                                    grant_id grant_id, bool contended,
                                    sql::deadline until) const = 0;

    /// Whether release() seeks waiters although none are to be expected, and yet may miss one that
    /// comes meanwhile (PostgreSQL): the check afterwards hardly ever finds any. MySQL does not
    /// seek them, SQLite misses none.
    [[nodiscard]] virtual bool release_seeks_waiters() const noexcept { return false; }

    /// Checks a reported grant against the table; on PostgreSQL (MySQL: no datagram) also reads the
    /// next waiter, and on PostgreSQL makes durable what the release builds on. One round trip;
    /// waits for the disk if the grant was reported before it was there (`durably`), or if its row
    /// promises the next token. MySQL does not report what is left of the lease's own deadline.
    virtual std::optional<confirmed_grant> confirm_and_read_next(sql::connection& db,
                                                                 std::string_view name,
                                                                 session_id session,
                                                                 grant_id grant_id, bool durably,
                                                                 sql::deadline until) const = 0;

    /// Hands our lease to the waiter that confirm_and_read_next() has seen, sooner than release()
    /// finds it. Returns nullopt if that waiter has gone or the lease is not ours; call release()
    /// in both cases. One round trip; four on MySQL where the connection is borrowed or SOCI's.
    struct hand_over_options {
        /// Whether we would notice a server crash that loses the commit, and repeat it: not behind
        /// a pooler, nor where another process may reclaim our leases.
        bool may_be_asynchronous = false;
        bool notify = true;  ///< false: the caller notifies the waiter (`woken` is false)
    };
    virtual std::optional<handed_over> hand_over_to(sql::connection& db, std::string_view name,
                                                    session_id session, grant_id grant_id,
                                                    const next_waiter& next,
                                                    const hand_over_options& how,
                                                    sql::deadline until) const = 0;

    /// Which of these names have a live waiter. Reads only, one round trip for each 16 names.
    virtual std::vector<std::string> names_with_waiters(sql::connection& db,
                                                        std::span<const std::string> names,
                                                        sql::deadline until) const = 0;

    /// Removes our session, which no lease and no ticket names, and returns which of these names
    /// have a live waiter. One round trip for each 16 names on PostgreSQL, elsewhere one more.
    virtual std::vector<std::string> leave(sql::connection& db, session_id session,
                                           std::span<const std::string> names,
                                           sql::deadline until) const = 0;

    /// The names with live waiters whose lease this (ended) session has, or in whose queue it has
    /// an entry; one snapshot. The client that ended the session runs grant_next for them, then
    /// delete_entries_of.
    virtual std::vector<std::string> queues_of_session(sql::connection& db, session_id session,
                                                       sql::deadline until) const = 0;

    /// Deletes the queue entries of a session that has ended, if any: they can never be served, and
    /// each read of their queues steps over them. Changes nothing if the session is live. Returns
    /// whether there may be more, for another call. One round trip; on MySQL one to read, and if
    /// there are any one for each of up to 16, and the commit.
    virtual bool delete_entries_of(sql::connection& db, session_id session,
                                   sql::deadline until) const = 0;

    /// Deadlock cycles in which an entry of this session is the youngest: the other members cannot
    /// get what they wait for before it gives way. One recursive statement, reads only.
    virtual std::vector<deadlock_found> deadlocks(sql::connection& db, session_id session,
                                                  sql::deadline until) const = 0;

    /// Wakes the waiter that was served, unless the statement that served it did: by datagram, if
    /// enabled and the waiter has a mailbox on this machine; else through the database (PostgreSQL,
    /// and MySQL by mysql_wait::wake; one round trip). A hint. On SQLite, without datagrams, the
    /// waiter sees the commit.
    virtual void notify_grantee(sql::connection& db, const handed_over& next,
                                sql::deadline until) const noexcept = 0;

    /// Notifies a session, after the commit, that its rows were changed: by datagram, if enabled
    /// and it has a mailbox on this machine; else by PostgreSQL's NOTIFY. A hint: the session sends
    /// its next heartbeat at once, and finds the change. One round trip, two with the notification.
    /// MySQL cannot reach a session that does not wait.
    virtual void notify_session(sql::connection& db, session_id session,
                                sql::deadline until) const noexcept = 0;

    /// Asks a session for a lease that it may keep after its release, by the same ways. A hint:
    /// without it the session gives the lease back a while later.
    virtual void recall(sql::connection& db, session_id session, grant_id grant_id,
                        sql::deadline until) const noexcept = 0;

protected:
    queue_protocol() = default;
};

/// The protocol of the dialect that `statements` are written in.
/// @param leases must outlive the protocol
/// @param by_datagram whether the caller notifies served waiters by datagram where possible
/// (notify_grantee): then no statement wakes them
[[nodiscard]] std::unique_ptr<const queue_protocol> make_queue_protocol(
    const sql::statement_set& statements, const lease_protocol& leases, bool by_datagram = true);

/// Whether this session has a mailbox that can be reached from here.
[[nodiscard]] bool is_near(const wakeup::wake_address& session) noexcept;

}  // namespace rowlock::protocol

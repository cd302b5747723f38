#pragma once

#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/wakeup/hint.hpp"
#include <rowlock/ids.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The queues: adds and cancels entries, and serves them in ticket order, whatever they wait for: a
/// sole waiter for all of a lock, a counted one for a part. Like lease_protocol: each transition is
/// one conditional statement or one short transaction; no state, no clocks.
///
/// The rule that loses no wake-up: after each write (a ticket, a release, the end of a session, the
/// deletion of a ticket) the client checks, in a commit of its own, whether a waiter can be served.
namespace rowlock::protocol {

/// A grant that serve() or a release has made to a waiter. Or, with the token 0, the first waiter
/// could be granted what it waits for, and asks for several locks: that one was given nothing, and
/// is to look itself.
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
    bool servable;              ///< the first entry of its queue can be served: run serve()
    session_id holder_session;  ///< the sole holder's; 0 if none
    bool holder_expired;        ///< but not ended: end that session, then run serve()
    /// Until the sole holder's session or its own deadline expires; 0 if there is none.
    std::chrono::microseconds remaining{0};
    /// Scans of this queue start behind this entry and miss it: call reset_watermark.
    bool behind_watermark;
    /// The first entry of this queue is one of a request for several locks: serve() serves none.
    bool behind_several = false;
    bool counted = false;    ///< the lock has counted holds, which may have ended
    bool part = false;       ///< it waits for a part of the lock
    bool semaphore = false;  ///< the name is a semaphore's

    [[nodiscard]] hold_key key(session_id ours) const noexcept {
        return {name, ours, grant_id, part};
    }
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
    bool counted_waits = false;  ///< the first waiter is a counted one: run serve()
    /// A part of the lock was freed, by a statement that looks for no waiter.
    bool part = false;
};

/// The first waiter of a queue, as far as a client knows: which statement serve() sends first. The
/// other follows where the guess was wrong.
enum class queue_head : unsigned char { sole, counted };

/// Whom a lock is for next if counted holds have it, or only they can: counted waiters, behind a
/// holder of the same kind.
[[nodiscard]] inline queue_head head_of(const queue_entry& seen) noexcept {
    return seen.counted || seen.semaphore ? queue_head::counted : queue_head::sole;
}
/// As an entry's key has it.
[[nodiscard]] inline queue_head head_of(const hold_key& entry) noexcept {
    return entry.part ? queue_head::counted : queue_head::sole;
}

/// Waiters that were served; and with the token 0 one of a request for several, whose client is to
/// be woken.
struct served_waiters {
    std::vector<handed_over> waiters{};
    bool more = false;  ///< there may be others that can be served
};

/// A name that the end of a session concerns.
struct queue_of_session {
    std::string name;
    bool has_holds;  ///< counted ones of that session: sweep them, before serve()
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

struct queue_parts;

/// Elsewhere than on MySQL what is read of a grant survives a crash of the server. Thread-safe.
class queue_protocol {
public:
    virtual ~queue_protocol() = default;
    queue_protocol(const queue_protocol&) = delete;
    queue_protocol& operator=(const queue_protocol&) = delete;

    /// Adds a queue entry. Locks rows of the table of tickets alone: the holder's fenced
    /// transaction may lock the lease row for long. One round trip, asynchronous commit where there
    /// is one. After a lost reply use another grant id and cancel this one: it may have been served
    /// already. Returns the lease as it was then, if the statement reads it (PostgreSQL).
    std::optional<lease_glance> enqueue(sql::connection& db, const grant_request& request,
                                        sql::deadline until) const;

    /// Cancels queue entries; returns those that this call deleted. Ask find_grant about the
    /// others: they were served, or never inserted. After it deleted an entry the caller must run
    /// serve() for that name: those behind it may fit beside the counted holds, and a statement
    /// that chose it, and then found it deleted, may have ended without a look for the next one.
    virtual std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                         sql::deadline until) const = 0;
    /// All queue entries of a session, in one statement; reads only.
    queue_entries entries_of(sql::connection& db, session_id session, sql::deadline until) const;

    /// Like entries_of, but at least these entries: for one that was just added.
    virtual queue_entries entries_at(sql::connection& db, session_id session,
                                     std::span<const grant_id> grant_ids,
                                     sql::deadline until) const = 0;

    /// For an entry that was overtaken: makes scans of its queue start at it again. Waits for the
    /// lock's row as serve() does.
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
                                              std::optional<std::int64_t> reported = {}) const;
    /// The same for several entries of one session: one round trip for each, and one commit for
    /// all.
    virtual std::vector<std::optional<queue_grant>> served(sql::connection& db, session_id session,
                                                           std::span<const granted_name> entries,
                                                           sql::deadline until) const;
    /// The same as read, for a caller that makes the grant durable before it reports it.
    std::optional<queue_grant> read_served(sql::connection& db, std::string_view name,
                                           session_id session, grant_id grant_id,
                                           sql::deadline until) const;

    /// The grants that this session has of these names, served entries among them. Only on MySQL
    /// and MariaDB, where a wake-up says only that there is one. As read: a grant not known to be
    /// durable has to be made so (lease_protocol::make_durable) before it is reported. One round
    /// trip for each 16 names.
    /// @throws error errc::unsupported elsewhere
    virtual std::vector<served_row> served_of(sql::connection& db, session_id session,
                                              std::span<const std::string> names,
                                              sql::deadline until) const;

    /// Which of these names' rows are grants of this session, to compare a holder's belief with the
    /// tables. By primary key; one round trip on PostgreSQL, elsewhere one for each 16 names.
    virtual std::vector<served_row> held_of(sql::connection& db, session_id session,
                                            std::span<const std::string> names,
                                            sql::deadline until) const = 0;

    /// Serves the head of a queue: if the lock is free, its first waiter, who wants all of it; or
    /// those from the first on that fit beside each other and the counted holds. Each grant goes
    /// with the deletion of its ticket, all or nothing. No waiter is passed over: one of a request
    /// for several locks is only notified, and so is nobody behind it. A sole grant is durable, and
    /// PostgreSQL notifies its session; a counted one may not be durable, and its token may be a
    /// hint (MySQL, SQLite): that waiter reads its own (semaphore_protocol::served). Idempotent;
    /// any client may run it, and repeats it while there may be more. If it fails after some were
    /// served, it returns those, with `more`. Waits for the row's lock as long as the connection's
    /// lock timeout allows; then errc::timed_out, and the caller must come back. One round trip if
    /// the guess is right.
    [[nodiscard]] virtual served_waiters serve(sql::connection& db, std::string_view name,
                                               queue_head expected, sql::deadline until) const = 0;

    /// Takes a sole holder that has ended out of its row, if the row still has that token; serve()
    /// does so itself. One round trip.
    void clear_sole(sql::connection& db, std::string_view name, std::int64_t token,
                    session_id session, sql::deadline until) const;

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
    std::vector<std::string> names_with_waiters(sql::connection& db,
                                                std::span<const std::string> names,
                                                sql::deadline until) const;

    /// Removes our session, which no lease and no ticket names, and returns which of these names
    /// have a live waiter. One round trip for each 16 names on PostgreSQL, elsewhere one more.
    virtual std::vector<std::string> leave(sql::connection& db, session_id session,
                                           std::span<const std::string> names,
                                           sql::deadline until) const = 0;

    /// The names that the end of this session concerns: it was the sole holder, or has an entry,
    /// and a live waiter is there; or it has counted holds. One snapshot. The client that ended the
    /// session runs sweep() and serve() for them, then delete_entries_of.
    [[nodiscard]] std::vector<queue_of_session> queues_of_session(sql::connection& db,
                                                                  session_id session,
                                                                  sql::deadline until) const;

    /// Deletes the queue entries of a session that has ended, if any: they can never be served, and
    /// each read of their queues steps over them. Changes nothing if the session is live. Returns
    /// whether there may be more, for another call. One round trip; on MySQL one to read, and if
    /// there are any one for each of up to 16, and the commit.
    virtual bool delete_entries_of(sql::connection& db, session_id session,
                                   sql::deadline until) const = 0;

    /// Deadlock cycles in which an entry of this session is the youngest: the other members cannot
    /// get what they wait for before it gives way. One recursive statement, reads only.
    std::vector<deadlock_found> deadlocks(sql::connection& db, session_id session,
                                          sql::deadline until) const;

    /// Wakes the waiter that was served, unless the statement that served it did: by datagram, if
    /// enabled and the waiter has a mailbox on this machine; else through the database (PostgreSQL,
    /// and MySQL by mysql_wait::wake; one round trip). A hint. On SQLite, without datagrams, the
    /// waiter sees the commit.
    void notify_grantee(sql::connection& db, const handed_over& next,
                        sql::deadline until) const noexcept;

    /// Notifies a session, after the commit, that its rows were changed: by datagram, if enabled
    /// and it has a mailbox on this machine; else by PostgreSQL's NOTIFY. A hint: the session sends
    /// its next heartbeat at once, and finds the change. One round trip, two with the notification.
    /// MySQL cannot reach a session that does not wait.
    void notify_session(sql::connection& db, session_id session,
                        sql::deadline until) const noexcept;

protected:
    explicit queue_protocol(const queue_parts& of);

    /// The ticket of an upgrade: below those of all other waiters, and unique.
    [[nodiscard]] virtual std::int64_t upgrade_ticket(grant_id grant_id) const {
        return -static_cast<std::int64_t>(grant_id);
    }
    /// Wakes a session that was served through the database; `message` says so.
    virtual void wake(sql::connection& db, const handed_over& next, std::string_view message,
                      sql::deadline until) const = 0;
    /// Sends a session `message` through the database, if that can notify.
    virtual void notify(sql::connection& db, const wakeup::wake_address& to,
                        std::string_view message, sql::deadline until) const = 0;

    /// Puts back the row of a lock that the reaper has deleted and that has a waiter.
    void restore_lease(sql::connection& db, std::string_view name, sql::deadline until) const;

    const lease_protocol& leases_;
    const bool by_datagram_;
    const sql::statement held_leases_;

private:
    const sql::statement enqueue_, enqueue_upgrade_, entries_, served_, names_with_waiters_,
        queues_of_session_, deadlocks_, restore_lease_, clear_sole_;
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

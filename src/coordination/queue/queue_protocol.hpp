#pragma once

#include "coordination/lease/lease_protocol.hpp"
#include "coordination/wakeup/hint.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The queue before a lease: places are taken, given up, and served in the order of their tickets.
/// Like lease_protocol: each transition one conditional statement or one short transaction, no
/// state, no clocks.
///
/// The rule that loses no wake-up: whoever wrote (a ticket, a release, an end of a session, the
/// deletion of a ticket) looks afterwards, in a commit of its own, whether somebody can be served.
namespace rowlock::strategy {

/// A lease that grant_next or a release has given to a waiter.
struct handed_over {
    std::int64_t session;
    std::int64_t grant_id;
    std::int64_t token;
    bool woken = false;         ///< by the statement itself (PostgreSQL, MariaDB)
    bool asynchronous = false;  ///< the commit may not be on disk yet
    wake_address to{};          ///< of that session; nothing if it was `woken`
};

/// What one of our places in a queue looks like.
struct place {
    std::string name;
    std::int64_t grant_id;
    std::int64_t ticket;
    std::int64_t position;        ///< 1 = is served next; dead waiters are not counted
    bool free;                    ///< the lease may be granted: somebody should run grant_next
    std::int64_t holder_session;  ///< 0 if none
    bool holder_expired;          ///< but not ended: end it, then grant_next
    /// Until the holder's session or the lease's own deadline expires; 0 if it is free.
    std::chrono::microseconds remaining{0};
    /// Looks into this queue begin behind it: somebody should rewind.
    bool behind_watermark;
};

struct places {
    bool session_live;  ///< ours
    std::vector<place> waiting;
};

struct queue_grant {
    std::int64_t token = 0;
    std::optional<std::int64_t> deadline_us;  ///< what is left of the lease's own deadline
};

struct release_outcome {
    bool freed = false;               ///< false: the row was not this grant (any more)
    std::optional<handed_over> next;  ///< given on in the same commit
    /// Nobody waits, and who comes now finds it free: there is no need to look. SQLite, where the
    /// release and the enqueue cannot overlap.
    bool unwaited = false;
};

/// The waiter whom a holder has seen behind it, and what giving it the lease takes.
struct next_in_line {
    std::int64_t ticket = 0;
    std::int64_t session = 0;
    std::int64_t grant_id = 0;
    std::string thread{}, note{};
    std::optional<std::int64_t> deadline_us{};
    wake_address to{};                    ///< of its session
    std::chrono::microseconds alive{0};   ///< what was left of its session
    bool promised = false;                ///< the next token, durably: it may be told at once
    std::optional<std::int64_t> after{};  ///< the grant id of the one behind it
    std::optional<std::int64_t> looks_from{};
    // MySQL and SQLite:
    std::int64_t seen = 0;   ///< the lease's token, which giving it compares
    std::int64_t token = 0;  ///< that it gives
};

struct settled_grant {
    queue_grant granted;
    std::optional<next_in_line> next;
};

struct served_place {
    std::int64_t grant_id = 0;
    queue_grant granted;
    bool durable = false;  ///< its giver still says that its commit has returned
};

/// A cycle of waiters, seen from the place that has to give way.
struct deadlock_found {
    std::int64_t grant_id;    ///< of our place: the youngest ticket of the cycle
    std::string description;  ///< "a (held by … ) -> b (held by …) -> a", without our ids
    std::vector<std::int64_t> tickets;  ///< of the cycle's places
};

class queue_protocol {
public:
    /// @param by_mail whether its user tells by mail who was served, where that is possible
    /// (tell_served): then no statement wakes them
    explicit queue_protocol(const lease_protocol& leases, bool by_mail = true)
        : leases_{leases}, by_mail_{by_mail} {}

    /// Takes a place. Touches the waiter table alone: the lease row may be locked for long by its
    /// holder's fenced transaction. One round trip, asynchronous commit where there is one. After a
    /// lost reply use another grant id and cancel this one: it may have been served already.
    void enqueue(sql::connection& db, const grant_request& request, sql::deadline until) const;

    /// Gives up places. Which of them were deleted by this call; of the others ask find_grant: they
    /// were served, or never came to be. Deleting the first place of a queue obliges the caller to
    /// run grant_next for that name.
    std::vector<std::int64_t> cancel(sql::connection& db, std::span<const std::int64_t> grant_ids,
                                     sql::deadline until) const;

    /// All places of a session, in one statement; reads only.
    places places_of(sql::connection& db, std::int64_t session, sql::deadline until) const;

    /// The same of these places at least, for one that was just taken.
    places places_at(sql::connection& db, std::int64_t session,
                     std::span<const std::int64_t> grant_ids, sql::deadline until) const;

    /// For a place that was overtaken: looks into its queue begin with it again. Waits for the
    /// lease's row as grant_next does.
    void reset_watermark(sql::connection& db, std::string_view name, std::int64_t ticket,
                sql::deadline until) const;

    /// Whether a place was served, by a grant that no crash of the server takes back: on MySQL,
    /// which shows a commit before it is on the disk, a durable commit of ours behind it (one round
    /// trip more). Else one round trip.
    /// @param told the token that the giver has told us of after its commit: a grant with this
    /// token is durable, and only read
    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      std::int64_t session, std::int64_t grant_id,
                                      sql::deadline until,
                                      std::optional<std::int64_t> told = {}) const;
    /// The same of several places of one session: one round trip for each, and one commit for all.
    std::vector<std::optional<queue_grant>> served(sql::connection& db, std::int64_t session,
                                                   std::span<const granted_name> places,
                                                   sql::deadline until) const;
    /// The same as it is read, for a caller that makes it durable before it tells anybody.
    std::optional<queue_grant> read_served(sql::connection& db, std::string_view name,
                                           std::int64_t session, std::int64_t grant_id,
                                           sql::deadline until) const;

    /// Which grants this session has of these names, its places that were served among them. MySQL
    /// and MariaDB, where a wake-up tells no more than that there is one. As they are read: what is
    /// not known to be durable has to be made so (lease_protocol::make_durable) before anybody is
    /// told. One round trip for each 16 names.
    std::vector<served_place> served_of(sql::connection& db, std::int64_t session,
                                        std::span<const std::string> names,
                                        sql::deadline until) const;

    /// Which of these names' rows are grants of this session: what a holder believes, compared with
    /// the tables. By primary key; one round trip, elsewhere than on PostgreSQL one for each 16
    /// names.
    std::vector<served_place> held_of(sql::connection& db, std::int64_t session,
                                      std::span<const std::string> names,
                                      sql::deadline until) const;

    /// If the lease is free and a live waiter stands, gives it to the lowest ticket, deletes that
    /// ticket and (PostgreSQL) notifies its session alone: all or nothing, durable. Idempotent,
    /// anybody may run it. Waits for the lease row's lock as long as the connection's lock timeout
    /// allows; then errc::timed_out, and the caller must come back.
    std::optional<handed_over> grant_next(sql::connection& db, std::string_view name,
                                          sql::deadline until) const;

    /// Frees a lease, or gives it straight to the first waiter that the statement sees. If nobody
    /// was seen the caller looks again afterwards (names_with_waiters), since a ticket may have been
    /// committed meanwhile.
    /// @param contended whether waiters are to be expected. If so PostgreSQL hands over in one
    /// round trip, and MySQL in two, or in five on a borrowed connection and SOCI. If not, all free
    /// the lease in one if there is no waiter; if there is, PostgreSQL (in a second) and SQLite
    /// hand over all the same, MySQL does not look and frees it.
    release_outcome release(sql::connection& db, std::string_view name, std::int64_t session,
                            std::int64_t grant_id, bool contended, sql::deadline until) const;

    /// Whether a grant that we were told of is ours by the table; also who is next, on PostgreSQL
    /// and MySQL, and on PostgreSQL what the release will build on becomes durable. One round trip;
    /// waits for the disk if the grant was told before it was there (`durably`), or if its row
    /// promises the next token. What is left of a deadline of its own only PostgreSQL tells.
    std::optional<settled_grant> settle(sql::connection& db, std::string_view name,
                                        std::int64_t session, std::int64_t grant_id, bool durably,
                                        sql::deadline until) const;

    /// Gives our lease to the one whom settle() has seen, sooner than release() finds it. Nothing:
    /// it has gone or the lease is not ours; release() is the answer to both. One round trip; four
    /// on MySQL where the connection is borrowed or SOCI's.
    struct passing {
        /// Whether we would see a crash of the server that loses the commit, and repeat it: not
        /// behind a pooler, nor where another process may reclaim our leases.
        bool may_be_asynchronous = false;
        bool notify = true;  ///< or the caller tells the waiter (`woken` is false)
    };
    std::optional<handed_over> pass_on(sql::connection& db, std::string_view name,
                                       std::int64_t session, std::int64_t grant_id,
                                       const next_in_line& next, const passing& how,
                                       sql::deadline until) const;

    /// Which of these names have a live waiter. Reads only, one round trip for each 16 names.
    std::vector<std::string> names_with_waiters(sql::connection& db, std::span<const std::string> names,
                                        sql::deadline until) const;

    /// Removes our session, which no lease and no ticket names, and tells which of these names have
    /// a live waiter. One round trip for each 16 names on PostgreSQL, elsewhere one more.
    std::vector<std::string> leave(sql::connection& db, std::int64_t session,
                                   std::span<const std::string> names, sql::deadline until) const;

    /// The names with live waiters whose lease this (ended) session has, or in whose queue it has a
    /// place; one snapshot. Whoever ended the session runs grant_next for them.
    std::vector<std::string> queues_of_session(sql::connection& db, std::int64_t session,
                                         sql::deadline until) const;

    /// Circles in which a place of this session is the youngest: the other members wait for what
    /// they cannot get before this one gives way. One recursive statement, reads only.
    std::vector<deadlock_found> deadlocks(sql::connection& db, std::int64_t session,
                                          sql::deadline until) const;

    /// Wakes the waiter that was served, unless the statement that served it did: by mail, if that
    /// is wanted and the waiter has a mailbox on this machine; else by the database (PostgreSQL,
    /// and MySQL by wake_up::wake; one round trip). A hint. On SQLite, without mail, the commit is
    /// what is seen.
    void tell_served(sql::connection& db, const handed_over& next,
                     sql::deadline until) const noexcept;

    /// Tells a session that its rows were changed, after the commit: by mail, if that is wanted and
    /// it has a mailbox on this machine; else PostgreSQL notifies it. A hint: its next heartbeat is
    /// sent at once, and finds the change. One round trip, two with the notification. MySQL has
    /// nothing to reach a session with that does not wait.
    void tell_to_look(sql::connection& db, std::int64_t session,
                      sql::deadline until) const noexcept;

private:
    const lease_protocol& leases_;
    const bool by_mail_;
};

/// Whether this session has a mailbox that can be reached from here.
[[nodiscard]] bool is_near(const wake_address& session) noexcept;

}  // namespace rowlock::strategy

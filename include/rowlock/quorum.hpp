#pragma once

#include <rowlock/fencing_token.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/timeout.hpp>
#include <rowlock/transaction.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup quorum
/// One lock over several independent databases, which works while more than half of them do: the
/// idea of Redlock, on durable stores and with fencing tokens. Read "When not to use a quorum lock"
/// in docs/guarantees.md first: where the data is in one database, a lease and fence() beside it
/// are simpler, faster and safer.
///
/// @{

namespace detail {
class quorum_hold;
class quorum_parts;
}  // namespace detail

/// Ownership of one grant of a quorum lock. The object is the lock: it releases when destroyed.
///
/// held() is true while a majority of the members' leases are ours by this client's clock: it turns
/// false in time without a network, and does not come back. Threads as for a lease; a forked
/// child's copy is inert.
class [[nodiscard]] quorum_lease {
public:
    quorum_lease() noexcept = default;  ///< holds nothing
    /// `other` holds nothing then.
    quorum_lease(quorum_lease&&) noexcept;
    /// Releases what it held before, as the destructor does.
    quorum_lease& operator=(quorum_lease&&) noexcept;
    /// Releases as release() does; failures are repeated in the background.
    ~quorum_lease();

    /// The name of the lock; empty if it holds nothing.
    [[nodiscard]] const std::string& name() const noexcept;
    /// Above that of every earlier holder, whichever members they had. No round trip.
    [[nodiscard]] fencing_token token() const noexcept;
    /// Whether a majority of the members still counts by this client's clock. No round trip.
    [[nodiscard]] bool held() const noexcept;
    explicit operator bool() const noexcept { return held(); }  ///< held()
    /// How long held() stays true if no further heartbeat succeeds anywhere. No round trip.
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    /// Stopped when the majority is lost, soon after held() turned false. Callbacks run on a
    /// library thread; one that blocks delays no other signal. One that throws terminates the
    /// process.
    [[nodiscard]] std::stop_token lost() const;
    /// How many members count: their lease is ours, and they know the token. No round trip.
    [[nodiscard]] int counted() const noexcept;

    /// Frees the lock in all members. One round trip, to all of them at once; members that do not
    /// answer are not waited for: there it is repeated in the background, and the ttl ends it at
    /// last. Nothing happens if it was released or lost before.
    void release();

private:
    friend class quorum_client;
    friend void fence(sql::connection& db, const quorum_lease& held, std::size_t member,
                      const fence_options& options);
    explicit quorum_lease(std::shared_ptr<detail::quorum_hold> hold) noexcept;

    std::shared_ptr<detail::quorum_hold> hold_;
};

/// Options of a quorum_client.
struct quorum_options {
    /// Of the client in each member. Its owner must be empty; ttl at most the quorum's
    /// (found_quorum). Deadlock detection is off: cycles over several members would not be found.
    client_options member{};
};

/// What a quorum_client last saw of a member, for people.
struct quorum_member_info {
    std::string description{};  ///< of the database, without its password
    std::string server{};       ///< its identity; empty: not known yet
    bool answers = false;       ///< its latest statement was answered
    bool votes = false;         ///< it counts for a majority
    std::string problem{};      ///< why not, or what failed last
};

/// Start here: one client of the members of a quorum. Each member is a migrated PostgreSQL, MySQL
/// or MariaDB database of its own server, named in the same order everywhere, and was made a member
/// by found_quorum() (`rowlock quorum init`). SQLite and the members of a Galera cluster or a MySQL
/// group are refused. Thread-safe. Like client, it connects to nothing when it is built.
class quorum_client {
public:
    /// @param members 3 to 9, an odd number is best: of four, three must answer
    /// @throws error errc::invalid_options; errc::unsupported for SQLite
    explicit quorum_client(std::vector<sql::connection_source> members,
                           quorum_options options = {});
    /// Releases what is held, within some statement_timeouts; leases that still exist count as
    /// lost.
    ~quorum_client();
    quorum_client(const quorum_client&) = delete;
    quorum_client& operator=(const quorum_client&) = delete;

    /// Waits until the lock is granted: enqueues in all members at once. Two round trips if it is
    /// free. Waiters are served in the order of the first member that answers. A thread that holds
    /// the lock waits for itself. Note as in acquire_options.
    /// @throws error if so many members cannot vote that no majority is left, one's own: such as
    /// errc::database_unreachable, schema_outdated, access_denied; errc::conflict for a server that
    /// is not, or no longer, the member that it was: readmit_member()
    [[nodiscard]] quorum_lease acquire(const lock_name& name, const std::string& note = {});
    /// The same; empty if and only if `stop` was requested first.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<quorum_lease> acquire(const lock_name& name, Stop stop,
                                                      const std::string& note = {}) {
        return acquire_until(name, time_point::max(), std::move(stop), note);
    }
    /// Waits up to `timeout`, which should leave time for some round trips; empty if the lock was
    /// not granted by then.
    /// @throws error as acquire(), if that is known before
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<quorum_lease> try_acquire_for(
        const lock_name& name, const std::chrono::duration<Rep, Period>& timeout,
        const std::string& note = {}) {
        return acquire_until(name, detail::after(timeout), {}, note);
    }

    /// What is known of the members. No round trip.
    [[nodiscard]] std::vector<quorum_member_info> members() const;

private:
    using time_point = std::chrono::steady_clock::time_point;

    std::optional<quorum_lease> acquire_until(const lock_name& name, time_point until,
                                              std::stop_token stop, const std::string& note);

    std::shared_ptr<detail::quorum_parts> parts_;
};

/// As fence() with a lease, for data that is in the database of one member, by position from 0: the
/// caller's transaction commits only while that member's lease is ours, and before it knows a later
/// token. Two round trips.
/// @throws error as fence(); errc::lock_lost also if that member does not count for this hold, or
/// knows a later token: of a later holder, or of a client that tried before the member counted
void fence(sql::connection& db, const quorum_lease& held, std::size_t member,
           const fence_options& options = {});

/// Makes these databases the members of one quorum; all of them must answer. Repeating it with the
/// same servers only brings up to date a member that missed a readmission of another one.
/// @param longest_ttl of the clients' sessions: what a readmission waits. 30 s unless it is given;
/// given again it may rise, and never falls
/// @throws error errc::conflict if one is a member of another quorum, or two are one server;
/// errc::unsupported for SQLite, a cluster, or a server that does not identify itself
void found_quorum(const std::vector<sql::connection_source>& members,
                  std::optional<std::chrono::milliseconds> longest_ttl = {});

/// Lets a member vote again whose server is not the one that voted: it was promoted, restored from
/// a backup or replaced, and may have forgotten grants. A majority of the *other* members must
/// answer. It raises the epoch there and asks for the release of all quorum locks, so that no
/// client counts the former server; waits for the longest ttl; and copies the tokens. It may be
/// repeated after a failure, and waits anew. Holders lose their locks, and have the margin to stop.
/// @throws error errc::conflict if too few of the others may vote
void readmit_member(const std::vector<sql::connection_source>& members, std::size_t position);

/// For a quorum of which no majority votes any more, so that none can be readmitted: after several
/// members were lost at once. All of them must answer. No quorum lock is granted meanwhile. Takes
/// all of them from their holders, waits for the longest ttl, and goes on 2^32 above the greatest
/// token that any member knows: those that were given and forgotten by all are assumed to be below.
/// @throws error errc::conflict
void restart_quorum(const std::vector<sql::connection_source>& members);

/// The members as the databases show them. One connection and two round trips for each.
[[nodiscard]] std::vector<quorum_member_info> inspect_quorum(
    const std::vector<sql::connection_source>& members);

/// @}

}  // namespace rowlock

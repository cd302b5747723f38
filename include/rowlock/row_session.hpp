#pragma once

#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>
#include <rowlock/retry.hpp>
#include <rowlock/row_lock.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <iosfwd>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace rowlock {

/// @addtogroup rows
/// A transaction of our own that holds rows FOR UPDATE:
///
///     rowlock::row_session shop{source};
///     if (auto row = shop.lock("inventory", {"sku"}, {"A1"}, {.columns = {"stock"}})) {
///         … row->integer("stock") …, SQL through shop.connection()
///     }
///     shop.commit();                                       // without it: rolled back
///
/// @{

/// Isolation level of a row session's transaction.
enum class isolation : unsigned char {
    read_committed,   ///< each statement reads the latest commits
    repeatable_read,  ///< one snapshot
    serializable,     ///< as if transactions ran one after the other
};

/// How a row session ended.
enum class row_session_ending : unsigned char {
    committed,    ///< by commit()
    rolled_back,  ///< by request, by scope end, or because of a failure
    timed_out,    ///< held for longer than max_hold, and rolled back
    lost,         ///< the connection broke: the server rolls back, unless a commit was under way
};
/// The name of the enumerator.
[[nodiscard]] std::string_view to_string(row_session_ending how) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, row_session_ending how);

/// The argument of row_session_options::on_end.
struct row_session_report {
    row_session_ending ending{};                ///< how it ended
    std::chrono::milliseconds held{};           ///< from BEGIN to the end
    std::chrono::milliseconds checkout_wait{};  ///< see checkout_timeout
    std::size_t rows_locked = 0;                ///< by all lock calls together
};

/// Options of a row session, validated by its constructor (errc::invalid_options).
struct row_session_options {
    /// For PostgreSQL, MySQL and MariaDB. At READ COMMITTED reads after the lock see the latest
    /// commit, and only the row is locked. The other levels keep one snapshot, which may be older
    /// than the wait for the lock: PostgreSQL then answers errc::conflict (run it again), InnoDB
    /// locks gaps too, and its plain SELECTs read the past if one ran before the lock. SQLite is
    /// always serializable.
    isolation isolation_level = isolation::read_committed;
    /// Default for lock() calls that give none. 5 s is far beyond any healthy transaction that
    /// locks rows, and within most callers' patience.
    row_wait wait = row_wait::bounded(std::chrono::seconds{5});
    /// For one statement of ours, except its wait for a row; connecting included. As
    /// client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
    /// How long the transaction may last: a longer one blocks all others that want its rows, its
    /// connection or its place in the pool, and vacuum or purge. 30 s suffices for any sane piece
    /// of work. Past it every call throws errc::timed_out and rolls back. The server enforces it on
    /// its own, if this process hangs: it ends a transaction that sits idle for that long (on MySQL
    /// and MariaDB in whole seconds, rounded up), PostgreSQL 17 one that lasts that long. SQLite
    /// has no server: there a process that hangs keeps the file locked. 100 ms to 1 day.
    std::chrono::milliseconds max_hold{std::chrono::seconds{30}};
    /// Maximum of concurrent row sessions on this connection source and its copies; each has a
    /// connection. Ten processes with eight each fit into a server's usual limit of 100
    /// connections. 1 to 1 000.
    int max_sessions = 8;
    /// How long the constructor waits while max_sessions exist, then errc::timed_out. Default as
    /// `wait`.
    std::chrono::milliseconds checkout_timeout{std::chrono::seconds{5}};
    /// How long a table's unique indexes, once read, are trusted, so that a dropped one is noticed
    /// without a catalog query for each lock. (On MySQL and MariaDB at once: the statement names
    /// it.)
    std::chrono::milliseconds index_cache_ttl{std::chrono::minutes{1}};
    /// On a Galera cluster or a MySQL group, row locks hold on one server alone: two servers grant
    /// the same row to two transactions, and one of them fails at its commit (errc::deadlock on
    /// Galera, errc::conflict in a group). So row sessions are refused there (errc::unsupported),
    /// unless this is set because all writers use one server, or because every effect of the
    /// transaction is in its commit.
    bool accept_double_grants_in_cluster = false;
    /// Called once when the session has ended and its connection is back, on the thread that ended
    /// it. An exception from it is dropped.
    std::function<void(const row_session_report&)> on_end = {};
};

/// Options of one lock() or lock_all().
struct row_options {
    /// What to read from the row; empty: the key. A column name each, no expressions.
    std::vector<std::string> columns = {};
    /// row_session_options::wait if empty.
    std::optional<row_wait> wait = {};
};

/// A transaction on a connection from a pool that all row sessions of one connection source and its
/// copies share. It ends with commit(), rollback(), the end of its scope, or the first error: any
/// error from lock…() or connection() rolls everything back at once, on every database alike, and
/// frees its locks; later calls throw an error of the same kind. See retry().
///
/// One thread at a time. After fork() its calls throw errc::wrong_process in the child. A
/// moved-from session may only be destroyed.
///
/// On SQLite the first lock or statement is BEGIN IMMEDIATE: it locks the whole file against all
/// other writers, leases' heartbeats included, and lock() then only reads the row.
class row_session {
public:
    /// Takes one of max_sessions and a connection, and begins. Two round trips on a pooled
    /// connection (SQLite: none yet), three or four on a new one. The session may outlive `source`.
    /// @throws error errc::timed_out (max_sessions in use), errc::unsupported (Galera),
    /// errc::invalid_options, errc::wrong_process if the source's pool is the parent's, those of
    /// connecting
    explicit row_session(const sql::connection_source& source, row_session_options options = {});
    /// The session goes on in the new object; `other` may only be destroyed.
    row_session(row_session&&) noexcept;
    row_session& operator=(row_session&&) = delete;
    /// Rolls back (one round trip, at most a second).
    ~row_session();

    /// Locks the row until the end of the transaction, and reads it. Empty: the row does not exist,
    /// and nothing is locked, so that another transaction may insert it right away (lock_resource()
    /// locks what does not exist); or, with skip_locked, another transaction has it locked. The
    /// answer is the latest commit, or what this transaction wrote; no other transaction changes it
    /// until this one ends.
    ///
    /// `table` may be `schema.table`. The key columns must contain all columns of one unique index:
    /// otherwise more than the row would be locked or found. The values must not be NULL.
    /// One round trip; the first time, and once per row_session_options::index_cache_ttl, one or
    /// two more. An empty answer costs one more on PostgreSQL, and two for each transaction that
    /// replaces the row (DELETE and INSERT) during the wait for it.
    /// @throws error errc::unindexed_key before anything is locked; errc::timed_out,
    /// errc::deadlock, errc::conflict (all retryable()); errc::schema_outdated if table or column
    /// are missing; errc::unsupported for views, parents by inheritance, tables without row locks;
    /// errc::invalid_options for NULL in the key or a value that the column cannot hold (on MySQL
    /// and MariaDB the latter may also be answered as a missing row); errc::access_denied, besides
    /// missing rights, if a row security policy keeps the row from being locked
    [[nodiscard]] std::optional<table_row> lock(std::string_view table, const key_columns& columns,
                                                const row_key& values,
                                                const row_options& options = {});

    /// Locks several rows one by one, in an order that depends on the keys alone: two sessions that
    /// name the same rows in opposite orders do not deadlock. (Keys sort by number, or by text
    /// without ASCII case; write a key in one way.) The answers are in the caller's order, one for
    /// each key; round trips of each and errors as lock().
    [[nodiscard]] std::vector<std::optional<table_row>> lock_all(std::string_view table,
                                                                 const key_columns& columns,
                                                                 const std::vector<row_key>& keys,
                                                                 const row_options& options = {});

    /// Locks a name that has no row in a table of yours, by a row in our table `rowlock_version`,
    /// which is made if it is missing (and then persists with the commit). One round trip, three
    /// for a new name. Errors as lock(); errc::schema_outdated if the migrations were not run;
    /// errc::invalid_options for skip_locked, which would mean "missing or locked".
    void lock_resource(const lock_name& name, std::optional<row_wait> wait = {});

    /// For the caller's own SQL in this transaction. Deadlines end with max_hold at the latest. A
    /// statement that would end the transaction (BEGIN, COMMIT, ROLLBACK; on MySQL DDL) is refused
    /// with errc::invalid_options and not sent; savepoints are allowed, though an error ends the
    /// session all the same. After anything but SELECT, INSERT, UPDATE, DELETE and the like (a SET,
    /// a temporary table, a user variable, an advisory lock) the connection is closed at the end
    /// and serves no other session. Functions that your SQL calls are not inspected. A statement
    /// that may run code that commits (CALL, EXECUTE, words unknown here) costs two round trips
    /// more on MySQL and MariaDB, to detect a commit; a SELECT after a lock() with a wait of its
    /// own costs one more on PostgreSQL, to restore the session's lock_timeout.
    [[nodiscard]] sql::connection& connection();

    /// May be called once. If the reply is lost: errc::outcome_unknown, never retryable.
    /// errc::conflict if the database found the transactions not serializable. One round trip.
    void commit();
    /// No error if the session is already rolled back. One round trip.
    void rollback();

    /// How the session ended; empty while it is open.
    [[nodiscard]] std::optional<row_session_ending> ending() const noexcept;
    /// Whether an error ended the session; commit() then throws an error of that kind.
    [[nodiscard]] bool failed() const noexcept;
    /// From BEGIN to now, or to the end.
    [[nodiscard]] std::chrono::milliseconds held_for() const noexcept;

private:
    class state;
    std::unique_ptr<state> state_;
};

namespace detail {

/// Carries an error after the commit past the retry loop.
struct after_commit {
    std::exception_ptr failure;
};

}  // namespace detail

/// Runs `work(session)` in a row session and commits; runs all of it again, in a new session, after
/// an error that is retryable() (a deadlock, a conflict, a wait that timed out, a lost connection
/// before the commit). A lost reply to the commit is errc::outcome_unknown and not repeated.
/// Exceptions of other types roll back and pass through. `work` may commit or roll back by itself;
/// after its own commit nothing is repeated, whatever it throws.
/// @param stop ends the retries; the error of the last attempt is then thrown
template <typename Work>
auto retry(const sql::connection_source& source, const retry_policy& policy,
           const row_session_options& options, const std::stop_token& stop, Work&& work)
    -> retried<std::invoke_result_t<Work&, row_session&>> {
    using answer = std::invoke_result_t<Work&, row_session&>;
    const auto attempt = [&](int) -> answer {
        row_session session{source, options};
        const auto finish = [&session] {
            if (!session.ending() || session.failed()) session.commit();
        };
        try {
            if constexpr (std::is_void_v<answer>) {
                work(session);
                finish();
            } else {
                answer value = work(session);
                finish();
                return value;
            }
        } catch (const error&) {
            if (session.ending() != row_session_ending::committed) throw;
            throw detail::after_commit{std::current_exception()};
        }
    };
    try {
        return detail::repeat(policy, stop, attempt);
    } catch (const detail::after_commit& late) {
        std::rethrow_exception(late.failure);
    }
}

/// The same without a stop.
template <typename Work>
auto retry(const sql::connection_source& source, const retry_policy& policy,
           const row_session_options& options, Work&& work) {
    return retry(source, policy, options, std::stop_token{}, std::forward<Work>(work));
}

/// The same with default options.
template <typename Work>
auto retry(const sql::connection_source& source, const retry_policy& policy, Work&& work) {
    return retry(source, policy, row_session_options{}, std::stop_token{},
                 std::forward<Work>(work));
}

/// @}

}  // namespace rowlock

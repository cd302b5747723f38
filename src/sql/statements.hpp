#pragma once

#include <rowlock/sql/connection.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The SQL of one dialect, loaded from src/<feature>/sql/<dialect>.sql and common.sql, where each
/// statement begins with a line `-- statement <name>` and says what it does, what $1 … $n are and
/// why it is right. Members have the names of their statements.
namespace rowlock::sql {

struct statement_options {
    std::string schema{};
    std::string prefix = "rowlock_";
    /// PostgreSQL: the quoted schema where the tables were found, though `schema` does not name it.
    std::string found_in{};
    /// Read the database's clock from the SQL function rowlock_testing_now() (SQLite only).
    bool testing_clock = false;
};

/// PostgreSQL: the quoted schema of our tables, once a connection of our own has learnt it.
/// Thread-safe.
class found_schema {
public:
    void set(std::string_view quoted) {
        const std::lock_guard lock{mutex_};
        quoted_ = quoted;
    }
    [[nodiscard]] std::string get() const {
        const std::lock_guard lock{mutex_};
        return quoted_;
    }

private:
    mutable std::mutex mutex_;
    std::string quoted_;
};

/// The statements of one dialect, on the tables of one schema and prefix. Each is loaded when it is
/// first asked for; later answers are copies of it. So two protocols that run the same statement
/// share its prepared handle on every connection. Copies of a set are the same set. Thread-safe.
class statement_set {
public:
    /// @throws error errc::invalid_options for an unusable schema or prefix
    explicit statement_set(sql::dialect speaks, const statement_options& options = {});

    /// @throws error errc::unsupported if the dialect has no such statement
    [[nodiscard]] statement operator()(std::string_view name) const;

    [[nodiscard]] sql::dialect speaks() const noexcept;
    [[nodiscard]] const statement_options& options() const noexcept;
    /// The same text with the names of our tables.
    [[nodiscard]] std::string qualified(std::string_view text) const;
    /// Where our tables were found. Empty if the options name the schema.
    [[nodiscard]] found_schema& found_in() const noexcept;

private:
    friend struct statements;
    [[nodiscard]] std::optional<statement> maybe(std::string_view name) const;

    struct state;
    std::shared_ptr<state> state_;
};

struct statements {
    /// @throws error errc::invalid_options for an unusable schema or prefix
    statements(sql::dialect dialect, const statement_options& options)
        : statements{statement_set{dialect, options}} {}
    explicit statements(const statement_set& load);

    statement_set all;
    sql::dialect speaks;
    std::string prefix;
    std::string lease_table;  ///< its name in statements

    // Sessions
    sql::statement open_session, heartbeat, session_state, end_expired_session, end_session,
        delete_session, bump_revision, extend_session, wake_address;
    std::optional<sql::statement> meet_server;  ///< MySQL; PostgreSQL has it in open_session

    // Leases
    std::optional<sql::statement> acquire;             ///< absent on MySQL: probe, then …
    std::optional<sql::statement> take, insert_lease;  ///< … one of these
    std::optional<sql::statement> release_durably;     ///< where `release` is asynchronous
    // coordination/batch/batch_protocol.hpp
    sql::statement reacquire;
    std::optional<sql::statement> acquire_all, reacquire_all, probe_held;  ///< PostgreSQL
    std::optional<sql::statement> probe_all, release_all;                  ///< not SQLite
    std::optional<sql::statement> take_all, insert_all, lock_all, take_locked, release_locked,
        confirm_lease;  ///< MySQL
    sql::statement probe, release, find_grant, confirm_grant, session_leases, held_leases,
        force_release, lock_lease, shorten_lease, predecessors, reclaim_lease, inspect, list;

    // Queues: also run by others than queue_protocol
    sql::statement names_with_waiters, free_with_waiters, queue;
    std::optional<sql::statement> served_of;         ///< MySQL
    std::optional<sql::statement> release_unwaited;  ///< not MySQL

    // In the caller's transaction
    sql::statement fence, release_on_commit;
    std::optional<sql::statement> fence_view, fence_write;  ///< MySQL

    // Housekeeping. MySQL looks for candidates and changes them by primary key; the others change a
    // batch in one statement.
    sql::statement reap_sessions, publish_floor, idle_leases, raise_floor, lift_floor, read_floor,
        ended_sessions, ended_holders;
    std::optional<sql::statement> delete_ended_sessions;  ///< PostgreSQL
    std::optional<sql::statement> delete_ended_session;   ///< the others, one by one
    std::optional<sql::statement> reap_leases, reap_waiters, delete_leases;
    std::optional<sql::statement> lease_pages;  ///< PostgreSQL: the pages that those two scan
    std::optional<sql::statement> next_name;    ///< SQLite: the same
    std::optional<sql::statement> orphans, free_orphan, dead_waiters, delete_waiter,
        deletable_leases, delete_lease;

    // The history, if there is one (migrations/<dialect>/history)
    sql::statement history_there, old_history, delete_history;

    /// Settings of a connection of our own, and which server it leads to; only PostgreSQL has them
    /// as statements.
    std::optional<sql::statement> session_setup, session_setup_only, server_identity,
        server_timeline;
};

/// Loads one statement by name, for callers that need no session and no lease.
/// @throws error errc::invalid_options for an unusable schema or prefix; errc::unsupported if the
/// dialect has no such statement
[[nodiscard]] statement load_statement(dialect which, std::string_view name,
                                       const statement_options& options = {});

/// A statement as it is written: with its comment, its fragments not filled in.
struct written_statement {
    std::string_view name;
    std::string_view file;  ///< below src/
    std::string_view text;
};

/// Every statement of a dialect, including those of common.sql, ordered by name.
[[nodiscard]] std::vector<written_statement> written_statements(dialect which);

/// Drops comment lines, which are for readers of the files and not for the wire, and blank lines
/// around the rest.
[[nodiscard]] std::string without_comments(std::string_view text);

}  // namespace rowlock::sql

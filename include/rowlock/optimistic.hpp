#pragma once

#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/options.hpp>
#include <rowlock/retry.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/table_row.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rowlock {

/// @addtogroup optimistic
/// Optimistic locks: nothing is locked while people or programs think; a write names the version of
/// the row that it is based on, and changes nothing if the row has moved on.
///
///     const rowlock::versioned_table stock{
///         {.table = "inventory", .key = {"sku"}, .version = "version"}};
///
///     auto row = stock.read(db, "A1", {"quantity"});
///     auto sold = stock.update(db, "A1", row->version(), {rowlock::increment("quantity", -1)});
///     if (!sold) …                                  // another writer was first: read again
///
/// `db` is any connection, ours or a connection_ref over the caller's handle, inside or outside of
/// a transaction. No call here begins or ends one (except the overload of retry_on_conflict() that
/// takes `db`), and none leaves a setting changed.
///
/// @{

/// The version of a row as it was read. Opaque except for equality: keep it, send it out with a
/// form or as an ETag (str()), and hand it back.
class row_version {
public:
    /// From the text that str() returned.
    explicit row_version(std::string text) : text_{std::move(text)} {}
    /// From a counter's value.
    explicit row_version(std::int64_t number) : text_{std::to_string(number)} {}

    /// For keeping and sending.
    [[nodiscard]] const std::string& str() const noexcept { return text_; }
    /// The counter, or microseconds since 1970 (UTC).
    /// @throws error errc::invalid_options if it is not a number (SQLite: a time kept as text)
    [[nodiscard]] std::int64_t number() const;

    friend bool operator==(const row_version&, const row_version&) = default;  ///< by str()

private:
    std::string text_;
};

/// The name of a column that holds the time of the last change and serves as the version.
struct updated_at {
    std::string column;  ///< its name
};

/// Which column is the version. A counter, given by its name, is the better choice: it is exact and
/// small. An existing time column works too:
///
///     .version = "version"                      // an integer, NOT NULL
///     .version = rowlock::updated_at{"changed"}
///
/// A time is set to the database's clock, but always at least one step later than the row's last
/// one, so that two updates within one tick, or after the clock was set back, still differ. The
/// column must be fine enough for that: PostgreSQL timestamptz or timestamp (UTC), with all six
/// digits; MySQL and MariaDB DATETIME(6) (UTC; TIMESTAMP is refused, since in the hour that
/// daylight saving repeats two instants read alike); SQLite text as strftime writes it (steps of 1
/// ms) or an integer of microseconds since 1970.
///
/// Every writer of the row must change the version, and only move it ahead. A trigger must not
/// write it; MySQL's ON UPDATE CURRENT_TIMESTAMP yields to the value written here.
class version_column {
public:
    /// A counter, by the name of its column.
    version_column(const char* counter) : name_{counter} {}
    /// A counter, by the name of its column.
    version_column(std::string counter) : name_{std::move(counter)} {}
    version_column(std::nullptr_t) = delete;
    /// A column with the time of the last change.
    version_column(updated_at time) : name_{std::move(time.column)}, is_time_{true} {}

    [[nodiscard]] const std::string& name() const noexcept { return name_; }  ///< of the column
    /// Whether it is an updated_at.
    [[nodiscard]] bool is_time() const noexcept { return is_time_; }

private:
    std::string name_;
    bool is_time_ = false;
};

/// The caller's own table. Names are quoted: case, reserved words and quotes are kept. SOCI parses
/// texts itself: no colons and apostrophes in names there.
struct table_description {
    /// `table` or `schema.table`.
    std::string table;
    /// The columns that together identify one row; they should be the primary key or have a unique
    /// index. errc::unindexed_key if a call finds otherwise.
    std::vector<std::string> key;
    /// The version of a row.
    version_column version;
    /// If set, a row with a non-NULL value in this column counts as deleted. A time or an integer
    /// of microseconds since 1970; on SQLite also text.
    std::string deleted_at = {};
    /// For each statement. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
};

/// Whether rows that are marked as deleted are read.
enum class deleted_rows : unsigned char {
    hidden,  ///< as if they were missing
    shown,   ///< with versioned_row::deleted()
};

/// A row that read() found.
class versioned_row : public table_row {
public:
    /// For read(), which makes it.
    versioned_row(table_row row, row_version version, bool deleted)
        : table_row{std::move(row)}, version_{std::move(version)}, deleted_{deleted} {}

    /// For update(), erase(), soft_delete(), restore().
    [[nodiscard]] const row_version& version() const noexcept { return version_; }
    /// Whether it is marked as deleted.
    [[nodiscard]] bool deleted() const noexcept { return deleted_; }

private:
    row_version version_;
    bool deleted_;
};

/// The result of a conditional change. True if the change was made.
class [[nodiscard]] update_result {
public:
    /// How a change ended.
    enum class outcome : unsigned char {
        done,      ///< the change was made
        conflict,  ///< nothing was changed: the row has another version by now
        gone,      ///< nothing was changed: the row is missing or marked as deleted (for
                   ///< restore(): not marked)
    };

    /// A change that was made, and the row's version after it.
    static update_result done(row_version now) { return update_result{std::move(now)}; }
    /// No change: outcome::conflict.
    static update_result conflict() noexcept { return update_result{outcome::conflict}; }
    /// No change: outcome::gone.
    static update_result gone() noexcept { return update_result{outcome::gone}; }

    /// Whether the change was made.
    explicit operator bool() const noexcept { return what_ == outcome::done; }
    [[nodiscard]] outcome what() const noexcept { return what_; }  ///< how it ended

    /// The version after the change, for the next one; after an erase() the row's last version.
    /// @throws error errc::conflict if the change was not made.
    [[nodiscard]] const row_version& version() const { return *or_throw().version_; }

    /// This result, if the change was made.
    /// @throws error errc::conflict if the change was not made.
    const update_result& or_throw() const;

private:
    explicit update_result(row_version now) : version_{std::move(now)} {}
    explicit update_result(outcome what) noexcept : what_{what} {}

    outcome what_ = outcome::done;
    std::optional<row_version> version_;
};

/// Reads and changes rows of one table by version. Each change is one conditional statement; the
/// database decides, whatever isolation level the caller's transaction has:
/// - READ COMMITTED, and MySQL's REPEATABLE READ: a change that finds the row locked waits, reads
///   what the other transaction left, and answers conflict. It does not abort the transaction.
/// - PostgreSQL's REPEATABLE READ and SERIALIZABLE: the server fails the transaction instead, and
///   so does MariaDB with innodb_snapshot_isolation (on by default from 11.6); SQLite does so if
///   the transaction read before another connection wrote. That is an error errc::conflict: start
///   the transaction over.
/// - MySQL's SERIALIZABLE: read() locks the row for its transaction. Of two transactions that read
///   and then write, one gets errc::deadlock (retryable): start the transaction over.
/// - MySQL's READ UNCOMMITTED: do not read there. It shows versions that may be rolled back.
///
/// Discard a version that was made in a transaction that rolled back: the next writer may give the
/// row the same version again, and it would match.
///
/// On a Galera cluster the second writer of a row is a deadlock at its commit (retryable).
///
/// A change whose reply is lost outside of a transaction is errc::outcome_unknown. Finding the row
/// still at the version seen proves nothing: the change may still be waiting for a lock on the
/// server. Make the same change again, with the same `seen`: at most one of the two is made. If the
/// second answers conflict, read the row to see whose change it was.
///
/// Thread-safe, each call on a connection of its own; copies share their caches. Make one per table
/// and database and keep it: the columns are read from the catalog once (PostgreSQL, MySQL and
/// MariaDB: one round trip more at the first call), and prepared statements are reused by their
/// shape.
///
/// Errors of every call, besides those of sql::connection:
/// - errc::invalid_options: a key of another length or with a NULL, an unknown or reserved column;
/// - errc::schema_outdated: the table or a column is missing, or the table is a temporary one of
///   MariaDB's, which its catalog does not show;
/// - errc::unsupported: the version column is of a type that cannot tell two updates apart; or
///   something suppresses the change (PostgreSQL and SQLite: a trigger, a rule, row-level
///   security);
/// - errc::unindexed_key: the key matched several rows. Those are changed: roll back;
/// - errc::database_error: a version that is NULL, not understood, or cannot grow any more.
class versioned_table {
public:
    /// @throws error errc::invalid_options for a description without table, key or version, with
    /// a column twice, or a statement_timeout outside 1 ms to 1 minute.
    explicit versioned_table(table_description description);

    [[nodiscard]] const table_description& description() const noexcept;  ///< as it was given

    /// The row, or nullopt if it is missing (or marked as deleted). One round trip, no lock. In a
    /// transaction that keeps its snapshot it may be old; the change that follows detects that.
    [[nodiscard]] std::optional<versioned_row> read(
        sql::connection& db, const row_key& key, const std::vector<std::string>& columns,
        deleted_rows deleted = deleted_rows::hidden) const;

    /// Inserts a row with its first version: 1, or the time. Empty if the key is taken, even by a
    /// row marked as deleted; a PostgreSQL transaction goes on. One round trip (MySQL: two if the
    /// key is taken; four before another unique index of the table is errc::unique_violation).
    ///
    /// Needs a primary key or unique index of just the key's columns: errc::unindexed_key on
    /// PostgreSQL, where that ends the transaction, and on SQLite; MySQL makes a second row.
    ///
    /// Counters restart at 1 if a row is erased and inserted again: an older version may then
    /// match. Where that matters, use soft_delete() and restore(). A time helps only as far as the
    /// clock has advanced since: not within a tick, nor if the old row was ahead of the clock.
    [[nodiscard]] std::optional<row_version> insert(
        sql::connection& db, const row_key& key,
        const std::vector<assignment>& assignments = {}) const;

    /// Writes the columns and advances the version, if it is still `seen`. Without assignments only
    /// the version advances. One round trip (MySQL with updated_at: two), and one more, a plain
    /// read, to tell conflict from gone. In a MySQL transaction whose snapshot still shows `seen`,
    /// gone is reported as conflict.
    update_result update(sql::connection& db, const row_key& key, const row_version& seen,
                         const std::vector<assignment>& assignments) const;

    /// Deletes the row, even if marked as deleted, if its version is still `seen`. Round trips as
    /// update().
    update_result erase(sql::connection& db, const row_key& key, const row_version& seen) const;

    /// Marks the row as deleted and advances its version. Round trips as update().
    /// @throws error errc::invalid_options without a deleted_at column
    update_result soft_delete(sql::connection& db, const row_key& key,
                              const row_version& seen) const;

    /// Removes the mark and advances the version. `seen` is the version from soft_delete() or
    /// read(). Round trips as update().
    /// @throws error errc::invalid_options without a deleted_at column
    update_result restore(sql::connection& db, const row_key& key, const row_version& seen) const;

private:
    class state;
    std::shared_ptr<state> state_;
};

/// Options of `versions`.
struct versions_options {
    /// For each statement. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
};

/// A resource and its version, as list() shows it.
struct versioned_resource {
    std::string resource;                    ///< its name
    row_version version;                     ///< the latest
    bool deleted;                            ///< erased, and not restored
    std::chrono::microseconds since_update;  ///< by the database's clock
};

/// Versions of things that have no row of their own: a file, a remote object, a whole report. They
/// are kept in rowlock's table `rowlock_version` (see migrate()). Check and advance the version in
/// the transaction that does the work, or around the work. Names follow the rules of lock_name.
///
/// Isolation, threads and errors as versioned_table; errc::invalid_name.
class versions {
public:
    /// @param tables where rowlock's tables are: source.tables(), if there is a source. They cannot
    /// be taken from the connections of the calls, which may be the caller's own handles.
    /// @throws error errc::invalid_options
    explicit versions(sql::table_names tables = {}, versions_options options = {});

    /// Returns nullopt if the resource was never created, or was erased and `deleted` is hidden.
    /// One round trip, no lock.
    [[nodiscard]] std::optional<row_version> read(
        sql::connection& db, const lock_name& resource,
        deleted_rows deleted = deleted_rows::hidden) const;

    /// Version 1, or nullopt if the resource already exists, erased or not. Safe with concurrent
    /// callers; a PostgreSQL transaction goes on. In a MySQL transaction whose snapshot is older
    /// than the resource, read() then finds nothing: start over. One round trip (MySQL: two).
    [[nodiscard]] std::optional<row_version> create(sql::connection& db,
                                                    const lock_name& resource) const;

    /// Advances the version if it is still `seen`. One round trip, and one more to tell conflict
    /// from gone.
    update_result update(sql::connection& db, const lock_name& resource,
                         const row_version& seen) const;

    /// Marks the resource as deleted. Its row stays and its version keeps counting, so an older
    /// version never matches again. Round trips as update().
    update_result erase(sql::connection& db, const lock_name& resource,
                        const row_version& seen) const;

    /// Removes the mark; `seen` is the version from erase(). Round trips as update().
    update_result restore(sql::connection& db, const lock_name& resource,
                          const row_version& seen) const;

    /// A page of the resources whose names start with `prefix`, by name, including erased ones.
    [[nodiscard]] std::vector<versioned_resource> list(sql::connection& db,
                                                       std::string_view prefix = {},
                                                       const page& which = {}) const;

private:
    class state;
    std::shared_ptr<state> state_;
};

namespace detail {

/// The error equivalent of an update_result that is `conflict`.
[[nodiscard]] error conflict_error();

/// A caller of repeat_attempts(): as retry_until_stopped, but on a dead connection nothing is
/// repeated.
class retry_until_no_conflict : public retry_until_stopped {
public:
    /// Both must outlive it. `db` may be null.
    retry_until_no_conflict(const std::stop_token& stop, const sql::connection* db) noexcept
        : retry_until_stopped{stop}, db_{db} {}

    [[nodiscard]] retry_step judge(const error& failure) const noexcept;
    /// Throws on `last`, which is being handled. A conflict reports how many attempts were made.
    [[noreturn]] void give_up(const error& last, int attempts_made) const;

private:
    [[nodiscard]] bool cut_off() const noexcept;

    const sql::connection* db_;
};

/// One attempt's transaction on the caller's connection; rolled back unless committed.
class attempt_transaction {
public:
    /// @throws error errc::invalid_options if `db` is in a transaction already
    attempt_transaction(sql::connection& db, std::chrono::milliseconds statement_timeout);
    attempt_transaction(const attempt_transaction&) = delete;
    attempt_transaction& operator=(const attempt_transaction&) = delete;
    ~attempt_transaction();

    /// @throws error errc::database_error if there is no transaction to commit: a statement in it
    /// failed, or the action ended it
    void commit();
    void roll_back() noexcept;

private:
    sql::connection& db_;
    std::chrono::milliseconds statement_timeout_;
    bool over_ = false;
};

template <typename Result>
inline constexpr bool tells_conflict = std::is_same_v<std::remove_cv_t<Result>, update_result>;

/// Runs `once(attempt)` until it neither throws a repeatable error nor answers conflict.
template <typename Once>
auto until_no_conflict(const retry_policy& policy, const std::stop_token& stop,
                       const sql::connection* db, Once&& once)
    -> retried<std::remove_cv_t<std::invoke_result_t<Once&, int>>> {
    using result = std::invoke_result_t<Once&, int>;
    static_assert(!std::is_reference_v<result>, "the action returns a value, not a reference");
    using answer = retried<std::remove_cv_t<result>>;
    const retry_until_no_conflict caller{stop, db};
    int made = 0;
    try {
        return repeat_attempts(attempt_counter{policy}, caller, [&](int attempt) -> answer {
            made = attempt;
            if constexpr (std::is_void_v<result>) {
                once(attempt);
                return {attempt};
            } else {
                std::remove_cv_t<result> value = once(attempt);
                if constexpr (tells_conflict<result>) {
                    if (value.what() == update_result::outcome::conflict) throw conflict_error();
                }
                return {std::move(value), attempt};
            }
        });
    } catch (const error& last) {
        caller.give_up(last, made);
    }
}

}  // namespace detail

/// Options of retry_on_conflict().
struct conflict_options {
    /// Ends the pauses between attempts; the last failure is then thrown.
    std::stop_token stop = {};
    /// For BEGIN and COMMIT. As client_options::statement_timeout.
    std::chrono::milliseconds statement_timeout{std::chrono::seconds{5}};
};

/// Calls `action(attempt)`, counted from 1, until there is no conflict; between attempts it pauses
/// as the policy says, with jitter. The action reads the row again and bases its change on that,
/// **in a new transaction each time**: one that keeps its snapshot would read the old version
/// forever. The action ends in one of these ways:
/// - it returns an update_result: `conflict` is repeated, `done` and `gone` are the answer;
/// - it returns anything else, or nothing: that is the answer;
/// - it throws an error that is retryable(), such as the one of update_result::or_throw(): it is
///   repeated. Everything else it throws is passed on, errc::outcome_unknown above all: a change
///   whose reply was lost may have been made.
/// @returns the answer and the number of attempts
/// @throws error errc::conflict with the number of attempts after the last of them
template <typename Action>
requires std::invocable<Action&, int>
auto retry_on_conflict(const retry_policy& policy, Action&& action,
                       const conflict_options& options = {}) {
    return detail::until_no_conflict(policy, options.stop, nullptr, action);
}

/// The same, with a transaction on `db` for each attempt, begun by this call and committed before
/// it returns. `db` must not be in a transaction, nor have autocommit switched off (MySQL). An
/// attempt that throws, or answers `conflict` or `gone`, is rolled back: discard the versions that
/// it made. On SQLite the transaction has the file to itself from its start (BEGIN IMMEDIATE), so
/// what it reads cannot change before it writes. A commit whose reply is lost is
/// errc::outcome_unknown and is never repeated; nor is anything once the connection is gone. Two
/// round trips per attempt besides the action's (Connector/C++: two more, to verify that there is
/// no transaction).
/// @throws error as above; errc::invalid_options if `db` is in a transaction or has autocommit off;
/// errc::database_error if the action ended the transaction itself, or swallowed the error that did
template <typename Action>
requires std::invocable<Action&, int>
auto retry_on_conflict(sql::connection& db, const retry_policy& policy, Action&& action,
                       const conflict_options& options = {}) {
    using result = std::remove_cv_t<std::invoke_result_t<Action&, int>>;
    static_assert(!std::is_reference_v<result>, "the action returns a value, not a reference");
    return detail::until_no_conflict(policy, options.stop, &db, [&](int attempt) -> result {
        detail::attempt_transaction transaction{db, options.statement_timeout};
        if constexpr (std::is_void_v<result>) {
            action(attempt);
            transaction.commit();
        } else {
            result answer = action(attempt);
            bool keep = true;
            if constexpr (detail::tells_conflict<result>) keep = static_cast<bool>(answer);
            if (keep) {
                transaction.commit();
            } else {
                transaction.roll_back();
            }
            return answer;
        }
    });
}

/// @}

}  // namespace rowlock

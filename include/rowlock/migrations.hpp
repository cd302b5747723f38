#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace rowlock {

/// @addtogroup upkeep
/// @{

/// Options of migrate(), schema_status() and record_history().
struct migration_options {
    /// How long to wait for another process that is migrating, and for each statement.
    std::chrono::milliseconds wait{std::chrono::seconds{60}};
    /// Called by migrate() before each migration, with its version: for a progress display. It must
    /// not throw.
    std::function<void(int version)> on_step = {};
};

/// Which migrations a database has.
struct migration_status {
    int version = 0;  ///< of the database; 0 = no tables; may be that of a later library
    int latest = 0;   ///< that this library knows
    /// Whether this library can work with the tables.
    [[nodiscard]] bool current() const noexcept { return version >= latest; }
};

/// Brings the tables that the source names up to `target` (-1 = latest, or a later one that is
/// there and that this library can work with) or down to it (0 = remove everything). Makes their
/// schema if it is missing. Many processes may call it at once: one works, the others wait.
/// Requires the right to create tables; the rest of the library does not.
/// @return the versions that were applied or reverted, in order; empty if there was nothing to do.
/// @throws error errc::schema_outdated if the database is too new for this library, a recorded
/// migration differs from ours, or what a later library has applied is to be reverted;
/// errc::timed_out while another process migrates; errc::access_denied …
std::vector<int> migrate(const sql::connection_source& source,
                         const migration_options& options = {}, int target = -1);

/// Which migrations the database has.
/// @throws error as migrate(); does not change anything.
[[nodiscard]] migration_status schema_status(const sql::connection_source& source,
                                             const migration_options& options = {});

/// Refuses to go on without the tables of this library.
/// @throws error errc::schema_outdated unless the schema on this connection is that of this
/// library, or a later one that says that this library can work with it (docs/upgrading.md). One
/// round trip.
void require_current_schema(sql::connection& connection, const sql::table_names& tables,
                            sql::deadline until);

/// The history: a table, `PREFIXhistory`, in which triggers record every grant, release, hand-over,
/// forced release, queue entry and session, each in the transaction that makes it. Off by default.
/// Costs and required rights: docs/migrations.md; reading: rowlock/history.hpp.
enum class history_recording : unsigned char {
    absent,   ///< no table, or none visible to this user
    stopped,  ///< the table, without triggers (or, on MySQL, a user who may not see them)
    on,       ///< the table and its triggers
};

/// Switches the history on (and restores missing triggers), or stops it; existing records stay.
/// Many processes may call it at once. Takes locks that wait for transactions with fences, a second
/// at a time, up to options.wait. Needs the rights of migrate(), and TRIGGER on MySQL.
/// @throws error errc::schema_outdated without tables, errc::timed_out, errc::access_denied …
void record_history(const sql::connection_source& source, bool on,
                    const migration_options& options = {});
/// Stops the history and removes its records.
/// @throws error as record_history()
void drop_history(const sql::connection_source& source, const migration_options& options = {});
/// Whether the history is recorded. Changes nothing. Errors as schema_status().
[[nodiscard]] history_recording history_status(const sql::connection_source& source,
                                               const migration_options& options = {});
/// The SQL that record_history(source, true) runs, for a DBA.
/// @throws error errc::invalid_options for unusable names
[[nodiscard]] std::string history_script(sql::dialect dialect, const sql::table_names& tables = {});

/// The SQL that migrate() would run on an empty database, for a DBA to read or run: including the
/// record of each migration, so that the library accepts the result.
/// @throws error errc::invalid_options for unusable names
[[nodiscard]] std::string migration_script(sql::dialect dialect,
                                           const sql::table_names& tables = {});

/// @}

}  // namespace rowlock

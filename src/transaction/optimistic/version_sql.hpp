#pragma once

#include <rowlock/optimistic.hpp>

#include <limits>
#include <span>
#include <string>
#include <vector>

/// Builds statements over the callers' own tables. Names come in quoted; values are always bound.
/// On PostgreSQL functions and operators name their schema, because the search path is the
/// caller's.
///
/// Parameters: $1 … $k the key, then the version seen (not for insert and read), then the new
/// version where the caller computes it (needs_new_version), then the values of the assignments.
namespace rowlock::optimistic {

/// How a column stores its values.
enum class storage : unsigned char {
    integer,
    number,      ///< a number of another type, exact or not: MySQL's DECIMAL, DOUBLE
    zoned_time,  ///< an instant: timestamptz
    plain_time,  ///< without a zone, UTC by our convention: timestamp, DATETIME
    local_time,  ///< shown in the session's zone: MySQL's TIMESTAMP
    text,
    other,
};

struct column_type {
    storage stored = storage::other;
    std::string declared = {};  ///< for messages
    int digits = 0;             ///< fractional digits of a time's seconds
    std::int64_t most = std::numeric_limits<std::int64_t>::max();  ///< greatest value of an integer
    std::string equality = {};  ///< PostgreSQL: the schema, quoted, of the operator =
};

/// A table as statements name it.
struct table_shape {
    sql::dialect speaks;
    std::string table;
    std::vector<std::string> key;
    std::string version;
    bool version_is_time = false;
    storage version_stored = storage::integer;
    std::string deleted_at = {};  ///< empty if the table has none
    storage deleted_stored = storage::other;
    /// PostgreSQL: the quoted schemas of the operators that compare the key's columns; if empty,
    /// pg_catalog.
    std::vector<std::string> equality = {};
};

/// What a change does to the deletion mark. `clear` works on marked rows, the others on unmarked
/// ones.
enum class mark : unsigned char { keep, set, clear };

/// True if the caller must compute the new version: MySQL cannot return the time that an UPDATE
/// wrote.
[[nodiscard]] bool needs_new_version(const table_shape& of) noexcept;
/// Whether a change returns the new version as a row; if not, the count of changed rows shows
/// success.
[[nodiscard]] bool answers_version(const table_shape& of) noexcept;
/// Whether the version is a time for which the database has no type: SQLite keeps it as a text or
/// as a number, row by row, and has values that cannot move on.
[[nodiscard]] bool has_untyped_time(const table_shape& of) noexcept;

/// Returns the version, 1 if marked as deleted, 1 if the version can advance, and the columns
/// (quoted) of up to two rows: a second row means that the key is not unique.
[[nodiscard]] std::string read_text(const table_shape& of, std::span<const std::string> columns);
/// MySQL, after a duplicate: reads the newest row, whatever the snapshot shows. The failed INSERT
/// has already left this very lock on the row.
[[nodiscard]] std::string read_newest_text(const table_shape& of);
[[nodiscard]] std::string insert_text(const table_shape& of, std::span<const assignment> values);
[[nodiscard]] std::string update_text(const table_shape& of, std::span<const assignment> values,
                                      mark how);
[[nodiscard]] std::string erase_text(const table_shape& of);

}  // namespace rowlock::optimistic

#pragma once

#include <rowlock/optimistic.hpp>

#include <limits>
#include <span>
#include <string>
#include <vector>

/// Texts of statements over the callers' own tables. Names come in quoted; values are always bound.
/// On PostgreSQL functions and operators name their schema: the search path is the caller's.
///
/// Parameters: $1 … $k the key, then the version seen (not for insert and read), then the new
/// version where the caller makes it (needs_new_version), then the values of the assignments.
namespace rowlock::optimistic {

/// How a column keeps what it holds.
enum class storage : unsigned char {
    integer,
    number,      ///< of another kind, exact or not: MySQL's DECIMAL, DOUBLE
    zoned_time,  ///< an instant: timestamptz
    plain_time,  ///< without a zone, UTC by our convention: timestamp, DATETIME
    local_time,  ///< shown in the session's zone: MySQL's TIMESTAMP
    text,
    other,
};

struct column_type {
    storage stored = storage::other;
    std::string declared = {};                                     ///< for messages
    int digits = 0;                                                ///< of a time's seconds
    std::int64_t most = std::numeric_limits<std::int64_t>::max();  ///< of an integer
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
    /// PostgreSQL: schemas, quoted, of the operators that compare the key's columns; none:
    /// pg_catalog.
    std::vector<std::string> equality = {};
};

/// What a change does to the mark of deleted rows. It also says on which rows it works: those
/// without the mark, but for `clear`.
enum class mark : unsigned char { keep, set, clear };

/// MySQL cannot answer what an UPDATE made of the clock, so there the caller computes a time.
[[nodiscard]] bool needs_new_version(const table_shape& of) noexcept;
/// Whether a change answers the new version as a row; if not, the count of changed rows tells.
[[nodiscard]] bool answers_version(const table_shape& of) noexcept;

/// Answers version, 1 if marked as deleted, 1 if the version can move on, and the columns (quoted)
/// of up to two rows: a second one tells that the key is none.
[[nodiscard]] std::string read_text(const table_shape& of, std::span<const std::string> columns);
/// After a duplicate on MySQL: the newest row, whatever the snapshot shows. The INSERT that failed
/// has left this very lock on it already.
[[nodiscard]] std::string read_newest_text(const table_shape& of);
[[nodiscard]] std::string insert_text(const table_shape& of, std::span<const assignment> values);
[[nodiscard]] std::string update_text(const table_shape& of, std::span<const assignment> values,
                                      mark how);
[[nodiscard]] std::string erase_text(const table_shape& of);

}  // namespace rowlock::optimistic

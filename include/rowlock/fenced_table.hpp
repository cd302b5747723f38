#pragma once

#include <rowlock/fencing_token.hpp>
#include <rowlock/sql/connection.hpp>
#include <rowlock/table_row.hpp>

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock {

/// @addtogroup fences
/// @{

/// The result of a fenced write.
enum class fenced_write : unsigned char {
    done,     ///< the row was written, with this token
    refused,  ///< the row was written with a greater token: by a later holder of the lock
    missing,  ///< no such row
};

/// The name of the enumerator.
[[nodiscard]] std::string_view to_string(fenced_write what) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, fenced_write what);

/// A table of yours, in any database, whose rows keep the greatest fencing token they were written
/// with and refuse writes with a smaller one. For data that is not stored beside the locks; where
/// it is, fence() (transaction.hpp) is simpler and protects reads too.
///
///     rowlock::fenced_table accounts{"account", {"id"}};
///     accounts.update(db, {17}, lease.token(), {{"balance", 250}}, until);
///
/// A holder that was paused and resumes is refused once its successor has written the row, and not
/// before: a row is protected by its own token. Use the tokens of one lock name for one row.
///
/// Copies share their prepared statements. Thread-safe.
class fenced_table {
public:
    /// @param table `table` or `schema.table`, verbatim: quoted, so that PostgreSQL does not fold
    /// it to lower case
    /// @param key columns that identify one row
    /// @param token_column as made by fence_token_sql()
    /// @throws error errc::invalid_options if a name is missing or given twice
    fenced_table(std::string table, std::vector<std::string> key,
                 std::string token_column = "fence_token");

    /// One conditional UPDATE: sets the columns, and the token, if the row's token is not greater
    /// (or NULL). In your transaction or by itself. An increment that is sent again after
    /// errc::outcome_unknown may count twice: an equal token is not refused.
    /// @throws error errc::invalid_options for a token of 0 (an empty lease's), a key that does not
    /// fit or is NULL, and an assignment to the token column; errc::schema_outdated if a column is
    /// missing, errc::conflict at REPEATABLE READ …
    /// One round trip; one more to tell refused from missing, and on PostgreSQL one more for the
    /// first write of this object, which looks up the operators of the key's types.
    fenced_write update(sql::connection& db, const row_key& key, fencing_token token,
                        const std::vector<assignment>& assignments, sql::deadline until) const;

    /// The same, and inserts the row if it is missing; the key needs a unique index. Never answers
    /// `missing`. A missing row has no token, so a stale holder may create it.
    /// @throws error also errc::invalid_options for an increment: a new row has nothing to add to
    fenced_write put(sql::connection& db, const row_key& key, fencing_token token,
                     const std::vector<assignment>& assignments, sql::deadline until) const;

private:
    struct shared;
    std::shared_ptr<const shared> shared_;
};

/// Options of fence_token_sql().
struct fence_token_options {
    /// Name of the token column.
    std::string column = "fence_token";
    /// Also a trigger that refuses an UPDATE with a smaller token, from any program.
    bool trigger = false;
};

/// The statements that give a table its token column, for your own migrations; rowlock never runs
/// them. Names of the function and trigger derive from the table's.
/// @throws error errc::invalid_options as fenced_table
[[nodiscard]] std::vector<std::string> fence_token_sql(sql::dialect dialect,
                                                       const std::string& table,
                                                       const fence_token_options& options = {});

/// @}

}  // namespace rowlock

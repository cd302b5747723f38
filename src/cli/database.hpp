#pragma once

#include "cli/exit_code.hpp"
#include <rowlock/options.hpp>
#include <rowlock/sql/connection.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::cli {

/// The database options of the command line.
struct database_options {
    std::optional<std::string> url;                 ///< empty: the environment decides
    bool local = false;                             ///< the file in the user's state directory
    std::optional<std::string> schema{}, prefix{};  ///< of the tables, if the URL does not say them
};

/// The database a command works on.
struct database {
    std::string url;
    sql::connection_source source;
    bool embedded;  ///< the file in the user's state directory, which migrates by itself
};

enum class missing_file : bool { refused, made };

struct database_url {
    std::string text;                               ///< with the names of --schema and --prefix
    bool embedded;                                  ///< the file in the user's state directory
    std::optional<std::string> schema{}, prefix{};  ///< these options, which the text agrees with
};

/// --local or --url, else ROWLOCK_URL, else the first line of the file that ROWLOCK_URL_FILE names.
/// The URL `local` means the file in the user's state directory, as --local does. Without any of
/// these there is no database: a lock in a file that nothing else locks would protect nothing.
/// @throws failure, also if --schema or --prefix contradicts the URL; error for an unusable name
[[nodiscard]] database_url find_url(const database_options& options);

/// Loads the driver. Connects to nothing.
/// @throws failure, error
[[nodiscard]] database open_database(const database_url& at,
                                     missing_file file = missing_file::refused);

/// The database at find_url().
[[nodiscard]] inline database find_database(const database_options& options,
                                            missing_file file = missing_file::refused) {
    return open_database(find_url(options), file);
}

/// The databases of a file with a URL on each line; lines that are empty or begin with # do not
/// count. Only the user may be able to read it.
/// @throws failure, error
[[nodiscard]] std::vector<sql::connection_source> members_in(const std::string& path);

/// Those of --schema and --prefix, for SQL that is printed without a database.
/// @throws failure if the URL, which is not used, says others; error for an unusable name
[[nodiscard]] sql::table_names names_without_url(const database_options& options);

/// Reports exactly what is wrong with the tables, or creates them in the embedded database.
/// @throws error errc::schema_outdated
void mend_tables(const database& in);

/// Runs `action`; if it finds the tables wrong, mends them and runs it again, or reports what is
/// wrong.
template <typename Action>
auto with_tables(const database& in, Action action) {
    try {
        return action();
    } catch (const error& failure) {
        if (failure.kind() != errc::schema_outdated) throw;
        mend_tables(in);
    }
    return action();
}

/// The database as shown to people: no credentials; schema and prefix if they are unusual.
[[nodiscard]] std::string description_of(const database& in);

/// client_options with the tool as program.
[[nodiscard]] client_options tool_options();

}  // namespace rowlock::cli

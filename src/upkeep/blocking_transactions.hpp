#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Which transactions keep a name's rows locked: a fenced one whose program hangs, a prepared one
/// that was forgotten, an operator's. A lock whose rows they hold can be neither broken nor granted
/// until they end. For display: what is read may have ended since.
namespace rowlock::detail {

struct blocking_transaction {
    enum class kind : unsigned char {
        ordinary,  ///< of a connection
        prepared,  ///< of two-phase commit: no connection has it any more
    };
    kind of{};
    std::int64_t pid = 0;  ///< of an ordinary one: the server's process, or the id of the
                           ///< connection (MySQL); on SQLite the process on this machine
    std::string gid{};     ///< of a prepared one, as the server names it; on MySQL may be empty
    /// The server does not say which of several it is (PostgreSQL after a savepoint; MySQL, where
    /// nothing connects a prepared transaction's locks with its gid): this is one of them.
    bool one_of_several = false;
    std::string user{};
    std::string application_name{};  ///< empty: not known. MySQL: the host that it came from
    std::string state{};             ///< in the server's words; empty if this user may not see it
    std::optional<std::chrono::milliseconds> age{};  ///< since it began, or was prepared
    /// How long ago its present statement began, or its last one if none runs.
    std::optional<std::chrono::milliseconds> statement_age{};
    std::string how_to_end{};  ///< what an operator runs: one line
};

struct blocking_transactions {
    std::vector<blocking_transaction> found{};  ///< the oldest first
    std::string note{};                         ///< what could not be seen, and why; usually empty
};

/// Which transactions have locked a row of the lock `name`, of any kind: its lease, its permits and
/// their counter, its holders' sessions. Ordinary ones younger than 200 ms are left out: rowlock's
/// own statements lock rows for a moment.
///
/// Opens a connection of its own, on MySQL two: there the server names a transaction only while
/// another one waits for it, so one of them asks for the rows and is stopped as soon as it waits.
/// That takes less than a second, and none if nothing is locked. Locks nothing elsewhere.
/// PostgreSQL: two round trips.
/// SQLite: the process that writes the file, if this one may see it, and did 200 ms later as well.
///
/// What this user may not see, or MySQL cannot show at present, is left out, and `note` says so.
/// @throws error if the database cannot be asked at all
[[nodiscard]] blocking_transactions read_blocking_transactions(const sql::connection_source& source,
                                                               std::string_view name,
                                                               sql::deadline until);

/// All prepared transactions that have locked a row of our tables, or on MySQL of any table: the
/// server does not say which. One connection.
/// @throws error as read_blocking_transactions()
[[nodiscard]] blocking_transactions read_prepared_transactions(const sql::connection_source& source,
                                                               sql::deadline until);

}  // namespace rowlock::detail

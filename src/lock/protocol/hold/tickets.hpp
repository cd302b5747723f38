#pragma once

#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <span>
#include <string>
#include <vector>

/// Queue entries, for the implementations of the protocols that keep queues.
namespace rowlock::protocol {

/// The grant ids in the first column.
[[nodiscard]] std::vector<grant_id> first_column(const sql::result& rows);

/// As the text of an array, for PostgreSQL.
[[nodiscard]] std::string array_of(std::span<const grant_id> numbers);

/// Deletes the tickets that were read, rows of grant id and ticket in the order of their tickets,
/// each by `delete_one` with its ticket. Returns the grant ids of those that this call deleted.
std::vector<grant_id> delete_tickets(sql::connection& db, const sql::statement& delete_one,
                                     const sql::result& tickets, sql::deadline until);

}  // namespace rowlock::protocol

#pragma once

#include "sql/statements.hpp"
#include <rowlock/reaper.hpp>
#include <rowlock/sql/connection.hpp>

#include <stop_token>

namespace rowlock::detail {

/// Runs one round of the reaper on a connection of our own: all batches, or as many as it completes
/// before a stop is requested. upkeep/ has it: a client calls the reaper, which works below no
/// client.
reap_report reap_round(sql::connection& db, const sql::statement_set& statements,
                       const reaper_options& options, const std::stop_token& stop = {});

/// @throws error errc::invalid_options
void validate(const reaper_options& options);

}  // namespace rowlock::detail

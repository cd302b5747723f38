#pragma once

#include "coordination/lease/lease_protocol.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Behind batch_protocol: transitions of lease_protocol in fewer statements and commits, where their
/// case is simple. What they do not do is left to lease_protocol, which finds out why. Each
/// function says the same thing on every database.
namespace rowlock::strategy {

/// How many names one call takes.
inline constexpr std::size_t largest_group = 32;

// Every function here
// - waits for no row that somebody else has locked (a fenced transaction may have it for long), and
//   so has no part in a deadlock. On SQLite, where all writers wait for each other, it waits for
//   the file as every other statement does;
// - throws errc::outcome_unknown if a reply was lost: each grant is then looked for by its id, as
//   after acquire. Other errors: nothing was done, or what was done is known to nobody but the
//   table; every name is asked after alone.

/// The statement itself, which all databases have alike.
bool run_retake(sql::connection& db, const sql::statements& sql, const grant_request& request,
                std::int64_t known, sql::deadline until);

namespace on_mysql {

/// Takes a lease that was free with token `known` when this client released it, if it still is, our
/// session lives, nobody waits for it and the floor has not risen past it: the token is known + 1,
/// durable. False: nothing was changed. One round trip; none on MySQL, which answers false.
bool reacquire(sql::connection& db, const sql::statements& sql, const grant_request& request,
            std::int64_t known, sql::deadline until);

/// Whether each of these names can be had. Names that have no row are `present = false`. Reads, and
/// locks nothing. One round trip for each 16 names, two if one has no row.
/// @param names different ones
std::vector<look> probe_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                            std::span<const std::string_view> names, sql::deadline until);

/// Grants of different names to one session, durable: by one commit, and by another for names that
/// have no row yet. For each request its token, or nothing: ask lease_protocol::acquire, alone.
///
/// On MariaDB two round trips for up to 16 names if all were granted; four and a look for each 16
/// names if there are more, on MySQL, or if one is locked. Before MariaDB 10.6 nothing is granted
/// then; on MySQL nothing where there is no row.
/// @param requests of one session, different names, at most largest_group
std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until);

/// Frees grants of one session by one commit, those only for whom nobody was seen waiting. Which
/// were freed: there the caller looks for waiters afterwards, as after every release on MySQL.
/// What is false is waited for, locked, or not this grant any more: ask queue_protocol::release.
///
/// On MariaDB one round trip for up to 16 names if all were freed, one more if not; else four and
/// one more for each further 16 names.
/// @param grants different names, at most largest_group
std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until);

}  // namespace on_mysql

/// One round trip each.
namespace on_postgresql {

std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until);
/// @param known the token each was freed with: its next is that + 1
std::vector<std::optional<std::int64_t>> reacquire_all(sql::connection& db, const sql::statements& sql,
                                                    std::span<const grant_request> requests,
                                                    std::span<const std::int64_t> known,
                                                    sql::deadline until);
/// Waits for a row that a fenced transaction has.
std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until);
/// Whether they are surely held by live sessions.
std::vector<bool> held(sql::connection& db, const sql::statements& sql,
                       std::span<const std::string_view> names, sql::deadline until);

}  // namespace on_postgresql

/// The same. Round trips count nothing here; a group is one transaction, and one fsync.
namespace on_sqlite {

std::vector<look> probe_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                            std::span<const std::string_view> names, sql::deadline until);
std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until);
/// There is one writer: for what was freed nobody waits, and nobody needs to look.
std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until);

}  // namespace on_sqlite

}  // namespace rowlock::strategy

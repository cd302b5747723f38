#pragma once

#include "coordination/lease/lease_protocol.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Implements batch_protocol: transitions of lease_protocol in fewer statements and commits, for
/// simple cases. The rest is left to lease_protocol, which finds out why. Each function means the
/// same on every database.
namespace rowlock::strategy {

/// Most names that one call takes.
inline constexpr std::size_t largest_group = 32;

// Every function here
// - waits for no row that another client has locked (a fenced transaction may hold it for long),
//   and so has no part in a deadlock. On SQLite, where all writers wait for each other, it waits
//   for the file as every other statement does;
// - throws errc::outcome_unknown if a reply was lost: each grant is then looked up by its id, as
//   after acquire. After other errors nothing was done, or only the table knows what was done;
//   every name is retried alone.

/// Runs the statement itself, which all databases share.
bool run_reacquire(sql::connection& db, const sql::statements& sql, const grant_request& request,
                   std::int64_t known, sql::deadline until);

namespace on_mysql {

/// Takes a lease that was free at token `known` when this client released it, if it still is, our
/// session lives, no client waits for it and the floor has not risen past it. The new token is
/// known + 1, durable. Returns false if nothing was changed. One round trip; none on MySQL, which
/// answers false.
bool reacquire(sql::connection& db, const sql::statements& sql, const grant_request& request,
               std::int64_t known, sql::deadline until);

/// Probes whether each of these names can be taken. Names without a row are `present = false`.
/// Reads only, locks nothing. One round trip for each 16 names, two if one has no row.
/// @param names all different
std::vector<look> probe_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                            std::span<const std::string_view> names, sql::deadline until);

/// Grants different names to one session, durably: by one commit, and by another for names that
/// have no row yet. Returns a token for each request, or nullopt: call lease_protocol::acquire for
/// it alone.
///
/// On MariaDB two round trips for up to 16 names if all were granted; four and a probe for each 16
/// names if there are more, on MySQL, or if a row is locked. In that case MariaDB before 10.6
/// grants nothing. MySQL grants no name without a row.
/// @param requests of one session, different names, at most largest_group
std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until);

/// Frees those grants of one session that have no visible waiter, by one commit. Returns which were
/// freed; for those the caller looks for waiters afterwards, as after every release on MySQL.
/// False: waited for, locked, or no longer this grant; call queue_protocol::release.
///
/// On MariaDB one round trip for up to 16 names if all were freed, one more if not; else four and
/// one more for each further 16 names.
/// @param grants different names, at most largest_group
std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until);

}  // namespace on_mysql

/// One round trip per call.
namespace on_postgresql {

std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until);
/// @param known the token each was freed at; the new one is that + 1
std::vector<std::optional<std::int64_t>> reacquire_all(sql::connection& db,
                                                       const sql::statements& sql,
                                                       std::span<const grant_request> requests,
                                                       std::span<const std::int64_t> known,
                                                       sql::deadline until);
/// Waits for a row that a fenced transaction has locked.
std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until);
/// Returns which names are certainly held by live sessions.
std::vector<bool> held(sql::connection& db, const sql::statements& sql,
                       std::span<const std::string_view> names, sql::deadline until);

}  // namespace on_postgresql

/// The same. Round trips cost nothing here; a batch is one transaction, and one fsync.
namespace on_sqlite {

std::vector<look> probe_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                            std::span<const std::string_view> names, sql::deadline until);
std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until);
/// There is one writer: no client waits for a freed lease, and no search for waiters is needed.
std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until);

}  // namespace on_sqlite

}  // namespace rowlock::strategy

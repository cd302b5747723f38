#pragma once

#include "handoff/race.hpp"
#include <rowlock/options.hpp>

#include <chrono>
#include <string>

/// The contests of each database.
namespace handoff {

struct lease_options {
    std::string url;
    std::string prefix;  ///< of the tables
    rowlock::queueing queueing = rowlock::queueing::fair;
    rowlock::spin_pauses spin{};
    rowlock::wakeup_mode wake_ups = rowlock::wakeup_mode::automatic;
    /// Each try gives up after so long, and the next one follows; 0: after a minute, which fails.
    std::chrono::milliseconds limit{0};
};

/// rowlock::client with one name, and the default options except for these.
[[nodiscard]] contest leases(const lease_options& options);
/// The same with one client for all, which are threads of one process.
[[nodiscard]] contest leases_of_one_client(const lease_options& options);

/// Makes the tables.
void prepare_leases(const lease_options& options);
/// Removes the tables.
/// @throws std::runtime_error if a lease or queue entry remains: all clients are closed, so that
/// would be a leak
void clear_leases(const lease_options& options);

/// The floors: the database's own means of waiting, through its own library with prepared
/// statements, one connection for each process. `tag` makes names and channels unique.
///
/// pg_advisory_lock and pg_advisory_unlock.
[[nodiscard]] contest postgresql_advisory_lock(const std::string& url, const std::string& tag);
/// A ring: each process notifies the next one when it is done. Nothing is locked or stored.
[[nodiscard]] contest postgresql_notify_ring(const std::string& url, const std::string& tag);
/// GET_LOCK and RELEASE_LOCK.
[[nodiscard]] contest mysql_get_lock(const std::string& url, const std::string& tag);

}  // namespace handoff

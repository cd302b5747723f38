#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <string_view>

/// MySQL and MariaDB have nothing to notify with. Here a client that waits has one connection on
/// which it sleeps *in the server*, in a statement that bears its session's id; whoever has served
/// it finds that statement in the list of processes and ends it.
///
/// A wake-up is a hint, and it may fail to come: the sleeper was just between two sleeps, works as
/// another database user, on another node of a Galera cluster or behind a proxy. So the sleeper
/// looks at its places after each sleep, and once more when the next sleep is under way: from then
/// on whoever serves it finds it. What is missed all the same is found with the poll.
///
/// What is killed is never another's statement. The number of a connection means one connection as
/// long as the server runs; it is read from the server's list, next to the sleep, over the very
/// connection that sends the KILL and right before it; and a connection that sleeps does nothing
/// else until it is closed. So a KILL that is late meets the next sleep, or nobody.
///
/// Numbers are not remembered, although that would save a round trip: a KILL between two sleeps is
/// forgotten by the server, and nobody would know.
namespace rowlock::strategy::wake_up {

/// Makes a connection of our own one to sleep on, and to close afterwards: it is discard()ed, so
/// that no pool gives it to anybody else. Without the limit on a statement's time that the others
/// have. Two round trips, one if sql::facts_of() was asked before.
void prepare_to_sleep(sql::connection& db, sql::deadline until);

enum class ending : unsigned char { woken, slept };

/// Sleeps in the server until somebody wakes this session, `longest` at most: one round trip.
/// `until` must leave time beyond `longest`, as a connection that does not answer in time is given
/// up. Nothing on this side ends the sleep early, but wake() on another connection does: so keep
/// `longest` to what may be waited for when that fails (Connector/C++ gives up after five minutes).
/// @throws error if the connection broke or was killed
[[nodiscard]] ending sleep_until_woken(sql::connection& db, std::int64_t session,
                                       std::chrono::milliseconds longest, sql::deadline until);

/// Wakes a session, after what it shall see was committed. Two round trips if it sleeps, else one
/// (and one more with the first call on a connection). True: its sleep was ended, by this or by
/// itself, and it looks now. False: it was not found asleep, or the server did not allow it; where
/// it is known to wait it is worth another try after a millisecond, since it may be about to sleep.
/// @throws error if the connection broke
bool wake(sql::connection& db, std::int64_t session, sql::deadline until);

/// How a session's sleep looks in the list of processes.
[[nodiscard]] bool is_sleep_of(std::string_view statement, std::int64_t session) noexcept;

}  // namespace rowlock::strategy::wake_up

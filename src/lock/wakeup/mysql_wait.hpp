#pragma once

#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

/// MySQL and MariaDB cannot notify. Here a client that waits has one connection on which it sleeps
/// *in the server*, and the client that has served it ends that sleep with KILL QUERY.
///
/// It sleeps in GET_LOCK, before a *wait lock*: a user-level lock that another connection of the
/// same client holds for as long as it lives. (SLEEP would need no wait lock, but all sleepers
/// share one mutex in the server, and KILL tries for it at intervals: with several of them it took
/// seconds.) To be found, the sleeper's connection holds a user-level lock too, named after its
/// session: IS_USED_LOCK returns the number of the connection that holds a lock, and KILL takes an
/// expression.
///
/// So KILL never hits another client's statement. The number of a connection never leaves the
/// server: it is read and used in one statement, and means one connection as long as the server
/// runs. A connection that sleeps does nothing else until it is closed except read what it was
/// woken for, which may be read again. A KILL that is late meets one of these, or no statement. A
/// proxy with numbers of its own cannot mistake one for another.
///
/// What the woken client reads is not always durable: it may have come amid the commit of another
/// hand-over. So a client that hands over takes a third lock, whose name it computes from the grant
/// and the secret of the woken session, once the commit has returned, and keeps it until it does so
/// for the next. A grant whose lock is held at the time of the read is on disk; for all others the
/// reader makes sure by a commit of its own. Any user of the server can take a lock of any name:
/// one who cannot read the secret does not know this one.
///
/// A wake-up is a hint, and it may fail to come: the sleeper was between two sleeps (the server
/// forgets a KILL that comes then), works as another database user, on another node or behind a
/// proxy that keeps KILL to itself. So a sleeper reads what it was woken for, and its client polls
/// again after each sleep has begun.
namespace rowlock::mysql_wait {

/// Makes a connection of our own the one on which this session sleeps, to be closed afterwards: it
/// is discard()ed, so that no pool reuses it. Removes the limit on a statement's time that others
/// have. Two round trips, one more if sql::facts_of() was not asked before; two more if the
/// server has not noticed yet that the session's last sleeper is gone: its connection is ended.
/// @throws error errc::unsupported if the server has no user-level locks
void prepare_to_sleep(sql::connection& db, session_id session, sql::deadline until);

/// Takes a lock for a sleeper to wait for, until the wait lock is released or `db` ends: two round
/// trips, one if sql::facts_of() was asked before. `wait_lock` is a number that no other wait lock
/// of this server has or had. Returns false if this server cannot: the nodes of a Galera cluster do
/// not share locks, and some proxies and clusters refuse them.
/// @throws error if the connection broke
[[nodiscard]] bool take_wait_lock(sql::connection& db, std::int64_t wait_lock, sql::deadline until);

/// Releases the lock: the sleep ends at once, now or when it begins. One round trip.
void release_wait_lock(sql::connection& db, std::int64_t wait_lock, sql::deadline until);

/// lock_free: no connection held the lock, and now this one does; the caller closes it.
enum class ending : unsigned char { woken, slept, lock_free };

/// Sleeps in the server until another client wakes this session or the wait lock is released,
/// `longest` at most: one round trip. `until` must leave time beyond `longest`, as a connection
/// that does not answer in time is given up (Connector/C++ gives up after five minutes).
/// @throws error if the connection broke or was killed
[[nodiscard]] ending sleep_until_woken(sql::connection& db, session_id session,
                                       std::int64_t wait_lock, std::chrono::seconds longest,
                                       sql::deadline until);

/// Names the lock that says that a grant is durable. Only a client that can read the secret of the
/// woken session's row can compute it.
enum class durability_mark : std::int64_t {};
[[nodiscard]] durability_mark mark_durable(grant_id grant_id, std::string_view secret);

/// Wakes a session, after the grant that it is to read was committed: one round trip. Returns true
/// if the session has a connection to sleep on: if it slept, its sleep was ended. Returns false if
/// it has none, or the server did not allow it.
/// @throws error if the connection broke
bool wake(sql::connection& db, session_id session, durability_mark of_grant, sql::deadline until);

/// wake() as a text, to run behind the commit of the grant (sql::connection::transact). Call
/// note_woken() once that has run.
[[nodiscard]] std::string as_text(sql::connection& db, session_id session,
                                  durability_mark of_grant);
void note_woken(sql::connection& db, durability_mark of_grant);

}  // namespace rowlock::mysql_wait

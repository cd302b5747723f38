#pragma once

#include <rowlock/fencing_token.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/lock_mode.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock {

/// @addtogroup watching
/// Events of leases, permits, queue entries and sessions, as the database recorded them: see
/// record_history() in rowlock/migrations.hpp, which switches the recording on.
///
/// @{

/// What happened, as the triggers saw it.
enum class history_kind : unsigned char {
    granted,          ///< a hold begins; the lease was free
    handed_over,      ///< a hold begins; the previous holder gave the lease to this waiter
    taken_over,       ///< a hold begins; the previous one ended with its session or deadline
    reclaimed,        ///< a hold begins; taken from a predecessor's session (client::reclaim)
    released,         ///< the hold has ended; so has every hold of a session that has ended
    expired,          ///< the reaper freed a hold that had ended with its session or deadline
    forced,           ///< the hold was ended by force
    downgraded,       ///< a shared_mutex is held in a weaker mode, or a hold has fewer permits
    capacity_set,     ///< a semaphore was made, or has another capacity
    deleted,          ///< the reaper deleted the row; later tokens are greater
    altered,          ///< the tables were changed by other means
    queued,           ///< a queue entry was made
    left,             ///< a queue entry is gone: served, given up or removed
    session_opened,   ///< a client opened it
    session_ended,    ///< by its client, or by the client that reclaimed its leases
    session_expired,  ///< it was not renewed in time
    renewed,          ///< the same hold with a greater token: lease::extend(), `rowlock renew`
    asked,            ///< its release was asked for: a request that changed who, why or until when
    upgraded,         ///< a hold of a shared_mutex is exclusive from now on, with this token
};
/// The name of the enumerator, such as "granted".
[[nodiscard]] const char* to_string(history_kind kind) noexcept;
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, history_kind kind);

/// What kind of lock a record is about.
enum class history_of : unsigned char {
    lease,         ///< or a session
    semaphore,     ///< its permits, or its capacity
    shared_mutex,  ///< one of its modes
};
/// The name of the enumerator.
[[nodiscard]] const char* to_string(history_of what) noexcept;

/// What the tables say of the hold that a record is about.
enum class hold_now : unsigned char {
    gone,   ///< they do not name it any more
    over,   ///< they do, until it is taken over or reaped: its session or its deadline has passed
    ended,  ///< likewise: its session has ended
    held,   ///< it is held
};

/// One record. Fields that a kind does not fill are 0 or empty.
struct history_record {
    std::int64_t id = 0;  ///< records of one name are in the order of its events
    /// By the database's clock, read after the row was locked.
    std::chrono::sys_time<std::chrono::microseconds> at{};
    std::chrono::microseconds age{0};           ///< by the same clock
    history_kind kind = history_kind::altered;  ///< what happened
    std::string name;                           ///< empty for sessions
    fencing_token token;                        ///< of the lease, after the change
    session_id session{};           ///< that has the hold or queue entry, or the session itself
    rowlock::grant_id grant_id{};   ///< of the hold, or of the one the queue entry becomes
    ticket_no ticket{};             ///< of the queue entry
    session_id previous_session{};  ///< the holder that the row named before
    /// For a hold: its deadline, after the change. For an ended session: its last expiry.
    std::optional<std::chrono::sys_time<std::chrono::microseconds>> ends_at;
    std::string owner;     ///< of the session, where a hold or a session begins or ends
    std::string host;      ///< likewise
    std::string program;   ///< likewise
    std::int64_t pid = 0;  ///< of the session's process
    /// Of the hold; of one that was forced, who ended it; of a request, who asks, and of one at
    /// once why, too.
    std::string note;
    std::string reason;                 ///< of a request within a time, why
    std::string db_user;                ///< the database login; empty on SQLite
    history_of of = history_of::lease;  ///< the kind of lock
    /// Of a hold of a semaphore or shared_mutex after the change, of a queue entry, or the
    /// capacity.
    std::int64_t permits = 0;
    /// What the tables said of the hold when the record was read.
    hold_now now = hold_now::gone;
    /// Since when it has been over, if its session or its deadline passed.
    std::optional<std::chrono::sys_time<std::chrono::microseconds>> over_since;
    /// The mode that a hold or a queue entry of a shared_mutex has by its permits. The entry of an
    /// upgrade counts as exclusive.
    [[nodiscard]] std::optional<lock_mode> mode() const noexcept;
};

/// Which records read_history() returns.
struct history_query {
    std::string name = {};  ///< empty: of all names, and of sessions
    /// Only records no older than this.
    std::optional<std::chrono::microseconds> since = {};
    int limit = 1'000;  ///< at most this many, the latest; 1 to 1 000 000
    /// Only records before this id: pass the smallest id of a page to get the previous page.
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
};

/// The latest records that match, oldest first. Reads from the end in pieces; locks nothing.
/// @throws error errc::invalid_options, errc::invalid_name, errc::schema_outdated if the history
/// was never switched on, or not since permits are recorded; errc::access_denied,
/// database_unreachable …
[[nodiscard]] std::vector<history_record> read_history(sql::connection& connection,
                                                       const sql::table_names& tables,
                                                       const history_query& query,
                                                       sql::deadline until);
/// The same on a connection of its own, within a minute.
[[nodiscard]] std::vector<history_record> read_history(const sql::connection_source& source,
                                                       const history_query& query = {});

/// @}

}  // namespace rowlock

#pragma once

#include "sql/statements.hpp"
#include <rowlock/fencing_token.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// All that is held and waited for at about one moment, for a page that people look at. Texts come
/// from other programs. Times are those of the database's clock.
namespace rowlock::view {

using microseconds = std::chrono::microseconds;
using time_point = std::chrono::sys_time<microseconds>;

enum class kind : unsigned char { lease, semaphore, shared_mutex };
[[nodiscard]] const char* to_string(kind of) noexcept;

/// A holder or a waiter.
struct party {
    session_id session{};
    rowlock::grant_id grant_id{};
    std::string owner, host, program;
    std::int64_t pid = 0;
    std::string thread, note;
    time_point since{};          ///< of the grant, or of the queue entry
    std::int64_t permits = 0;    ///< of a semaphore or shared_mutex
    const char* mode = nullptr;  ///< of a shared_mutex
};

struct holder : party {
    fencing_token token{};
    std::optional<time_point> deadline{};   ///< of its own: nothing renews it
    bool expired = false;                   ///< its session has, and the next taker ends that
    std::optional<std::string> asked_by{};  ///< another client has asked for its release
    std::string reason{};
};

struct entry : party {
    std::int64_t priority = 0;
    std::int64_t locks = 1;  ///< that its request wants at once
};

struct lock {
    kind of{};
    std::string name{};
    /// Of a semaphore; permits of dead holders are `expired` until the next taker or a reaper
    /// returns them.
    std::int64_t capacity = 0, used = 0, expired = 0;
    std::vector<holder> holds{};
    std::vector<entry> queue{};  ///< as it is served
};

struct session {
    session_id id{};
    std::string owner, host, program;
    std::int64_t pid = 0;
    time_point opened{}, expires{};
    microseconds ttl{};
    std::int64_t heartbeats = 0;
};

/// A deadlock cycle of waiters.
struct cycle {
    std::string description;
    std::vector<rowlock::grant_id> entries;
};

struct snapshot {
    time_point at{};
    std::vector<lock> locks{};  ///< in use, by kind and name
    std::vector<cycle> cycles{};
    bool more = false;         ///< there is more than was read
    bool searched = true;      ///< whether cycles were looked for: not among very many waiters
    bool only_leases = false;  ///< this user may not read the other tables
};

/// Reads the locks in use: five round trips, and one more if anything waits. Each reads tables from
/// end to end.
/// @param db of our own (session_protocol::set_up): the statements compare with its clock
/// @param most rows of each table
/// @throws error
[[nodiscard]] snapshot read(sql::connection& db, const sql::statement_set& statements,
                            std::int64_t most, sql::deadline until);

/// Those that have not ended, by id; and the database's clock. Two round trips.
struct sessions_seen {
    time_point at{};
    std::vector<session> sessions{};
};
[[nodiscard]] sessions_seen read_sessions(sql::connection& db, const sql::statement_set& statements,
                                          std::int64_t most, sql::deadline until);

/// How many permits dead holders keep of each semaphore or shared_mutex: they are not held any
/// more, and count as used until the next that asks takes them back. One round trip.
using expired_permits = std::map<std::pair<kind, std::string>, std::int64_t>;
[[nodiscard]] expired_permits read_expired_permits(sql::connection& db,
                                                   const sql::statement_set& statements,
                                                   std::int64_t most, sql::deadline until);

}  // namespace rowlock::view

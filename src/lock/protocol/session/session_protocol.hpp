#pragma once

#include "lock/wakeup/hint.hpp"
#include "sql/statements.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The transitions of sessions, each one conditional statement on a connection given by the caller;
/// and what every grant stands on: the server's identity and the token floor. No state, no retries,
/// no clocks: those are the client's.
namespace rowlock::protocol {

struct session_row {
    session_id id;
    std::string owner, host, program;
    std::int64_t pid;
    std::chrono::microseconds ttl;
    wakeup::wake_address wake{};
};

struct session_state {
    bool live;
    std::int64_t revision;
};

/// The notification to a session whose rows were changed.
struct change_to_tell {
    wakeup::wake_address to{};
    std::int64_t revision = 0;
};

/// The token floor is missing: nothing can be granted.
[[nodiscard]] error no_token_floor();

/// The connection leads to a standby: nothing can be written, and its data may be old.
[[nodiscard]] error leads_to_standby();

/// Each call one round trip, if it says nothing else. Thread-safe.
class session_protocol {
public:
    virtual ~session_protocol() = default;
    session_protocol(const session_protocol&) = delete;
    session_protocol& operator=(const session_protocol&) = delete;

    /// Prepares a connection of our own, and learns which server it leads to. Up to five round
    /// trips, once per connection.
    virtual void set_up(sql::connection& db, std::chrono::milliseconds statement_timeout,
                        sql::deadline until) const = 0;

    /// Identifies the server the connection leads to: it changes with a promotion, not with a
    /// restart. PostgreSQL: the cluster's number and its timeline. MySQL: server_uuid and
    /// server_id. MariaDB: server_uid, where it has one, and server_id. Galera: the cluster's.
    /// Empty if the server does not report one, as SQLite; nullopt on a standby of PostgreSQL. No
    /// round trip after set_up(), except behind a transaction pooler and on a standby.
    [[nodiscard]] std::optional<std::string> server_of(sql::connection& db,
                                                       sql::deadline until) const;
    /// Queries it again, in case the connection was rerouted without our knowledge.
    [[nodiscard]] virtual std::optional<std::string> server_of_again(sql::connection& db,
                                                                     sql::deadline until) const = 0;

    /// Opens a session that lives on this server alone, and returns server_of(). Raises the token
    /// floor if the floor was that of another server.
    virtual std::string open(sql::connection& db, const session_row& row,
                             sql::deadline until) const = 0;
    /// Returns false if the session is dead or its revision moved: state_of() tells which.
    [[nodiscard]] bool heartbeat(sql::connection& db, session_id session, std::int64_t revision,
                                 sql::deadline until) const;
    [[nodiscard]] session_state state_of(sql::connection& db, session_id session,
                                         sql::deadline until) const;
    /// Returns whether this call ended it.
    bool end_expired(sql::connection& db, session_id session, sql::deadline until) const;
    /// Whatever its expiry. Returns whether this call ended it.
    bool end(sql::connection& db, session_id session, sql::deadline until) const;
    void remove(sql::connection& db, session_id session, sql::deadline until) const;
    /// Sets a session's time to live, counted from now. Returns false if the session is dead.
    bool extend(sql::connection& db, session_id session, std::chrono::microseconds ttl,
                sql::deadline until) const;
    /// Makes the session read its rows: in the transaction that changes them.
    void bump_revision(sql::connection& db, session_id session, sql::deadline until) const;
    /// The owner's sessions that are not ended, but this one. PostgreSQL locks them.
    [[nodiscard]] std::vector<session_id> predecessors(sql::connection& db, std::string_view owner,
                                                       session_id session,
                                                       sql::deadline until) const;
    /// Returns how to notify a session that its rows were changed; nullopt if it is gone or has no
    /// address.
    [[nodiscard]] std::optional<change_to_tell> change_of(sql::connection& db, session_id session,
                                                          sql::deadline until) const;

    /// Ensures that no token up to this one is granted again: for a holder that finds its row
    /// deleted, or its token lowered.
    void lift_floor(sql::connection& db, std::int64_t token, sql::deadline until) const;
    /// Checks the floor, for a lock that is free and yet cannot be taken.
    /// @throws error no_token_floor()
    void require_token_floor(sql::connection& db, sql::deadline until) const;

protected:
    explicit session_protocol(const sql::statement_set& statements);

    const sql::statement open_, read_floor_;

private:
    const sql::statement heartbeat_, state_, end_expired_, end_, remove_, extend_, bump_revision_,
        predecessors_, wake_address_, lift_floor_;
};

/// The protocol of the dialect that `statements` are written in.
[[nodiscard]] std::unique_ptr<const session_protocol> make_session_protocol(
    const sql::statement_set& statements);

}  // namespace rowlock::protocol

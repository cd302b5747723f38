#pragma once

#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/waiters.hpp"
#include "sql/brief_wait.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rowlock::detail {

/// Brings what a client knows of its session and what the database shows of it together: frees what
/// no call could free, gives back rows that no grant here belongs to, and declares lost the grants
/// whose rows are no longer ours. The heartbeat's thread calls it, on a connection with a short
/// lock timeout; want() and is_wanted() are for all threads.
class reconciler {
public:
    reconciler(client_context& context, grant_lifecycle& grants, waiters& waiting)
        : context_{context}, grants_{grants}, waiting_{waiting} {}

    /// Asks for a comparison with the next heartbeat: after a reconnect, a broken connection, a
    /// changed revision, or an outcome that could not be remembered.
    void want() noexcept { wanted_ = true; }
    [[nodiscard]] bool is_wanted() const noexcept { return wanted_; }

    /// After a heartbeat: resolves grants in an unknown state. Round trips only for those.
    void begin(session& ours, sql::connection& db, sql::deadline until);
    /// After begin(), and what its caller does in between, which may have replaced the connection:
    /// compares with the database, if that is wanted, and every third time by name. A task that
    /// lost the connection (a row locked too long) runs last in the next round.
    void finish(session& ours, sql::connection& db, sql::deadline until);
    /// A hold whose row ends earlier than we know was requested, and a lease whose row is another's
    /// by now was taken: it is declared lost, and its holder stops and releases it. Returns false
    /// if a row may belong to a grant that is still pending and could be requested. One round trip.
    bool find_requests(session& ours, sql::connection& db, sql::deadline until);

    /// Whether a row was locked since the last call: the next round should come soon (SQLite).
    [[nodiscard]] bool take_postponed() noexcept { return std::exchange(postponed_, false); }

    /// Held by reclaim(): rows are ours before their grants are known.
    [[nodiscard]] std::mutex& reclaiming() noexcept { return reclaiming_; }

private:
    void resolve_unknown(session& ours, sql::connection& db, sql::deadline until);
    void resolve(session& ours, const unresolved_grant& unknown, sql::connection& db,
                 sql::deadline until);
    void compare_if_wanted(session& ours, sql::connection& db, sql::deadline until);
    void compare_held(session& ours, sql::connection& db, sql::deadline until);
    void compare(session& ours, sql::connection& db, sql::deadline until);
    void cancel_orphans(session& ours, sql::connection& db, sql::deadline until);
    /// Whether a part of this client stands for the row, or is about to.
    [[nodiscard]] static bool is_known(const session& ours, const protocol::session_hold& hold);
    [[nodiscard]] std::vector<protocol::session_hold> holds_of(const session& ours,
                                                               sql::connection& db,
                                                               sql::deadline until) const;
    /// The tokens of rows, by grant id.
    using row_tokens = std::unordered_map<grant_id, std::int64_t>;
    /// Declares lost what was held, and is not in the rows that were read since.
    /// @param known what this client knew of the rows before
    void lose_missing(const std::vector<std::shared_ptr<grant>>& held, const row_tokens& known,
                      const std::vector<protocol::session_hold>& rows);
    void release_orphan(session& ours, const protocol::session_hold& hold, sql::connection& db,
                        sql::deadline until);
    void cancel_orphan(session& ours, const std::string& name, grant_id grant_id,
                       sql::connection& db, sql::deadline until);
    /// May wait for a row, so no heartbeat does it.
    void raise_floor_past_lost(sql::connection& db, sql::deadline until);
    void tell_waiters(const sql::connection& db, const std::string& name, const error& why);
    void postpone() noexcept;

    client_context& context_;
    grant_lifecycle& grants_;
    waiters& waiting_;
    std::atomic<bool> wanted_{false};
    std::mutex reclaiming_;
    // Used by the heartbeat's thread alone.
    bool resolve_last_ = false;                 ///< resolving broke the connection last time
    bool resolves_last_ = false;                ///< in this round
    nanoseconds row_patience_ = sql::brief;     ///< for one task, on SQLite
    bool postponed_ = false;                    ///< a task did not fit into row_patience_
    std::vector<std::shared_ptr<grant>> lost_;  ///< whose rows were gone: the floor follows
};

}  // namespace rowlock::detail

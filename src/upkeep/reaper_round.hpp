#pragma once

#include "lock/protocol/barrier/barrier_protocol.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/policy/policy_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/run_statement.hpp"
#include "sql/statements.hpp"
#include "upkeep/table_scan.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/reaper.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace rowlock::detail {

/// One round of the reaper on one connection; used once. What the databases do differently is in
/// one implementation a dialect (make_reaper_round).
class reaper_round {
public:
    /// What a round works with. All of it must outlive the round.
    struct parts {
        sql::connection& db;
        const sql::statement_set& statements;
        const protocol::lease_protocol& leases;
        const reaper_options& options;
        const std::stop_token& stop;
    };

    explicit reaper_round(const parts& of);
    virtual ~reaper_round() = default;
    reaper_round(const reaper_round&) = delete;
    reaper_round& operator=(const reaper_round&) = delete;

    reap_report run();

protected:
    using add_rows = std::function<void(const sql::result&)>;

    /// Frees the leases of ended sessions. Returns how many.
    virtual std::int64_t free_leases() = 0;
    /// Removes the queue entries of ended sessions. Returns how many.
    virtual std::int64_t remove_waiters() = 0;
    /// Deletes the leases that were idle for so long and whose tokens the settled floor covers.
    virtual std::int64_t delete_under_floor(std::int64_t retention_us) = 0;
    /// Deletes ended sessions, at most a batch of them. Returns how many there were.
    virtual std::int64_t delete_ended(std::span<const session_id> ids) = 0;
    /// Runs a statement that only reads over the whole table of leases, in pieces where it has
    /// such.
    virtual void read_all(const sql::statement& what, std::span<const sql::value> first,
                          const add_rows& add) = 0;

    /// Runs a statement with a deadline of its own.
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters);
    template <typename... Values>
    sql::result run_with(const sql::statement& what, const Values&... values) {
        return sql::run(db_, what, until(), values...);
    }
    /// Repeats a statement that changes at most a batch until it finds less.
    std::int64_t run_batches(const sql::statement& what);
    /// Runs `what` for each of these ids, in one transaction. Returns how many rows it changed.
    std::int64_t delete_one_by_one(const sql::statement& what, std::span<const session_id> ids);
    [[nodiscard]] sql::deadline until() const;
    [[nodiscard]] table_scan scan_by(const sql::statement& pieces) const;
    [[nodiscard]] bool is_last(const sql::result& batch) const;

    sql::connection& db_;
    const reaper_options& options_;
    const std::stop_token& stop_;

private:
    template <typename Action>
    void step(std::string_view doing, const Action& action);
    void apply_policies();
    void record_round();
    template <typename Look, typename Ask>
    void request_overdue(const std::string& past, const Look& look, const Ask& ask);
    void request_overdue_leases(const std::string& past, const std::string& last);
    void request_overdue_permits(const std::string& past, const std::string& last);
    void requested(const std::optional<protocol::requested_release>& asked);
    std::int64_t serve_waiters();
    std::int64_t serve(const std::string& name);
    void tend_semaphores();
    void tend(const protocol::neglected_semaphore& one);
    std::int64_t delete_sessions();
    std::vector<session_id> ended_sessions();
    std::unordered_set<session_id> ended_holders();
    void delete_idle_leases();
    void delete_old_rounds();
    std::int64_t count_pending(std::int64_t retention_us);
    std::int64_t delete_old_history();

    const protocol::lease_protocol& leases_;
    const std::unique_ptr<const protocol::queue_protocol> queue_;
    const std::unique_ptr<const protocol::semaphore_protocol> semaphores_;
    const protocol::barrier_protocol barriers_;
    const protocol::policy_protocol policies_;
    const std::string history_;  ///< the name of its table
    const sql::statement reap_sessions_, names_to_serve_, ended_sessions_, ended_holders_,
        publish_floor_, idle_leases_, raise_floor_, history_there_, old_history_, delete_history_,
        record_round_;
    reap_report report_;
};

[[nodiscard]] std::unique_ptr<reaper_round> make_reaper_round(const reaper_round::parts& of);
[[nodiscard]] std::unique_ptr<reaper_round> make_postgresql_round(const reaper_round::parts& of);
[[nodiscard]] std::unique_ptr<reaper_round> make_mysql_round(const reaper_round::parts& of);
[[nodiscard]] std::unique_ptr<reaper_round> make_sqlite_round(const reaper_round::parts& of);

/// Runs `action`. Returns an empty result if the row stays locked, on a deadlock, or where another
/// member of a cluster was faster.
template <typename Action>
auto unless_locked(const Action& action) -> decltype(action()) {
    try {
        return action();
    } catch (const error& failure) {
        if (failure.kind() != errc::timed_out && failure.kind() != errc::deadlock &&
            failure.kind() != errc::conflict) {
            throw;
        }
        return {};
    }
}

}  // namespace rowlock::detail

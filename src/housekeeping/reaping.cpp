#include "housekeeping/reaping.hpp"

#include "coordination/lease/lease_protocol.hpp"
#include "coordination/queue/queue_protocol.hpp"
#include "housekeeping/table_scan.hpp"
#include "sql/table_names.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

namespace rowlock::strategy {
namespace {

using sql::value;

std::int64_t in_microseconds(std::chrono::milliseconds time) {
    return std::chrono::microseconds{time}.count();
}

/// The deadline of one statement. The server gives up at its own deadline and reports that; without
/// an answer two seconds later the connection is useless. MySQL checks once a second for expired
/// waits.
std::chrono::milliseconds patience(const reaper_options& options) {
    return options.statement_timeout + std::chrono::seconds{2};
}

/// The statements of one round, each with its own deadline.
class round {
public:
    round(sql::connection& db, const lease_protocol& leases, const reaper_options& options,
          const std::stop_token& stop)
        : db_{db},
          sql_{leases.sql()},
          queue_{make_queue_protocol(sql_.all, leases)},
          options_{options},
          stop_{stop},
          walk_{db, sql_, {options.batch, patience(options)}, stop} {}

    reap_report run() {
        report_.sessions_ended = batches(sql_.reap_sessions, value{options_.batch});
        // Sessions are ended before their leases and tickets are read, in separate commits.
        if (!stop_.stop_requested()) report_.leases_handed_over = serve_waiters();
        if (!stop_.stop_requested()) report_.leases_freed = free_leases();
        if (!stop_.stop_requested()) report_.waiters_removed = remove_waiters();
        if (!stop_.stop_requested()) report_.sessions_deleted = delete_sessions();
        if (!stop_.stop_requested()) delete_idle_leases();
        if (!stop_.stop_requested()) report_.history_deleted = delete_old_history();
        return report_;
    }

private:
    template <typename... Values>
    sql::result execute(const sql::statement& what, const Values&... values) {
        const std::array<value, sizeof...(Values)> parameters{value{values}...};
        return db_.execute(what, parameters, until());
    }

    [[nodiscard]] sql::deadline until() const {
        return std::chrono::steady_clock::now() + patience(options_);
    }

    /// Repeats a bounded statement until it finds less than a batch.
    template <typename... Values>
    std::int64_t batches(const sql::statement& what, const Values&... values) {
        std::int64_t total = 0;
        for (;;) {
            const auto changed = execute(what, values...).affected();
            total += changed;
            if (changed < options_.batch || stop_.stop_requested()) return total;
        }
    }

    /// The token floor first rises over the rows and settles for the grace; only then are the rows
    /// deleted: see "Token" in docs/architecture.md.
    void delete_idle_leases() {
        const std::int64_t retention = in_microseconds(options_.retention);
        execute(sql_.publish_floor, in_microseconds(options_.grace));
        report_.leases_deleted = delete_under_floor(retention);
        if (stop_.stop_requested()) return;
        const auto greatest = count_pending(retention);
        if (report_.leases_pending > 0) execute(sql_.raise_floor, greatest);
    }

    std::int64_t delete_under_floor(std::int64_t retention) {
        if (!sql_.delete_leases) return delete_idle_by_key(retention);
        return walk(*sql_.delete_leases, value{retention});
    }

    /// Deletes a batch at a time. A reaper without the right to delete leaves it to another.
    std::int64_t delete_old_history() {
        const std::int64_t retention = in_microseconds(options_.history_retention);
        if (retention == 0) return 0;
        const std::string name =
            sql::qualify("rowlock_history", db_.speaks(), options_.schema, options_.prefix);
        if (execute(sql_.history_there, name).integer(0, 0) == 0) return 0;
        std::int64_t removed = 0;
        try {
            for (;;) {
                const auto old = execute(sql_.old_history, retention, options_.batch);
                if (old.integer(0, 0) == 0) return removed;
                removed += execute(sql_.delete_history, old.integer(0, 1)).affected();
                if (old.integer(0, 0) < options_.batch || stop_.stop_requested()) return removed;
            }
        } catch (const error& failure) {
            if (failure.kind() != errc::access_denied) throw;
            return removed;
        }
    }

    /// Counts the idle rows above the settled floor; returns their greatest token.
    std::int64_t count_pending(std::int64_t retention) {
        std::int64_t greatest = 0;
        const auto add = [&](const sql::result& idle) {
            report_.leases_pending += idle.integer(0, 0);
            greatest = std::max(greatest, idle.integer(0, 1));
        };
        read_all(sql_.idle_leases, add, retention);
        return greatest;
    }

    /// Runs a statement that only reads over all pieces of the table of leases, or over the whole
    /// table where it has no pieces.
    template <typename Add, typename... Values>
    void read_all(const sql::statement& what, const Add& add, const Values&... values) {
        if (sql_.lease_pages) {
            walk_.over_pages([&](const table_scan::pages& in) -> std::optional<table_scan::place> {
                add(execute(what, values..., in.page, in.past));
                return std::nullopt;
            });
        } else if (sql_.next_name) {
            walk_.over_names([&](const std::string& after, const value& upto) {
                add(execute(what, values..., after, upto));
            });
        } else {
            add(execute(what, values...));
        }
    }

    /// Runs a statement that writes over all pieces of the table of leases. Returns how many rows
    /// it changed.
    template <typename... Values>
    std::int64_t walk(const sql::statement& what, const Values&... values) {
        std::int64_t total = 0;
        if (sql_.lease_pages) {
            walk_.over_pages([&](const table_scan::pages& in) -> std::optional<table_scan::place> {
                const auto done =
                    execute(what, options_.batch, values..., in.page, in.row, in.past);
                total += done.integer(0, 0);
                if (done.is_null(0, 1)) return std::nullopt;
                return table_scan::place{done.integer(0, 1), done.integer(0, 2)};
            });
        } else {
            walk_.over_names([&](const std::string& after, const value& upto) {
                total += execute(what, values..., after, upto).affected();
            });
        }
        return total;
    }

    /// A client that ends a session or releases a lease serves the waiters itself. If it died
    /// before it could, the waiters' own polls find the lease free; this is for those that poll
    /// seldom.
    std::int64_t serve_waiters() {
        std::int64_t served = 0;
        std::string after;
        for (;;) {
            const auto found = execute(sql_.free_with_waiters, after, options_.batch);
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                after = found.text(row, 0);
                if (serve(after)) ++served;
            }
            if (is_last(found)) return served;
        }
    }

    bool serve(const std::string& name) {
        // If the row is locked, another round or a waiter does it.
        return unless_locked([&] {
            const auto next = queue_->grant_next(db_, name, until());
            if (next) queue_->tell_served(db_, *next, until());
            return next.has_value();
        });
    }

    /// Returns an empty result if the row stays locked, on a deadlock, or where another member of a
    /// cluster was faster.
    template <typename Action>
    static auto unless_locked(const Action& action) -> decltype(action()) {
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

    std::int64_t free_leases() {
        return sql_.reap_leases ? walk(*sql_.reap_leases) : free_orphans();
    }

    std::int64_t remove_waiters() {
        return sql_.reap_waiters ? batches(*sql_.reap_waiters, value{options_.batch})
                                 : delete_dead_waiters();
    }

    /// Reads the sessions first: nothing new names a session that was ended before the leases were
    /// read.
    std::int64_t delete_sessions() {
        auto ids = ended_sessions();
        if (ids.empty()) return 0;
        const auto holders = ended_holders();
        std::erase_if(ids, [&](std::int64_t id) { return holders.contains(id); });
        std::int64_t removed = 0;
        for (std::span<const std::int64_t> rest{ids}; !rest.empty() && !stop_.stop_requested();) {
            const auto count = std::min(rest.size(), static_cast<std::size_t>(options_.batch));
            removed += delete_ended(rest.first(count));
            rest = rest.subspan(count);
        }
        return removed;
    }

    std::vector<std::int64_t> ended_sessions() {
        constexpr std::size_t at_once = 10'000;  // rows per round trip; only reads
        std::vector<std::int64_t> ids;
        for (;;) {
            const std::int64_t after = ids.empty() ? 0 : ids.back();
            const auto found = execute(sql_.ended_sessions, after, at_once);
            for (std::size_t row = 0; row < found.rows(); ++row) {
                ids.push_back(found.integer(row, 0));
            }
            if (found.rows() < at_once || stop_.stop_requested()) return ids;
        }
    }

    /// The ended sessions that a lease names: its row was locked earlier in this round.
    std::unordered_set<std::int64_t> ended_holders() {
        std::unordered_set<std::int64_t> ids;
        const auto add = [&](const sql::result& found) {
            for (std::size_t row = 0; row < found.rows(); ++row) ids.insert(found.integer(row, 0));
        };
        read_all(sql_.ended_holders, add);
        return ids;
    }

    /// In one statement where the dialect has arrays, else one by one.
    std::int64_t delete_ended(std::span<const std::int64_t> ids) {
        if (sql_.delete_ended_sessions) {
            std::string list;
            for (const auto id : ids) list += (list.empty() ? "{" : ",") + std::to_string(id);
            return execute(*sql_.delete_ended_sessions, list + "}").affected();
        }
        std::int64_t removed = 0;
        transaction_scope transaction{db_, until()};
        for (const auto id : ids) removed += execute(*sql_.delete_ended_session, id).affected();
        transaction.commit(until());
        return removed;
    }

    // MySQL: candidates by a plain read, changes by primary key with compare-and-set. A DELETE or
    // UPDATE over several tables would lock sessions and stop their heartbeats.

    std::int64_t free_orphans() {
        std::int64_t freed = 0;
        std::string after;
        for (;;) {
            const auto found = execute(*sql_.orphans, after, options_.batch);
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                after = found.text(row, 0);
                freed += unless_locked([&] {
                    return execute(*sql_.free_orphan, after, found.integer(row, 1),
                                   found.integer(row, 2))
                        .affected();
                });
            }
            if (is_last(found)) return freed;
        }
    }

    std::int64_t delete_dead_waiters() {
        std::int64_t removed = 0;
        for (;;) {
            const auto found = execute(*sql_.dead_waiters, options_.batch);
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                removed += execute(*sql_.delete_waiter, found.integer(row, 0)).affected();
            }
            if (is_last(found)) return removed;
        }
    }

    std::int64_t delete_idle_by_key(std::int64_t retention) {
        std::int64_t removed = 0;
        std::string after;
        for (;;) {
            const auto found = execute(*sql_.deletable_leases, after, retention, options_.batch);
            if (found.empty()) return removed;
            // One commit a batch; rows in name order, so two reapers cannot wait in a cycle.
            transaction_scope transaction{db_, until()};
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                after = found.text(row, 0);
                removed +=
                    execute(*sql_.delete_lease, after, found.integer(row, 1), found.integer(row, 2))
                        .affected();
            }
            transaction.commit(until());
            if (is_last(found)) return removed;
        }
    }

    [[nodiscard]] bool is_last(const sql::result& batch) const {
        return batch.rows() < static_cast<std::size_t>(options_.batch) || stop_.stop_requested();
    }

    sql::connection& db_;
    const sql::statements& sql_;
    const std::unique_ptr<const queue_protocol> queue_;
    const reaper_options& options_;
    const std::stop_token& stop_;
    const table_scan walk_;
    reap_report report_;
};

}  // namespace

reap_report reap_round(sql::connection& db, const sql::statement_set& statements,
                       const reaper_options& options, const std::stop_token& stop) {
    const lease_protocol leases{sql::statements{statements}};
    return round{db, leases, options, stop}.run();
}

void validate(const reaper_options& options) {
    const auto require = [](bool holds, const char* message) {
        if (!holds) throw error{errc::invalid_options, message};
    };
    using namespace std::chrono_literals;
    require(options.interval > 0ms, "the reaper's interval must be positive");
    require(options.batch >= 1 && options.batch <= 100'000,
            "the reaper's batch must be from 1 to 100000 rows");
    require(options.statement_timeout > 0ms && options.statement_timeout <= 1min,
            "the reaper's statement deadline must be positive and at most one minute");
    require(options.retention >= 10 * options.statement_timeout,
            "the reaper's retention must be at least ten statement deadlines");
    require(options.history_retention >= 0ms, "the history's retention must not be negative");
    require(options.grace >= 2 * options.statement_timeout,
            "the reaper's grace must be at least two statement deadlines");
}

}  // namespace rowlock::strategy

namespace rowlock {

std::string to_string(const reap_report& report) {
    const auto count = [](std::int64_t number, const char* what) {
        return std::to_string(number) + " " + what;
    };
    return count(report.sessions_ended, "sessions ended, ") +
           count(report.leases_handed_over, "leases handed to waiters, ") +
           count(report.leases_freed, "leases freed, ") +
           count(report.waiters_removed, "waiters removed, ") +
           count(report.sessions_deleted, "sessions deleted, ") +
           count(report.leases_deleted, "idle leases deleted, ") +
           count(report.leases_pending, "idle leases pending") +
           (report.history_deleted == 0
                ? std::string{}
                : ", " + count(report.history_deleted, "records of the history deleted"));
}

reap_report reap(const sql::connection_source& source, const reaper_options& options) {
    strategy::validate(options);
    const sql::statement_set statements{source.speaks(),
                                        {.schema = options.schema, .prefix = options.prefix}};
    const strategy::lease_protocol protocol{sql::statements{statements}};
    const auto until = std::chrono::steady_clock::now() + options.statement_timeout;
    const auto db = source.connect(until);
    protocol.set_up(*db, options.statement_timeout, until);
    return strategy::reap_round(*db, statements, options);
}

}  // namespace rowlock

#include "base/require.hpp"
#include "lock/client/reap_round.hpp"
#include "lock/protocol/session/session_protocol.hpp"
#include "sql/out_of_reach.hpp"
#include "sql/transaction_scope.hpp"
#include "upkeep/reaper_round.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <ostream>

namespace rowlock::detail {
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

/// At once, which is what a request of no client means. The reason is for people.
constexpr protocol::release_terms held_too_long{.reason = "held longer than max_hold"};

}  // namespace

reaper_round::reaper_round(const parts& of)
    : db_{of.db},
      options_{of.options},
      stop_{of.stop},
      leases_{of.leases},
      queue_{protocol::make_queue_protocol(of.statements, of.leases)},
      semaphores_{protocol::make_semaphore_protocol(of.statements)},
      barriers_{of.statements},
      policies_{of.statements},
      history_{of.statements.qualified("rowlock_history")},
      reap_sessions_{of.statements("reap_sessions")},
      names_to_serve_{of.statements("names_to_serve")},
      ended_sessions_{of.statements("ended_sessions")},
      ended_holders_{of.statements("ended_holders")},
      publish_floor_{of.statements("publish_floor")},
      idle_leases_{of.statements("idle_leases")},
      raise_floor_{of.statements("raise_floor")},
      history_there_{of.statements("history_there")},
      old_history_{of.statements("old_history")},
      delete_history_{of.statements("delete_history")},
      record_round_{of.statements("record_round")} {}

template <typename Action>
void reaper_round::step(std::string_view doing, const Action& action) {
    if (stop_.stop_requested()) return;
    if (options_.on_step) options_.on_step(doing);
    action();
}

reap_report reaper_round::run() {
    step("ending expired sessions", [&] { report_.sessions_ended = run_batches(reap_sessions_); });
    // Before what may take minutes on large tables.
    step("asking for what is held longer than max_hold",
         [&] { sql::unless_out_of_reach([&] { apply_policies(); }); });
    // Sessions are ended before their leases and tickets are read, in separate commits.
    step("returning permits", [&] { sql::unless_out_of_reach([&] { tend_semaphores(); }); });
    step("handing free locks to waiters", [&] { report_.leases_handed_over = serve_waiters(); });
    step("freeing leases", [&] { report_.leases_freed = free_leases(); });
    step("removing queue entries", [&] { report_.waiters_removed = remove_waiters(); });
    step("deleting ended sessions", [&] { report_.sessions_deleted = delete_sessions(); });
    step("deleting idle leases", [&] { delete_idle_leases(); });
    step("deleting old generations of latches and barriers",
         [&] { sql::unless_out_of_reach([&] { delete_old_rounds(); }); });
    step("deleting old history", [&] { report_.history_deleted = delete_old_history(); });
    if (!stop_.stop_requested()) sql::unless_out_of_reach([&] { record_round(); });
    return report_;
}

/// For people. Another reaper that has the row locked records a round, too.
void reaper_round::record_round() {
    unless_locked([&] { return run_with(record_round_).affected(); });
}

std::int64_t reaper_round::delete_one_by_one(const sql::statement& what,
                                             std::span<const session_id> ids) {
    std::int64_t removed = 0;
    sql::transaction_scope transaction{db_, until()};
    for (const auto id : ids) removed += run_with(what, id).affected();
    transaction.commit(until());
    return removed;
}

sql::result reaper_round::execute(const sql::statement& what, std::span<const value> parameters) {
    return db_.execute(what, parameters, until());
}

std::int64_t reaper_round::run_batches(const sql::statement& what) {
    std::int64_t total = 0;
    for (;;) {
        const auto changed = run_with(what, options_.batch).affected();
        total += changed;
        if (changed < options_.batch || stop_.stop_requested()) return total;
    }
}

sql::deadline reaper_round::until() const {
    return std::chrono::steady_clock::now() + patience(options_);
}

table_scan reaper_round::scan_by(const sql::statement& pieces) const {
    return {db_, pieces, {options_.batch, patience(options_)}, stop_};
}

bool reaper_round::is_last(const sql::result& batch) const {
    return batch.rows() < static_cast<std::size_t>(options_.batch) || stop_.stop_requested();
}

/// A page of policies at a time: no statement grows with their number.
void reaper_round::apply_policies() {
    std::string after;
    for (;;) {
        const auto last = policies_.last_of_page(db_, after, options_.batch, until());
        if (!last || stop_.stop_requested()) return;
        request_overdue_leases(after, *last);
        sql::unless_out_of_reach([&] { request_overdue_permits(after, *last); });
        after = *last;
    }
}

/// Asks for what `look` finds, a batch at a time. What was read long ago, because rows were locked
/// meanwhile, is read again: a policy may have been removed since.
template <typename Look, typename Ask>
void reaper_round::request_overdue(const std::string& past, const Look& look, const Ask& ask) {
    constexpr std::chrono::seconds fresh{1};
    auto after = protocol::overdue_hold::past(past);
    for (;;) {
        const auto found = look(after);
        const auto read_at = std::chrono::steady_clock::now();
        std::size_t asked = 0;
        while (asked < found.size() && std::chrono::steady_clock::now() - read_at < fresh) {
            if (stop_.stop_requested()) return;
            after = found[asked++];
            // If the row is locked, the next round asks.
            requested(unless_locked([&] { return ask(after); }));
        }
        if (asked == found.size() && asked < static_cast<std::size_t>(options_.batch)) return;
    }
}

void reaper_round::requested(const std::optional<protocol::requested_release>& asked) {
    if (!asked) return;
    ++report_.releases_requested;
    queue_->notify_session(db_, asked->session, until());
}

/// A request names the grant that was found: one that has ended, or became another, is not asked
/// for. If the reaper dies in between, the next round finds what it has not asked for.
void reaper_round::request_overdue_leases(const std::string& past, const std::string& last) {
    request_overdue(
        past,
        [&](const protocol::overdue_hold& after) {
            return policies_.overdue_leases(db_, after, last, options_.batch, until());
        },
        [&](const protocol::overdue_hold& hold) {
            return leases_.request_release(db_, hold.name, hold.token, held_too_long, until());
        });
}

void reaper_round::request_overdue_permits(const std::string& past, const std::string& last) {
    request_overdue(
        past,
        [&](const protocol::overdue_hold& after) {
            return policies_.overdue_permits(db_, after, last, options_.batch, until());
        },
        [&](const protocol::overdue_hold& hold) {
            return semaphores_->request_release(db_, hold.name, hold.token, held_too_long, until());
        });
}

/// A client that ends a session or releases a lease serves the waiters itself. If it died before it
/// could, the waiters' own polls find the lease free; this is for those that poll seldom.
std::int64_t reaper_round::serve_waiters() {
    std::int64_t served = 0;
    std::string after;
    for (;;) {
        const auto found = run_with(names_to_serve_, after, options_.batch);
        for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
            after = found.text(row, 0);
            served += serve(after);
        }
        if (is_last(found)) return served;
    }
}

std::int64_t reaper_round::serve(const std::string& name) {
    std::int64_t granted = 0;
    // If the row is locked, another round or a waiter does it.
    static_cast<void>(unless_locked([&] {
        for (bool more = true; more;) {
            const auto served = queue_->serve(db_, name, protocol::queue_head::sole, until());
            more = served.more;
            for (const auto& next : served.waiters) {
                if (next.granted()) ++granted;
                queue_->notify_grantee(db_, next, until());
            }
        }
        return true;
    }));
    return granted;
}

/// Holds of dead clients end, although no client polls for them; serve_waiters() follows. A
/// counter that is not the sum of its holds was changed by hand, or shows a defect: it is put
/// right, and reported.
void reaper_round::tend_semaphores() {
    std::string after;
    for (;;) {
        const auto found = semaphores_->neglected(db_, after, options_.batch, until());
        for (const auto& each : found) {
            if (stop_.stop_requested()) return;
            after = each.name;
            tend(each);
        }
        if (found.size() < static_cast<std::size_t>(options_.batch)) return;
    }
}

void reaper_round::tend(const protocol::neglected_semaphore& one) {
    // If a row is locked, another round or a waiter does it.
    static_cast<void>(unless_locked([&] {
        if (one.difference != 0 && semaphores_->correct(db_, one.name, until())) {
            ++report_.counters_corrected;
        }
        report_.permits_returned += semaphores_->sweep(db_, one.name, until());
        return true;
    }));
}

/// Reads the sessions first: nothing new names a session that was ended before the leases were
/// read.
std::int64_t reaper_round::delete_sessions() {
    auto ids = ended_sessions();
    if (ids.empty()) return 0;
    const auto holders = ended_holders();
    std::erase_if(ids, [&](session_id id) { return holders.contains(id); });
    std::int64_t removed = 0;
    for (std::span<const session_id> rest{ids}; !rest.empty() && !stop_.stop_requested();) {
        const auto count = std::min(rest.size(), static_cast<std::size_t>(options_.batch));
        removed += delete_ended(rest.first(count));
        rest = rest.subspan(count);
    }
    return removed;
}

std::vector<session_id> reaper_round::ended_sessions() {
    constexpr std::size_t at_once = 10'000;  // rows per round trip; only reads
    std::vector<session_id> ids;
    for (;;) {
        const auto after = ids.empty() ? session_id{} : ids.back();
        const auto found = run_with(ended_sessions_, after, at_once);
        for (std::size_t row = 0; row < found.rows(); ++row)
            ids.push_back(found.integer<session_id>(row, 0));
        if (found.rows() < at_once || stop_.stop_requested()) return ids;
    }
}

/// The ended sessions that a lease names: its row was locked earlier in this round.
std::unordered_set<session_id> reaper_round::ended_holders() {
    std::unordered_set<session_id> ids;
    read_all(ended_holders_, {}, [&](const sql::result& found) {
        for (std::size_t row = 0; row < found.rows(); ++row)
            ids.insert(found.integer<session_id>(row, 0));
    });
    return ids;
}

/// The token floor first rises over the rows and settles for the grace; only then are the rows
/// deleted: see "Token" in docs/architecture.md.
void reaper_round::delete_idle_leases() {
    const std::int64_t retention = in_microseconds(options_.retention);
    run_with(publish_floor_, in_microseconds(options_.grace));
    report_.leases_deleted = delete_under_floor(retention);
    if (stop_.stop_requested()) return;
    const auto greatest = count_pending(retention);
    if (greatest > 0) run_with(raise_floor_, greatest);
}

/// Of latches and double barriers that ended long ago.
void reaper_round::delete_old_rounds() {
    const std::chrono::microseconds retention = options_.retention;
    protocol::party_id after;
    for (;;) {
        const auto old = barriers_.old_rounds(db_, after, options_.batch, retention, until());
        for (const auto& each : old) {
            if (stop_.stop_requested()) return;
            const auto deleted =
                unless_locked([&] { return barriers_.retire(db_, each, retention, until()); });
            if (deleted) ++report_.rounds_deleted;
        }
        if (old.size() < static_cast<std::size_t>(options_.batch)) return;
        after = old.back();
    }
}

/// Counts the idle rows above the settled floor; returns their greatest token.
std::int64_t reaper_round::count_pending(std::int64_t retention_us) {
    std::int64_t greatest = 0;
    const std::array first{value{retention_us}};
    read_all(idle_leases_, first, [&](const sql::result& idle) {
        report_.leases_pending += idle.integer(0, 0);
        greatest = std::max(greatest, idle.integer(0, 1));
    });
    return greatest;
}

/// Deletes a batch at a time. A reaper without the right to delete leaves it to another.
std::int64_t reaper_round::delete_old_history() {
    const std::int64_t retention = in_microseconds(options_.history_retention);
    if (retention == 0 || run_with(history_there_, history_).integer(0, 0) == 0) return 0;
    std::int64_t removed = 0;
    try {
        for (;;) {
            const auto old = run_with(old_history_, retention, options_.batch);
            if (old.integer(0, 0) == 0) return removed;
            removed += run_with(delete_history_, old.integer(0, 1)).affected();
            if (old.integer(0, 0) < options_.batch || stop_.stop_requested()) return removed;
        }
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
        return removed;
    }
}

std::unique_ptr<reaper_round> make_reaper_round(const reaper_round::parts& of) {
    switch (of.statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_round(of);
        case sql::dialect::mysql:
            return make_mysql_round(of);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_round(of);
}

reap_report reap_round(sql::connection& db, const sql::statement_set& statements,
                       const reaper_options& options, const std::stop_token& stop) {
    const auto leases = protocol::make_lease_protocol(statements);
    return make_reaper_round({db, statements, *leases, options, stop})->run();
}

void validate(const reaper_options& options) {
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
    // Longer times cannot be added to a clock.
    constexpr auto longest = 24h * 3660;
    require(options.interval <= longest && options.retention <= longest &&
                options.grace <= longest && options.history_retention <= longest,
            "the reaper's interval, retention, grace and history_retention must be at most 3660 "
            "days (a history_retention of 0 keeps all records)");
}

}  // namespace rowlock::detail

namespace rowlock {

std::string to_string(const reap_report& report) {
    const auto count = [](std::int64_t number, const char* what) {
        return std::to_string(number) + " " + what;
    };
    const auto some = [&](std::int64_t number, const char* what) {
        return number == 0 ? std::string{} : ", " + count(number, what);
    };
    return count(report.sessions_ended, "sessions ended, ") +
           count(report.leases_handed_over, "leases handed to waiters, ") +
           count(report.leases_freed, "leases freed, ") +
           count(report.waiters_removed, "waiters removed, ") +
           count(report.sessions_deleted, "sessions deleted, ") +
           count(report.leases_deleted, "idle leases deleted, ") +
           count(report.leases_pending, "idle leases pending") +
           some(report.releases_requested, "releases requested after max_hold") +
           some(report.permits_returned, "permits returned") +
           some(report.counters_corrected, "semaphores' counters corrected") +
           some(report.rounds_deleted, "generations of latches and barriers deleted") +
           some(report.history_deleted, "records of the history deleted");
}

std::ostream& operator<<(std::ostream& out, const reap_report& report) {
    return out << to_string(report);
}

reap_report reap(const sql::connection_source& source, const reaper_options& options) {
    detail::validate(options);
    const sql::statement_set statements{source.speaks(), {.tables = source.tables()}};
    const auto sessions = protocol::make_session_protocol(statements);
    const auto until = std::chrono::steady_clock::now() + options.statement_timeout;
    const auto db = source.connect(until);
    sessions->set_up(*db, options.statement_timeout, until);
    return detail::reap_round(*db, statements, options);
}

}  // namespace rowlock

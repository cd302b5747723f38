#include "metrics/database_totals.hpp"

#include "metrics/text.hpp"
#include "sql/damaged.hpp"
#include "sql/database_traits.hpp"
#include <rowlock/error.hpp>

#include <algorithm>

namespace rowlock::metrics {
namespace {

using std::chrono::microseconds;

/// As the statements number them.
kind_totals& totals_of(database_totals& all, std::int64_t kind) {
    if (kind < 0) return all.leases;
    return kind == 0 ? all.semaphores : all.shared_mutexes;
}

void read_leases(database_totals& into, sql::connection& db, const sql::statement_set& statements,
                 sql::deadline until) {
    const auto row = db.execute(statements("lease_totals"), {}, until);
    into.leases.names = sql::shown_integer(row, 0, 0);
    into.leases.held = sql::shown_integer(row, 0, 1);
    into.leases.expired = sql::shown_integer(row, 0, 2);
}

void read_permits(database_totals& into, sql::connection& db, const sql::statement_set& statements,
                  sql::deadline until) {
    const auto rows = db.execute(statements("permit_totals"), {}, until);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        auto& kind = totals_of(into, sql::shown_integer(rows, row, 0));
        kind.held = sql::shown_integer(rows, row, 1);
        kind.expired = sql::shown_integer(rows, row, 2);
        kind.names = sql::shown_integer(rows, row, 3);
        into.permits += sql::shown_integer(rows, row, 4);
        into.permits_used += sql::shown_integer(rows, row, 5);
    }
}

void read_sessions(database_totals& into, sql::connection& db, const sql::statement_set& statements,
                   sql::deadline until) {
    const auto row = db.execute(statements("session_totals"), {}, until);
    into.live_sessions = sql::shown_integer(row, 0, 0);
    into.expired_sessions = sql::shown_integer(row, 0, 1);
    into.ended_sessions = sql::shown_integer(row, 0, 2);
    into.oldest_expired_session =
        microseconds{std::max<std::int64_t>(sql::shown_integer(row, 0, 3), 0)};
}

void read_reaper(database_totals& into, sql::connection& db, const sql::statement_set& statements,
                 sql::deadline until) {
    const auto row = db.execute(statements("reaper_age"), {}, until);
    if (row.empty()) return;  // the doctor reports a floor that is missing
    if (const auto age = row.maybe_integer(0, 0)) {
        into.reaper_age = microseconds{std::max<std::int64_t>(*age, 0)};
    }
}

/// A share is written as seconds are.
nanoseconds as_share(std::int64_t millionths) {
    return microseconds{millionths};
}

std::uint64_t as_value(std::int64_t number) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0));
}

nanoseconds as_value(microseconds time) {
    return time;
}

}  // namespace

notification_totals read_notifications(sql::connection& db, const sql::statement_set& statements,
                                       sql::deadline until) {
    const auto row = db.execute(statements("notification_totals"), {}, until);
    notification_totals all{.millionths = row.integer(0, 0)};
    if (!row.is_null(0, 1)) {
        all.oldest = {.process = row.integer(0, 1),
                      .database = std::string{row.text(0, 2)},
                      .role = std::string{row.text(0, 3)},
                      .age = microseconds{std::max<std::int64_t>(row.integer(0, 4), 0)}};
    }
    return all;
}

void read_queues(database_totals& into, sql::connection& db, const sql::statement_set& statements,
                 sql::deadline until) {
    const auto rows = db.execute(statements("queue_totals"), {}, until);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        auto& kind = totals_of(into, sql::shown_integer(rows, row, 0));
        kind.waiting = sql::shown_integer(rows, row, 1);
        kind.dead_entries = sql::shown_integer(rows, row, 2);
        kind.oldest_wait =
            microseconds{std::max<std::int64_t>(sql::shown_integer(rows, row, 3), 0)};
    }
}

database_totals read_totals(sql::connection& db, const sql::statement_set& statements,
                            sql::deadline until) {
    database_totals all;
    read_sessions(all, db, statements, until);
    read_leases(all, db, statements, until);
    read_permits(all, db, statements, until);
    read_queues(all, db, statements, until);
    read_reaper(all, db, statements, until);
    if (sql::traits_of(db.speaks()).notifies) {
        try {
            all.notifications = read_notifications(db, statements, until);
        } catch (const error& failure) {
            if (failure.kind() != errc::access_denied) throw;
        }
    }
    return all;
}

std::string to_text(const database_totals& all) {
    text out;
    const auto by_kind = [&](const metric& what, auto member) {
        out.begin(what);
        out.sample({{"kind", "lease"}}, as_value(all.leases.*member));
        out.sample({{"kind", "semaphore"}}, as_value(all.semaphores.*member));
        out.sample({{"kind", "shared_mutex"}}, as_value(all.shared_mutexes.*member));
    };
    by_kind(database_held, &kind_totals::held);
    by_kind(database_expired, &kind_totals::expired);
    by_kind(database_waiting, &kind_totals::waiting);
    by_kind(database_dead_entries, &kind_totals::dead_entries);
    by_kind(database_oldest_wait, &kind_totals::oldest_wait);
    by_kind(database_names, &kind_totals::names);
    out.begin(database_permits);
    out.sample({}, as_value(all.permits));
    out.begin(database_permits_used);
    out.sample({}, as_value(all.permits_used));
    out.begin(database_sessions);
    out.sample({{"state", "live"}}, as_value(all.live_sessions));
    out.sample({{"state", "expired"}}, as_value(all.expired_sessions));
    out.sample({{"state", "ended"}}, as_value(all.ended_sessions));
    out.begin(database_oldest_expired);
    out.sample({}, as_value(all.oldest_expired_session));
    if (all.reaper_age) {
        out.begin(database_reaper_age);
        out.sample({}, as_value(*all.reaper_age));
    }
    if (all.notifications) {
        out.begin(database_notification_queue);
        out.sample({}, as_share(all.notifications->millionths));
        if (const auto& oldest = all.notifications->oldest) {
            out.begin(database_oldest_transaction);
            out.sample({{"database", oldest->database}, {"role", oldest->role}},
                       as_value(oldest->age));
        }
    }
    return out.str();
}

}  // namespace rowlock::metrics

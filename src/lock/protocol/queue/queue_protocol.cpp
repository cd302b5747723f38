#include "lock/protocol/queue/queue_protocol.hpp"

#include "lock/protocol/queue/queue_dialects.hpp"
#include "lock/protocol/queue/wait_graph.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

namespace rowlock::protocol {
namespace {

using std::chrono::microseconds;

bool post(const wakeup::wake_address& to, std::string_view message) noexcept {
    return wakeup::mailbox_sender{to.number, to.mailbox}.post(message);
}

}  // namespace

queue_entries read_entries(const sql::result& rows) {
    queue_entries found{rows.integer(0, 0) != 0, {}};
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.is_null(row, 1)) continue;
        found.waiting.push_back(
            {.name = std::string{rows.text(row, 1)},
             .grant_id = rows.integer<grant_id>(row, 2),
             .ticket = rows.integer<ticket_no>(row, 3),
             .position = rows.integer(row, 4),
             .servable = rows.integer(row, 5) != 0,
             .holder_session = rows.maybe_integer<session_id>(row, 6).value_or(session_id{}),
             .holder_expired = rows.integer(row, 7) != 0,
             .remaining = microseconds{rows.integer(row, 8)},
             .behind_watermark = rows.integer(row, 9) != 0,
             .behind_several = rows.integer(row, 10) > 1,
             .counted = rows.integer(row, 11) != 0,
             .part = rows.integer(row, 12) != 0,
             .semaphore = rows.integer(row, 13) != 0});
    }
    return found;
}

std::vector<served_row> read_held(const sql::result& rows) {
    std::vector<served_row> found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.push_back({rows.integer<grant_id>(row, 0), {rows.integer(row, 1), std::nullopt}});
    }
    return found;
}

wakeup::wake_address read_address(const sql::result& rows, std::size_t row, std::size_t column) {
    return {.number = rows.integer(row, column),
            .secret = std::string{rows.text(row, column + 1)},
            .mailbox = rows.maybe_integer(row, column + 2)};
}

void check_time(sql::deadline until) {
    if (std::chrono::steady_clock::now() < until) return;
    throw error{errc::timed_out,
                "the lease could not be handed over before the deadline: others were faster again "
                "and again"};
}

queue_protocol::queue_protocol(const queue_parts& of)
    : leases_{of.leases},
      by_datagram_{of.by_datagram},
      held_leases_{of.statements("held_leases")},
      enqueue_{of.statements("enqueue")},
      enqueue_upgrade_{of.statements("enqueue_upgrade")},
      entries_{of.statements("entries")},
      served_{of.statements("served")},
      names_with_waiters_{of.statements("names_with_waiters")},
      queues_of_session_{of.statements("queues_of_session")},
      deadlocks_{of.statements("deadlocks")},
      restore_lease_{of.statements("restore_lease")},
      clear_sole_{of.statements("clear_sole")} {}

std::optional<lease_glance> queue_protocol::enqueue(sql::connection& db,
                                                    const grant_request& request,
                                                    sql::deadline until) const {
    const auto& wanted = request.permits;
    std::optional<std::int64_t> weight;
    if (wanted.count < 0) throw error{errc::invalid_options, "ask for one permit or more"};
    if (wanted.count > 0) weight = wanted.count;
    const auto send = [&](const sql::statement& how, const auto&... further) {
        return run(db, how, until, request.name, request.session, request.grant_id,
                   sql::text_or_null(request.thread), sql::text_or_null(request.note),
                   request.deadline_us, sql::text_or_null(request.blocks), request.priority,
                   request.limit_us, weight, further...);
    };
    try {
        const auto row = wanted.is_upgrade() ? send(enqueue_upgrade_, wanted.upgrades,
                                                    upgrade_ticket(request.grant_id))
                                             : send(enqueue_);
        if (row.empty() || weight) return std::nullopt;
        return read_glance(row);
    } catch (const error& failure) {
        // A repetition. A statement without a conflict clause reports it as an error.
        if (failure.kind() != errc::unique_violation) throw;
        return std::nullopt;
    }
}

queue_entries queue_protocol::entries_of(sql::connection& db, session_id session,
                                         sql::deadline until) const {
    return read_entries(run(db, entries_, until, session));
}

std::optional<queue_grant> queue_protocol::served(sql::connection& db, std::string_view name,
                                                  session_id session, grant_id grant_id,
                                                  sql::deadline until,
                                                  std::optional<std::int64_t> /*reported*/) const {
    return read_served(db, name, session, grant_id, until);
}

std::vector<std::optional<queue_grant>> queue_protocol::served(
    sql::connection& db, session_id session, std::span<const granted_name> entries,
    sql::deadline until) const {
    std::vector<std::optional<queue_grant>> all;
    for (const auto& each : entries) {
        all.push_back(read_served(db, each.name, session, each.grant_id, until));
    }
    return all;
}

std::optional<queue_grant> queue_protocol::read_served(sql::connection& db, std::string_view name,
                                                       session_id session, grant_id grant_id,
                                                       sql::deadline until) const {
    const auto row = run(db, served_, until, name, session, grant_id);
    if (row.empty()) return std::nullopt;
    return queue_grant{row.integer(0, 0), row.maybe_integer(0, 1)};
}

std::vector<served_row> queue_protocol::served_of(sql::connection& /*db*/, session_id /*session*/,
                                                  std::span<const std::string> /*names*/,
                                                  sql::deadline /*until*/) const {
    throw error{errc::unsupported, "only MySQL is asked what a session was woken for"};
}

std::vector<std::string> queue_protocol::names_with_waiters(sql::connection& db,
                                                            std::span<const std::string> names,
                                                            sql::deadline until) const {
    return distinct_names(db, names_with_waiters_, alone, names, until);
}

std::vector<queue_of_session> queue_protocol::queues_of_session(sql::connection& db,
                                                                session_id session,
                                                                sql::deadline until) const {
    const auto rows = run(db, queues_of_session_, until, session);
    std::vector<queue_of_session> queues;
    queues.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        queues.push_back({std::string{rows.text(row, 0)}, rows.integer(row, 1) != 0});
    }
    return queues;
}

void queue_protocol::clear_sole(sql::connection& db, std::string_view name, std::int64_t token,
                                session_id session, sql::deadline until) const {
    run(db, clear_sole_, until, name, token, session);
}

std::vector<deadlock_found> queue_protocol::deadlocks(sql::connection& db, session_id session,
                                                      sql::deadline until) const {
    return wait_graph{run(db, deadlocks_, until, session)}.cycles(session);
}

void queue_protocol::notify_grantee(sql::connection& db, const handed_over& next,
                                    sql::deadline until) const noexcept {
    if (next.woken) return;
    try {
        const auto message =
            wakeup::encode_wakeup({next.grant_id, next.token, next.asynchronous}, next.to.secret);
        if (by_datagram_ && post(next.to, message)) return;
        wake(db, next, message, until);
    } catch (...) {
        // The connection broke, or there is no memory. The grant is committed.
    }
}

void queue_protocol::notify_session(sql::connection& db, session_id session,
                                    sql::deadline until) const noexcept {
    try {
        const auto change = leases_.sessions().change_of(db, session, until);
        if (!change) return;
        const auto message = wakeup::encode_look(change->revision, change->to.secret);
        if (by_datagram_ && post(change->to, message)) return;
        notify(db, change->to, message, until);
    } catch (...) {
        // The connection broke, the secret may not be read, or there is no memory. The change is
        // committed.
    }
}

void queue_protocol::restore_lease(sql::connection& db, std::string_view name,
                                   sql::deadline until) const {
    restore_row(db, restore_lease_, name, until);
}

std::unique_ptr<const queue_protocol> make_queue_protocol(const sql::statement_set& statements,
                                                          const lease_protocol& leases,
                                                          bool by_datagram) {
    const queue_parts parts{statements, leases, by_datagram};
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_queue(parts);
        case sql::dialect::mysql:
            return make_mysql_queue(parts);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_queue(parts);
}

bool is_near(const wakeup::wake_address& session) noexcept {
    return wakeup::mailbox_sender{session.number, session.mailbox}.reachable();
}

}  // namespace rowlock::protocol

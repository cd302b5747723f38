#include "base/ablation.hpp"
#include "lock/protocol/queue/queue_dialects.hpp"
#include "lock/protocol/queue/wait_graph.hpp"
#include "lock/wakeup/mailbox.hpp"
#include "lock/wakeup/mysql_wait.hpp"
#include "sql/run_all.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <utility>

namespace rowlock::protocol {
namespace {

using base::fast_path;
using sql::value;
using std::chrono::microseconds;

/// The first entry of a lock that it could be granted is one of a request for several.
handed_over told(const next_waiter& first) {
    return {.session = first.session, .grant_id = first.grant_id, .token = 0, .to = first.to};
}

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

common_queue_protocol::common_queue_protocol(const queue_parts& of)
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

std::optional<lease_glance> common_queue_protocol::enqueue(sql::connection& db,
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

queue_entries common_queue_protocol::entries_of(sql::connection& db, session_id session,
                                                sql::deadline until) const {
    return read_entries(run(db, entries_, until, session));
}

std::optional<queue_grant> common_queue_protocol::served(
    sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
    sql::deadline until, std::optional<std::int64_t> /*reported*/) const {
    return read_served(db, name, session, grant_id, until);
}

std::vector<std::optional<queue_grant>> common_queue_protocol::served(
    sql::connection& db, session_id session, std::span<const granted_name> entries,
    sql::deadline until) const {
    std::vector<std::optional<queue_grant>> all;
    for (const auto& each : entries) {
        all.push_back(read_served(db, each.name, session, each.grant_id, until));
    }
    return all;
}

std::optional<queue_grant> common_queue_protocol::read_served(sql::connection& db,
                                                              std::string_view name,
                                                              session_id session, grant_id grant_id,
                                                              sql::deadline until) const {
    const auto row = run(db, served_, until, name, session, grant_id);
    if (row.empty()) return std::nullopt;
    return queue_grant{row.integer(0, 0), row.maybe_integer(0, 1)};
}

std::vector<served_row> common_queue_protocol::served_of(sql::connection& /*db*/,
                                                         session_id /*session*/,
                                                         std::span<const std::string> /*names*/,
                                                         sql::deadline /*until*/) const {
    throw error{errc::unsupported, "only MySQL is asked what a session was woken for"};
}

std::vector<std::string> common_queue_protocol::names_with_waiters(
    sql::connection& db, std::span<const std::string> names, sql::deadline until) const {
    return distinct_names(db, names_with_waiters_, alone, names, until);
}

std::vector<queue_of_session> common_queue_protocol::queues_of_session(sql::connection& db,
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

void common_queue_protocol::clear_sole(sql::connection& db, std::string_view name,
                                       std::int64_t token, session_id session,
                                       sql::deadline until) const {
    run(db, clear_sole_, until, name, token, session);
}

std::vector<deadlock_found> common_queue_protocol::deadlocks(sql::connection& db,
                                                             session_id session,
                                                             sql::deadline until) const {
    return wait_graph{run(db, deadlocks_, until, session)}.cycles(session);
}

void common_queue_protocol::notify_grantee(sql::connection& db, const handed_over& next,
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

void common_queue_protocol::notify_session(sql::connection& db, session_id session,
                                           sql::deadline until) const noexcept {
    try {
        const auto change = leases_.change_of(db, session, until);
        if (!change) return;
        const auto message = wakeup::encode_look(change->revision, change->to.secret);
        if (by_datagram_ && post(change->to, message)) return;
        notify(db, change->to, message, until);
    } catch (...) {
        // The connection broke, the secret may not be read, or there is no memory. The change is
        // committed.
    }
}

void common_queue_protocol::recall(sql::connection& db, session_id session, grant_id grant_id,
                                   sql::deadline until) const noexcept {
    try {
        const auto holder = leases_.change_of(db, session, until);
        if (!holder) return;
        const auto message = wakeup::encode_recall(grant_id, holder->to.secret);
        if (by_datagram_ && post(holder->to, message)) return;
        notify(db, holder->to, message, until);
    } catch (...) {
        // As above: the session gives the lease back in a while.
    }
}

void common_queue_protocol::restore_lease(sql::connection& db, std::string_view name,
                                          sql::deadline until) const {
    restore_row(db, restore_lease_, name, until);
}

two_step_queue_protocol::two_step_queue_protocol(const queue_parts& of)
    : common_queue_protocol{of},
      delete_served_{of.statements("delete_served_ticket")},
      next_waiter_{of.statements("next_waiter")},
      take_{of.statements("take")},
      use_{of.statements("use_permits")},
      insert_hold_{of.statements("insert_permit")},
      upgrade_{of.statements("upgrade_lock")} {}

two_step_queue_protocol::queue_look::queue_look(sql::result row) : row_{std::move(row)} {
    if (row_.empty()) throw no_token_floor();
}

next_waiter two_step_queue_protocol::queue_look::next() const {
    return {.ticket = row_.integer<ticket_no>(0, 6),
            .session = row_.integer<session_id>(0, 7),
            .grant_id = row_.integer<grant_id>(0, 8),
            .thread = std::string{row_.text(0, 9)},
            .note = std::string{row_.text(0, 10)},
            .deadline_us = row_.maybe_integer(0, 11),
            .to = read_address(row_, 0, 12),
            .seen = row_.integer(0, 2),
            .token = row_.integer(0, 0)};
}

queue_entries two_step_queue_protocol::entries_at(sql::connection& db, session_id session,
                                                  std::span<const grant_id> /*grant_ids*/,
                                                  sql::deadline until) const {
    return entries_of(db, session, until);
}

/// Scans begin at the first ticket of the queue: there is no watermark.
void two_step_queue_protocol::reset_watermark(sql::connection& /*db*/, std::string_view /*name*/,
                                              ticket_no /*ticket*/, sql::deadline /*until*/) const {
}

std::vector<served_row> two_step_queue_protocol::held_of(sql::connection& db, session_id session,
                                                         std::span<const std::string> names,
                                                         sql::deadline until) const {
    std::vector<served_row> found;
    sql::for_each_list(db, held_leases_, std::array{value{session}}, names, until,
                       [&](const sql::result& rows) {
                           const auto part = read_held(rows);
                           found.insert(found.end(), part.begin(), part.end());
                       });
    return found;
}

/// The look tells what the first waiter wants: no guess is needed.
served_waiters two_step_queue_protocol::serve(sql::connection& db, std::string_view name,
                                              queue_head /*expected*/, sql::deadline until) const {
    constexpr std::size_t at_once = 16;
    served_waiters done;
    try {
        for (; serve_first(db, name, done.waiters, until); check_time(until)) {
            if (done.waiters.size() < at_once) continue;
            done.more = true;
            break;
        }
    } catch (const error&) {
        if (done.waiters.empty()) throw;
        done.more = true;
    }
    return done;
}

/// If a grant changes nothing, the waiter has gone, or another client was faster: the queue is read
/// again, so that no waiter is passed over.
bool two_step_queue_protocol::serve_first(sql::connection& db, std::string_view name,
                                          std::vector<handed_over>& served,
                                          sql::deadline until) const {
    const auto seen = look_at(db, name, until);
    if (!seen.waited() || !seen.holder_gone()) return false;
    if (!seen.present()) {
        restore_lease(db, name, until);
        return true;
    }
    const bool part = seen.waited_for_part();
    if (part ? seen.weight() > seen.room() : !seen.free()) return false;
    served.reserve(served.size() + 1);  // so that a grant is not forgotten
    if (part && seen.holder()) {
        clear_sole(db, name, seen.token(), *seen.holder(), until);
        return true;
    }
    if (seen.waited_for_several()) {
        served.push_back(told(seen.next()));
        return false;
    }
    if (part) {
        const auto next = seen.next();
        if (grant_part(db, name, seen, until)) {
            served.push_back({.session = next.session,
                              .grant_id = next.grant_id,
                              .token = next.token,
                              .to = next.to});
        }
        return true;
    }
    auto next = grant_first(db, name, seen, until);
    if (!next) return true;
    served.push_back(*std::move(next));
    return false;
}

/// The row first, then the ticket: a client that cancels a ticket waits for nothing more. An
/// upgrade is in the row alone, and compares the token that was read.
bool two_step_queue_protocol::grant_part(sql::connection& db, std::string_view name,
                                         const queue_look& seen, sql::deadline until) const {
    const auto next = seen.next();
    const std::array ticket{value{next.ticket}};
    if (seen.is_upgrade()) {
        const std::array row{value{name}, value{next.grant_id}, value{next.seen}, value{next.token},
                             value{all_of_a_lock - seen.weight()}};
        return sql::run_all(
            db, std::array{sql::step{upgrade_, row}, sql::step{delete_served_, ticket}}, until);
    }
    const std::array row{value{name}, value{seen.weight()}};
    const std::array hold{value{name},
                          value{next.session},
                          value{next.grant_id},
                          value{seen.weight()},
                          sql::text_or_null(next.thread),
                          sql::text_or_null(next.note),
                          value{next.deadline_us},
                          value{0}};
    const std::array steps{sql::step{use_, row}, sql::step{delete_served_, ticket},
                           sql::step{insert_hold_, hold}};
    return sql::run_all(db, steps, until);
}

std::optional<handed_over> two_step_queue_protocol::hand_over_to(
    sql::connection& db, std::string_view name, session_id session, grant_id /*grant_id*/,
    const next_waiter& next, const hand_over_options& /*how*/, sql::deadline until) const {
    return grant_to(db, name, next, session, until);
}

std::vector<std::string> two_step_queue_protocol::leave(sql::connection& db, session_id session,
                                                        std::span<const std::string> names,
                                                        sql::deadline until) const {
    leases_.delete_session(db, session, until);
    return names_with_waiters(db, names, until);
}

two_step_queue_protocol::queue_look two_step_queue_protocol::look_at(sql::connection& db,
                                                                     std::string_view name,
                                                                     sql::deadline until) const {
    return queue_look{run(db, next_waiter_, until, name)};
}

/// One that is not handed over is freed, and looked at again.
release_outcome two_step_queue_protocol::hand_over(sql::connection& db, std::string_view name,
                                                   session_id session, grant_id grant_id,
                                                   sql::deadline until) const {
    for (;; check_time(until)) {
        const auto seen = look_at(db, name, until);
        if (!seen.is_grant(session, grant_id) || !seen.waited_for_all()) {
            return {.freed = false, .next = {}, .counted_waits = seen.waited_for_part()};
        }
        if (auto next = grant_to(db, name, seen.next(), session, until)) return {true, next};
    }
}

/// Grants the lease to the waiter that was read: the lease's row by compare-and-set on the token
/// that was read, then the ticket by its key, both or neither. Lease first: a client that deletes a
/// ticket waits for nothing more. No session's row is touched, so no heartbeat waits. The read may
/// be old. At that token the lease is still the grant that was read, or has been freed and not
/// granted since; if the ticket is gone, or its caller's limit has passed, everything is rolled
/// back.
std::optional<handed_over> two_step_queue_protocol::grant_to(sql::connection& db,
                                                             std::string_view name,
                                                             const next_waiter& next,
                                                             session_id giver,
                                                             sql::deadline until) const {
    const std::array lease{value{name},
                           value{next.session},
                           value{next.grant_id},
                           sql::text_or_null(next.thread),
                           sql::text_or_null(next.note),
                           value{next.deadline_us},
                           value{next.seen},
                           value{next.token}};
    const std::array ticket{value{next.ticket}};
    const std::array steps{sql::step{take_, lease}, sql::step{delete_served_, ticket}};
    handed_over done{
        .session = next.session, .grant_id = next.grant_id, .token = next.token, .to = next.to};
    const auto waking = waking_text(db, next, giver);
    if (uses(fast_path::single_text)) {
        if (const auto committed = db.transact(steps, waking, until)) {
            if (!*committed) return std::nullopt;
            done.woken = !waking.empty();
            if (done.woken) {
                mysql_wait::note_woken(db, mysql_wait::mark_durable(next.grant_id, next.to.secret));
            }
            return done;
        }
    }
    sql::transaction_scope transaction{db, until};
    for (const auto& each : steps) {
        // Granted by another client, or cancelled meanwhile; or the waiter's limit has passed.
        if (db.execute(each.what, each.parameters, until).affected() != 1) return std::nullopt;
    }
    transaction.commit(until);
    return done;
}

}  // namespace rowlock::protocol

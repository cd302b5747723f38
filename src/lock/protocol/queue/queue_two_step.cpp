#include "base/ablation.hpp"
#include "lock/protocol/queue/queue_dialects.hpp"
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

/// The first entry of a lock that it could be granted is one of a request for several.
handed_over told(const next_waiter& first) {
    return {.session = first.session, .grant_id = first.grant_id, .token = 0, .to = first.to};
}

}  // namespace

two_step_queue_protocol::two_step_queue_protocol(const queue_parts& of)
    : queue_protocol{of},
      delete_served_{of.statements("delete_served_ticket")},
      next_waiter_{of.statements("next_waiter")},
      take_{of.statements("take")},
      use_{of.statements("use_permits")},
      insert_hold_{of.statements("insert_permit")},
      upgrade_{of.statements("upgrade_lock")} {}

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
    if (!seen.may_grant()) throw no_token_floor();
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
    leases_.sessions().remove(db, session, until);
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
        if (!seen.is_grant(session, grant_id) || !seen.waited_for_all() || !seen.may_grant()) {
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

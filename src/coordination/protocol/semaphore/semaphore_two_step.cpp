#include "coordination/protocol/semaphore/semaphore_two_step.hpp"

#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <array>
#include <chrono>
#include <utility>

namespace rowlock::protocol {
namespace {

using sql::value;

/// Runs statements that change one row each as one transaction. Returns false, and changes nothing,
/// if one of them changes none.
bool run_all(sql::connection& db, std::span<const sql::step> steps, sql::deadline until) {
    if (const auto committed = db.transact(steps, {}, until)) return *committed;
    sql::transaction_scope transaction{db, until};
    for (const auto& each : steps) {
        if (db.execute(each.what, each.parameters, until).affected() != 1) return false;
    }
    transaction.commit(until);
    return true;
}

/// Parameters of insert_permit.
std::array<value, 9> hold_of(const grant_request& of) {
    return {value{of.name},
            value{of.session},
            value{of.grant_id},
            value{of.permits.count},
            sql::text_or_null(of.thread),
            sql::text_or_null(of.note),
            value{of.deadline_us},
            value{static_cast<int>(of.permits.of)},
            value{base_of(of)}};
}

}  // namespace

two_step_semaphore_protocol::two_step_semaphore_protocol(const sql::statement_set& statements)
    : common_semaphore_protocol{statements},
      take_{statements("take_permits")},
      use_{statements("use_permits")},
      insert_{statements("insert_permit")},
      return_{statements("return_permits")},
      delete_permit_{statements("delete_permit")},
      shrink_permit_{statements("shrink_permit")},
      next_waiter_{statements("next_permit_waiter")},
      delete_waiter_{statements("delete_permit_waiter")},
      over_{statements("holds_over")} {}

/// Reads first: an attempt that fails writes nothing and locks nothing. The token is read
/// afterwards: between the read and the update other clients may have raised it.
std::optional<std::int64_t> two_step_semaphore_protocol::take(sql::connection& db,
                                                              const grant_request& request,
                                                              sql::deadline until) const {
    const auto& wanted = request.permits;
    const auto seen = state_of(db, request.name, request.session, until);
    if (!seen.has(wanted.count) || seen.kind != wanted.of || !seen.session_live) {
        return std::nullopt;
    }
    if (seen.waited && !wanted.is_upgrade()) return std::nullopt;
    const std::array counter{value{request.name}, value{request.session}, value{wanted.count},
                             value{static_cast<int>(wanted.of)}, value{base_of(request)}};
    const auto hold = hold_of(request);
    const std::array steps{sql::step{take_, counter}, sql::step{insert_, hold}};
    if (!run_all(db, steps, until)) return std::nullopt;
    try {
        const auto taken = read(db, request.name, request.session, request.grant_id, until);
        if (taken) return taken->granted.token;
    } catch (const error& failure) {
        throw error{errc::outcome_unknown,
                    std::string{"committed, but the grant could not be read: "} + failure.what()};
    }
    return std::nullopt;  // its own deadline was over, or an operator has deleted it
}

/// The read says how many permits the hold has, and the deletion names that number: a downgrade may
/// have lowered it meanwhile.
bool two_step_semaphore_protocol::give(sql::connection& db, std::string_view name,
                                       session_id session, grant_id grant_id,
                                       sql::deadline until) const {
    for (;; check_time(until)) {
        const auto held = read(db, name, session, grant_id, until);
        if (!held) return false;
        const std::array hold{value{name}, value{grant_id}, value{session}, value{held->permits}};
        const std::array counter{value{name}, value{held->permits}};
        const std::array steps{sql::step{delete_permit_, hold}, sql::step{return_, counter}};
        if (run_all(db, steps, until)) return true;
    }
}

/// Hold first, counter second, as in give().
bool two_step_semaphore_protocol::shrink_now(sql::connection& db, std::string_view name,
                                             session_id session, grant_id grant_id,
                                             std::int64_t from, std::int64_t to,
                                             sql::deadline until) const {
    const std::array hold{value{name}, value{session}, value{grant_id}, value{from}, value{to}};
    const std::array counter{value{name}, value{from - to}};
    return run_all(db, std::array{sql::step{shrink_permit_, hold}, sql::step{return_, counter}},
                   until);
}

granted_permits two_step_semaphore_protocol::grant_next(sql::connection& db, std::string_view name,
                                                        sql::deadline until) const {
    constexpr std::size_t at_once = 16;
    granted_permits granted;
    try {
        for (; serve_first(db, name, granted.served, until); check_time(until)) {
            if (granted.served.size() < at_once) continue;
            granted.more = true;
            break;
        }
    } catch (const error&) {
        if (granted.served.empty()) throw;
        granted.more = true;
    }
    return granted;
}

/// A transaction for one waiter. If it changes nothing, the waiter has gone, or permits were taken
/// meanwhile: the queue is read again, so that no waiter is passed over.
bool two_step_semaphore_protocol::serve_first(sql::connection& db, std::string_view name,
                                              std::vector<handed_over>& served,
                                              sql::deadline until) const {
    const auto row = sql::run(db, next_waiter_, until, name);
    if (row.empty() || row.integer(0, 5) > row.integer(0, 1)) return false;
    const auto text = [&](std::size_t column) {
        return row.is_null(0, column) ? std::string_view{} : row.text(0, column);
    };
    const grant_request next{
        .name = name,
        .session = row.integer<session_id>(0, 3),
        .grant_id = row.integer<grant_id>(0, 4),
        .thread = text(6),
        .note = text(7),
        .deadline_us = row.maybe_integer(0, 8),
        .permits = {.count = row.integer(0, 5),
                    .of = row.integer<counter_kind>(0, 12),
                    .upgrades = row.maybe_integer<grant_id>(0, 13).value_or(grant_id{})}};
    const std::array counter{value{name}, value{next.permits.count}};
    const std::array ticket{value{row.integer(0, 2)}};
    const auto hold = hold_of(next);
    const std::array steps{sql::step{use_, counter}, sql::step{delete_waiter_, ticket},
                           sql::step{insert_, hold}};
    served.reserve(served.size() + 1);  // so that a grant is not forgotten
    handed_over done{.session = next.session,
                     .grant_id = next.grant_id,
                     .token = row.integer(0, 0),
                     .to = {.number = row.integer(0, 9),
                            .secret = std::string{row.text(0, 10)},
                            .mailbox = row.maybe_integer(0, 11)}};
    if (run_all(db, steps, until)) served.push_back(std::move(done));
    return true;
}

/// Holds in the order of their keys, then the counter: two sweeps cannot wait in a circle, nor a
/// sweep and a release. One that another transaction has locked, such as a fence, or has changed
/// since it was read, is left for a later sweep.
std::int64_t two_step_semaphore_protocol::sweep_some(sql::connection& db, std::string_view name,
                                                     sql::deadline until) const {
    const auto rows = sql::run(db, over_, until, name);
    if (rows.empty()) return 0;
    std::int64_t permits = 0;
    sql::transaction_scope transaction{db, until};
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto grant = rows.integer<grant_id>(row, 0);
        const auto session = rows.integer<session_id>(row, 1);
        if (!lock_hold(db, name, grant, session, until)) continue;
        const auto its = rows.integer(row, 2);
        if (sql::run(db, delete_permit_, until, name, grant, session, its).affected() == 1) {
            permits += its;
        }
    }
    if (permits > 0) sql::run(db, return_, until, name, permits);
    transaction.commit(until);
    return permits;
}

}  // namespace rowlock::protocol

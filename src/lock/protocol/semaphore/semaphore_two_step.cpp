#include "lock/protocol/semaphore/semaphore_two_step.hpp"

#include "sql/run_all.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include "sql/value_list.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

namespace rowlock::protocol {
namespace {

using sql::value;

/// Parameters of insert_permit.
/// @param behind how many holds follow in the transaction
std::array<value, 8> hold_of(const grant_request& of, std::size_t behind = 0) {
    return {value{of.name},
            value{of.session},
            value{of.grant_id},
            value{of.permits.count},
            sql::text_or_null(of.thread),
            sql::text_or_null(of.note),
            value{of.deadline_us},
            value{static_cast<std::int64_t>(behind)}};
}

/// Parameters of take_permits, for the permits of `holds` requests like this one.
std::array<value, 5> counter_of(const grant_request& of, std::int64_t permits, std::size_t holds) {
    return {value{of.name}, value{of.session}, value{permits},
            value{static_cast<int>(of.permits.of)}, value{static_cast<std::int64_t>(holds)}};
}

}  // namespace

two_step_semaphore_protocol::two_step_semaphore_protocol(const sql::statement_set& statements)
    : semaphore_protocol{statements},
      take_{statements("take_permits")},
      find_several_{statements("find_several_permits")},
      insert_{statements("insert_permit")},
      return_{statements("return_permits")},
      delete_permit_{statements("delete_permit")},
      shrink_permit_{statements("shrink_permit")},
      over_{statements("holds_over")},
      lock_now_{statements("lock_permit_now")},
      lock_grant_{statements("confirm_grant")},
      insert_lowered_{statements("insert_lowered")},
      lower_{statements("lower_lock")},
      lock_upgraded_{statements("lock_upgraded")},
      end_upgrade_{statements("end_upgrade")},
      weigh_{statements("weigh_upgraded")} {}

/// Reads first: an attempt that fails writes nothing and locks nothing. The token is read
/// afterwards: between the read and the update other clients may have raised it.
std::optional<std::int64_t> two_step_semaphore_protocol::take(sql::connection& db,
                                                              const grant_request& request,
                                                              sql::deadline until) const {
    const auto& wanted = request.permits;
    const auto seen = state_of(db, request.name, request.session, until);
    if (!seen.has(wanted.count) || seen.kind() != wanted.of || !seen.session_live) {
        return std::nullopt;
    }
    if (seen.waited) return std::nullopt;
    const auto counter = counter_of(request, wanted.count, 1);
    const auto hold = hold_of(request);
    const std::array steps{sql::step{take_, counter}, sql::step{insert_, hold}};
    if (!sql::run_all(db, steps, until)) return std::nullopt;
    try {
        const auto taken = read(db, request.name, request.session, request.grant_id, until);
        if (taken) return taken->granted.token;
    } catch (const error& failure) {
        throw error{errc::outcome_unknown,
                    std::string{"committed, but the grant could not be read: "} + failure.what()};
    }
    return std::nullopt;  // its own deadline was over, or an operator has deleted it
}

std::vector<two_step_semaphore_protocol::hold_read> two_step_semaphore_protocol::read_several(
    sql::connection& db, std::string_view name, session_id session,
    std::span<const grant_id> grants, sql::deadline until) const {
    std::vector<hold_read> found;
    sql::for_each_list(db, find_several_, std::array{value{name}, value{session}}, grants, until,
                       [&](const sql::result& rows) {
                           for (std::size_t row = 0; row < rows.rows(); ++row) {
                               found.push_back({.hold = {.grant_id = rows.integer<grant_id>(row, 0),
                                                         .permits = rows.integer(row, 2)},
                                                .token = rows.integer(row, 1)});
                           }
                       });
    return found;
}

/// As take(). The requests that fit are chosen by what was read; if less is free by now, none is
/// granted.
std::vector<std::int64_t> two_step_semaphore_protocol::take_together(
    sql::connection& db, std::span<const grant_request> requests, sql::deadline until) const {
    const auto& first = requests.front();
    auto seen = state_of(db, first.name, first.session, until);
    if (seen.kind() != first.permits.of || !seen.session_live || seen.waited) return {};
    const auto before = seen.used;
    std::size_t count = 0;
    for (; count < requests.size() && seen.has(requests[count].permits.count); ++count) {
        seen.used += requests[count].permits.count;
    }
    if (count == 0) return {};
    requests = requests.first(count);
    const auto counter = counter_of(first, seen.used - before, count);
    std::vector<std::array<value, 8>> holds;
    std::vector<grant_id> grants;
    for (const auto& each : requests) {
        holds.push_back(hold_of(each, --count));
        grants.push_back(each.grant_id);
    }
    std::vector<sql::step> steps{{take_, counter}};
    for (const auto& each : holds) steps.push_back({insert_, each});
    if (!sql::run_all(db, steps, until)) return {};
    std::vector<std::int64_t> tokens(requests.size());
    try {
        for (const auto& each : read_several(db, first.name, first.session, grants, until)) {
            const auto at = std::ranges::find(grants, each.hold.grant_id);
            tokens.at(static_cast<std::size_t>(at - grants.begin())) = each.token;
        }
    } catch (const error& failure) {
        throw error{errc::outcome_unknown,
                    std::string{"committed, but the grants could not be read: "} + failure.what()};
    }
    return tokens;
}

/// In the order of their keys, as reclaim(). Each deletion names the permits of its hold: a
/// downgrade may have lowered them meanwhile.
bool two_step_semaphore_protocol::end_holds(sql::connection& db, std::string_view name,
                                            session_id session, std::span<const own_hold> holds,
                                            sql::deadline until) const {
    std::vector<own_hold> in_order(holds.begin(), holds.end());
    std::ranges::sort(in_order, {}, &own_hold::grant_id);
    std::vector<std::array<value, 4>> deletions;
    std::int64_t permits = 0;
    for (const auto& each : in_order) {
        deletions.push_back(
            {value{name}, value{each.grant_id}, value{session}, value{each.permits}});
        permits += each.permits;
    }
    const std::array counter{value{name}, value{permits}};
    std::vector<sql::step> steps;
    for (const auto& each : deletions) steps.push_back({delete_permit_, each});
    steps.push_back({return_, counter});
    return sql::run_all(db, steps, until);
}

std::vector<bool> two_step_semaphore_protocol::release_together(sql::connection& db,
                                                                std::string_view name,
                                                                session_id session,
                                                                std::span<const own_hold> holds,
                                                                sql::deadline until) const {
    if (holds.empty()) return {};
    std::vector<bool> ended(holds.size(), end_holds(db, name, session, holds, until));
    if (ended.front()) return ended;
    std::vector<grant_id> grants;
    for (const auto& each : holds) grants.push_back(each.grant_id);
    std::vector<own_hold> left;
    for (const auto& each : read_several(db, name, session, grants, until)) {
        left.push_back(each.hold);
    }
    if (left.empty() || !end_holds(db, name, session, left, until)) return ended;
    for (const auto& each : left) {
        const auto at = std::ranges::find(grants, each.grant_id);
        ended[static_cast<std::size_t>(at - grants.begin())] = true;
    }
    return ended;
}

/// What is expected first; if that fails, what is read.
bool two_step_semaphore_protocol::give(sql::connection& db, std::string_view name,
                                       session_id session, grant_id grant_id, std::int64_t permits,
                                       sql::deadline until) const {
    own_hold hold{.grant_id = grant_id, .permits = permits};
    if (permits > 0 && end_holds(db, name, session, {&hold, 1}, until)) return true;
    for (;; check_time(until)) {
        const auto held = read(db, name, session, grant_id, until);
        if (!held || held->is_upgrade()) return false;
        hold.permits = held->permits;
        if (end_holds(db, name, session, {&hold, 1}, until)) return true;
    }
}

bool two_step_semaphore_protocol::end_upgrade(sql::connection& db, std::string_view name,
                                              grant_id upgrade, std::optional<std::int64_t> to,
                                              sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    const auto hold = sql::run(db, lock_upgraded_, until, name, upgrade);
    if (hold.empty()) return false;
    const auto more = to.value_or(hold.integer(0, 1)) - hold.integer(0, 1);
    if (more != 0) sql::run(db, weigh_, until, name, hold.integer(0, 0), *to);
    if (sql::run(db, end_upgrade_, until, name, upgrade, more).affected() != 1) return false;
    transaction.commit(until);
    return true;
}

/// Hold first, counter second, as in give().
bool two_step_semaphore_protocol::shrink_now(sql::connection& db, std::string_view name,
                                             session_id session, grant_id grant_id,
                                             const found_hold& read, std::int64_t to,
                                             sql::deadline until) const {
    const std::array hold{value{name},         value{session}, value{grant_id},
                          value{read.permits}, value{to},      value{read.granted.token}};
    const std::array counter{value{name}, value{read.permits - to}};
    return sql::run_all(
        db, std::array{sql::step{shrink_permit_, hold}, sql::step{return_, counter}}, until);
}

/// The first step locks the row, and finds it to be this grant's: what the second copies stays so.
bool two_step_semaphore_protocol::lower_now(sql::connection& db, std::string_view name,
                                            session_id session, grant_id grant_id, std::int64_t to,
                                            sql::deadline until) const {
    const std::array grant{value{name}, value{session}, value{grant_id}};
    const std::array hold{value{name}, value{session}, value{grant_id}, value{to}};
    return sql::run_all(db,
                        std::array{sql::step{lock_grant_, grant}, sql::step{insert_lowered_, hold},
                                   sql::step{lower_, hold}},
                        until);
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
        const auto its = rows.integer(row, 2);
        if (sql::run(db, lock_now_, until, name, grant, session, rows.integer(row, 3)).empty()) {
            continue;
        }
        note_sweep(db, name, grant, session, until);
        if (sql::run(db, delete_permit_, until, name, grant, session, its).affected() == 1) {
            permits += its;
        }
    }
    if (permits > 0) sql::run(db, return_, until, name, permits);
    transaction.commit(until);
    return permits;
}

}  // namespace rowlock::protocol

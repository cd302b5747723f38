#include "lock/protocol/run/run_protocol.hpp"

#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"

#include <algorithm>

namespace rowlock::protocol {
namespace {

using outcome = run_answer::outcome;
using std::chrono::microseconds;

/// What is known of earlier runs.
struct run_record {
    explicit run_record(const sql::result& row) : known{!row.empty()} {
        if (!known) return;
        token = row.integer(0, 0);
        finished = row.integer(0, 1) != 0;
        if (!row.is_null(0, 2)) period = row.text(0, 2);
        rest = microseconds{row.maybe_integer(0, 3).value_or(0)};
        recent = row.integer(0, 4) != 0;
    }
    bool known;
    std::int64_t token = 0;
    bool finished = true;
    std::optional<std::string> period{};
    microseconds rest{0};
    bool recent = false;
};

}  // namespace

run_protocol::run_protocol(const sql::statement_set& statements)
    : lock_lease_{statements("lock_lease")},
      record_{statements("run_record")},
      begin_{statements("begin_run")},
      defer_{statements("defer_run")},
      finish_{statements("finish_run")},
      show_{statements("show_run")} {}

run_answer run_protocol::begin(sql::connection& db, const run_request& wanted,
                               sql::deadline until) const {
    std::optional<std::int64_t> within;
    if (wanted.skip_if_within) within = wanted.skip_if_within->count();
    sql::transaction_scope transaction{db, until};
    if (run(db, lock_lease_, until, wanted.name, wanted.token, wanted.session).empty()) {
        return {outcome::not_held};
    }
    const run_record seen{run(db, record_, until, wanted.name, within)};
    // The reply to the commit of our own beginning was lost.
    if (seen.known && seen.token == wanted.token && !seen.finished) return {outcome::begun};
    if (!wanted.period.empty() && seen.period && *seen.period >= wanted.period) {
        return {outcome::done};
    }
    if (seen.recent) return {outcome::recent};
    if (!seen.finished && wanted.lock_delay > microseconds{0}) {
        run(db, defer_, until, wanted.name, wanted.lock_delay.count());
        transaction.commit(until);
        return {outcome::resting, std::max(seen.rest, wanted.lock_delay)};
    }
    if (seen.rest > microseconds{0}) return {outcome::resting, seen.rest};
    run(db, begin_, until, wanted.name, wanted.token, wanted.at_least.count());
    transaction.commit(until);
    return {outcome::begun};
}

std::optional<run_info> run_protocol::inspect(sql::connection& db, std::string_view name,
                                              sql::deadline until) const {
    const auto row = run(db, show_, until, name);
    if (row.empty()) return std::nullopt;
    const auto time = [&](std::size_t column) {
        return std::chrono::floor<std::chrono::milliseconds>(
            microseconds{row.maybe_integer(0, column).value_or(0)});
    };
    run_info seen{.token = fencing_token{row.integer(0, 0)},
                  .finished = row.integer(0, 1) != 0,
                  .began = time(3),
                  .rest = std::max(time(5), std::chrono::milliseconds{0})};
    if (!row.is_null(0, 2)) seen.period = std::string{row.text(0, 2)};
    if (!row.is_null(0, 4)) seen.ended = time(4);
    return seen;
}

bool run_protocol::finish(sql::connection& db, std::string_view name, session_id session,
                          std::int64_t token, std::string_view period, sql::deadline until) const {
    return run(db, finish_, until, name, token, sql::text_or_null(period), session).affected() > 0;
}

}  // namespace rowlock::protocol

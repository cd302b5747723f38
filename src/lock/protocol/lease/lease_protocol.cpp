#include "lock/protocol/lease/lease_protocol.hpp"

#include "lock/protocol/lease/lease_dialects.hpp"
#include "sql/damaged.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace rowlock::protocol {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// An extension passes over two tokens.
constexpr std::int64_t most_unknown_tokens = 2;

milliseconds in_milliseconds(std::optional<std::int64_t> count) {
    return std::chrono::floor<milliseconds>(microseconds{count.value_or(0)});
}

/// The columns of the fragment `info`.
lease_info read_info(const sql::result& rows, std::size_t row) {
    lease_info info;
    info.name = rows.text(row, 0);
    info.token = fencing_token{sql::shown_integer(rows, row, 1)};
    info.changed = in_milliseconds(sql::shown_integer(rows, row, 2));
    info.waiting = sql::shown_integer(rows, row, 14);
    info.longest_wait = in_milliseconds(sql::shown_integer(rows, row, 15));
    if (sql::shown_integer(rows, row, 3) != 0) return info;
    holder_info& holder = info.holder.emplace();
    holder.session = session_id{sql::shown_integer(rows, row, 4)};
    holder.grant_id = grant_id{sql::shown_integer(rows, row, 5)};
    holder.owner = rows.text(row, 6);
    holder.host = rows.text(row, 7);
    holder.program = rows.text(row, 8);
    holder.thread = rows.text(row, 9);
    holder.note = rows.text(row, 10);
    holder.pid = sql::shown_integer(rows, row, 11);
    holder.held_for = in_milliseconds(sql::shown_integer(rows, row, 12));
    holder.remaining = in_milliseconds(sql::shown_integer(rows, row, 13));
    holder.asked = read_request(rows, row, 16);
    return info;
}

}  // namespace

lease_probe read_probe(const sql::result& row) {
    lease_probe seen = read_lease(row, 0);
    seen.session_live = row.integer(0, 1) != 0;
    seen.present = row.integer(0, 2) != 0;
    return seen;
}

lease_probe read_lease(const sql::result& rows, std::size_t row) {
    lease_probe seen;
    seen.present = true;
    seen.token = rows.maybe_integer(row, 3).value_or(0);
    seen.free = rows.integer(row, 4) != 0;
    seen.grant_id = rows.maybe_integer<grant_id>(row, 5).value_or(grant_id{});
    seen.session = rows.maybe_integer<session_id>(row, 6).value_or(session_id{});
    seen.holder_expired = rows.integer(row, 7) != 0;
    seen.remaining = std::chrono::microseconds{rows.maybe_integer(row, 8).value_or(0)};
    seen.waited = rows.integer(row, 9) != 0;
    seen.promised = rows.integer(row, 9) == 2;
    seen.counted = rows.integer(row, 10) == 1;
    seen.semaphore = rows.integer(row, 10) == 2;
    return seen;
}

bool another_inserts(const error& failure) noexcept {
    return failure.kind() == errc::unique_violation || failure.kind() == errc::deadlock;
}

void restore_row(sql::connection& db, const sql::statement& restore, std::string_view name,
                 sql::deadline until) {
    try {
        sql::run(db, restore, until, name);
    } catch (const error& failure) {
        if (!another_inserts(failure)) throw;
    }
}

error name_of_semaphore(std::string_view name) {
    return {
        errc::invalid_options,
        "\"" + std::string{name} +
            "\" is the name of a semaphore: acquire permits of it, or choose another name for the "
            "lock"};
}

lease_glance read_glance(const sql::result& row) {
    if (row.integer(0, 0) != 0) return {.free = true};
    return {.remaining = microseconds{row.maybe_integer(0, 1).value_or(0)}};
}

attempt judge(const grant_request& request, const lease_probe& seen) {
    if (seen.semaphore) throw name_of_semaphore(request.name);
    if (!seen.session_live) return {attempt::outcome::session_dead, 0, seen};
    if (!seen.takeable(request.barging)) return {attempt::outcome::held, 0, seen};
    return {attempt::outcome::contested, 0, seen};
}

lease_protocol::lease_protocol(const sql::statement_set& statements)
    : sessions_{make_session_protocol(statements)},
      probe_{statements("probe")},
      glance_{statements("glance")},
      release_{statements("release")},
      find_grant_{statements("find_grant")},
      confirm_grant_{statements("confirm_grant")},
      session_leases_{statements("session_leases")},
      force_release_{statements("force_release")},
      lock_lease_{statements("lock_lease")},
      shorten_lease_{statements("shorten_lease")},
      lease_deadline_{statements("lease_deadline")},
      reclaim_lease_{statements("reclaim_lease")},
      adopt_lease_{statements("adopt_lease")},
      adopted_lease_{statements("adopted_lease")},
      renew_lease_{statements("renew_lease")},
      extend_lease_{statements("extend_lease")},
      inspect_{statements("inspect")},
      list_{statements("list")},
      queue_{statements("queue")} {}

attempt lease_protocol::acquire_by(const sql::statement& acquire, sql::connection& db,
                                   const grant_request& request, sql::deadline until) const {
    const auto row = run(db, acquire, until, request.name, request.session, request.grant_id,
                         sql::text_or_null(request.thread), sql::text_or_null(request.note),
                         request.deadline_us, request.barging ? 1 : 0);
    if (!row.empty() && !row.is_null(0, 0)) {
        return {attempt::outcome::granted, row.integer(0, 0), {}};
    }
    const auto seen =
        row.empty() ? probe(db, request.name, request.session, until) : read_probe(row);
    return judge(request, seen);
}

lease_glance lease_protocol::glance(sql::connection& db, std::string_view name,
                                    sql::deadline until) const {
    const auto row = run(db, glance_, until, name);
    return row.empty() ? lease_glance{.free = true} : read_glance(row);
}

lease_probe lease_protocol::probe(sql::connection& db, std::string_view name, session_id session,
                                  sql::deadline until) const {
    const auto row = run(db, probe_, until, name, session);
    lease_probe seen = read_probe(row);
    seen.next_token = row.maybe_integer(0, 0).value_or(0);
    return seen;
}

bool lease_protocol::release(sql::connection& db, std::string_view name, session_id session,
                             grant_id grant_id, sql::deadline until) const {
    return changed_one(run(db, release_on(db), until, name, session, grant_id));
}

const sql::statement& lease_protocol::release_on(const sql::connection& /*db*/) const {
    return release_;
}

std::optional<std::int64_t> lease_protocol::find_grant(sql::connection& db, std::string_view name,
                                                       session_id session, grant_id grant_id,
                                                       sql::deadline until) const {
    const auto row = run(db, find_grant_, until, name, session, grant_id);
    if (row.empty()) return std::nullopt;
    // The row seen need not be durable: the commit whose reply was lost may have been interrupted
    // while it waited for the disk or a standby. The next commit waits for both.
    const std::array found{granted_name{name, grant_id}};
    if (!make_durable(db, session, found, until).front()) return std::nullopt;
    return row.integer(0, 0);
}

std::vector<bool> lease_protocol::make_durable(sql::connection& db, session_id session,
                                               std::span<const granted_name> grants,
                                               sql::deadline until) const {
    // Locks rows in name order, as every transaction that locks several of them.
    std::vector<std::size_t> order(grants.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return grants[i].name; });
    std::optional<sql::transaction_scope> transaction;
    if (grants.size() > 1) transaction.emplace(db, until);
    std::vector<bool> ours(grants.size());
    for (const auto i : order) {
        ours[i] = changed_one(
            run(db, confirm_grant_, until, grants[i].name, session, grants[i].grant_id));
    }
    if (transaction) transaction->commit(until);
    return ours;
}

std::optional<rowlock::release_request> read_request(const sql::result& rows, std::size_t row,
                                                     std::size_t column) {
    if (rows.is_null(row, column)) return std::nullopt;
    return rowlock::release_request{.asked_by = std::string{rows.text(row, column)},
                                    .reason = std::string{rows.text(row, column + 1)}};
}

std::vector<session_lease> lease_protocol::leases_of(sql::connection& db, session_id session,
                                                     sql::deadline until) const {
    const auto rows = run(db, session_leases_, until, session);
    std::vector<session_lease> leases;
    leases.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        leases.push_back({std::string{rows.text(row, 0)},
                          rows.maybe_integer<grant_id>(row, 1).value_or(grant_id{}),
                          rows.integer(row, 2), rows.maybe_integer(row, 3)});
        leases.back().asked = read_request(rows, row, 4);
        leases.back().requested = rows.integer(row, 6) != 0;
    }
    return leases;
}

bool lease_protocol::force_release(sql::connection& db, std::string_view name, victim& whom,
                                   sql::deadline until) const {
    for (;;) {
        const lease_probe seen = probe(db, name, session_id{}, until);
        // An earlier attempt whose reply was lost has evicted that holder, or another client has:
        // the next holder is not the target. A grant whose holder has raised its row's token is.
        const bool same_grant =
            !seen.free && seen.session == whom.session && seen.grant_id == whom.grant_id;
        if (whom.token && seen.token != *whom.token && !same_grant) {
            if (is_durable(db, name, seen, until)) return true;
            continue;
        }
        if (whom.only && seen.token != *whom.only) return false;
        if (seen.free || seen.session == session_id{}) return false;
        whom.token = seen.token;
        whom.session = seen.session;
        whom.grant_id = seen.grant_id;
        if (evict(db, name, seen, whom.by, until)) return true;
        if (whom.only) return false;  // its row has another token by now
    }
}

bool lease_protocol::is_durable(sql::connection& /*db*/, std::string_view /*name*/,
                                const lease_probe& /*seen*/, sql::deadline /*until*/) const {
    return true;
}

bool lease_protocol::evict(sql::connection& db, std::string_view name, const lease_probe& seen,
                           std::string_view by, sql::deadline until) const {
    // Lease first: a wait for a fenced transaction must not hold the session's row, or its
    // heartbeats would wait too. reclaim() locks in the opposite order; the database detects a
    // cycle of the two, and the call is repeated.
    sql::transaction_scope transaction{db, until};
    if (!changed_one(run(db, force_release_, until, name, seen.token, seen.session,
                         sql::text_or_null(by)))) {
        return false;
    }
    sessions_->bump_revision(db, seen.session, until);
    transaction.commit(until);
    return true;
}

std::optional<requested_release> lease_protocol::request_release(sql::connection& db,
                                                                 std::string_view name,
                                                                 std::int64_t token,
                                                                 const release_terms& terms,
                                                                 sql::deadline until) const {
    const lease_probe seen = probe(db, name, session_id{}, until);
    if (seen.free || seen.token != token) return std::nullopt;
    // Lease first, as in evict().
    sql::transaction_scope transaction{db, until};
    if (run(db, lock_lease_, until, name, token, seen.session).empty()) return std::nullopt;
    sessions_->bump_revision(db, seen.session, until);
    run(db, shorten_lease_, until, name, seen.session, terms.within.count(),
        sql::text_or_null(terms.asked_by), sql::text_or_null(terms.reason));
    const auto row = run(db, lease_deadline_, until, name, seen.session);
    transaction.commit(until);
    const microseconds left{row.maybe_integer(0, 0).value_or(0)};
    return requested_release{.session = seen.session, .left = std::max(left, microseconds{0})};
}

std::optional<std::vector<session_id>> lease_protocol::reclaim(
    sql::connection& db, std::string_view owner, session_id session,
    const std::function<void(session_id)>& also, sql::deadline until) const {
    // One transaction: were the session ended in a commit of its own, a waiter could slip in before
    // the leases are moved.
    sql::transaction_scope transaction{db, until};
    if (!sessions_->state_of(db, session, until).live) return std::nullopt;
    std::vector<session_id> ended;
    for (const auto old : sessions_->predecessors(db, owner, session, until)) {
        if (!sessions_->end(db, old, until)) continue;
        ended.push_back(old);
        for (const auto& lease : leases_of(db, old, until)) {
            run(db, reclaim_lease_, until, lease.name, session, old, lease.token);
        }
        if (also) also(old);
    }
    transaction.commit(until);
    return ended;
}

std::optional<adopted_lease> lease_protocol::adopt(sql::connection& db, const offered_lease& offer,
                                                   session_id session, rowlock::grant_id as,
                                                   sql::deadline until) const {
    // Lease first, as in evict(); it waits for a transaction that the giver has fenced.
    sql::transaction_scope transaction{db, until};
    std::int64_t token = offer.token;
    if (run(db, lock_lease_, until, offer.name, token, offer.session).empty()) {
        const auto row = run(db, find_grant_, until, offer.name, offer.session, offer.grant_id);
        if (row.empty()) return std::nullopt;
        token = row.integer(0, 0);
        if (token <= offer.token || token > offer.token + most_unknown_tokens) return std::nullopt;
        if (run(db, lock_lease_, until, offer.name, token, offer.session).empty()) {
            return std::nullopt;
        }
    }
    sessions_->bump_revision(db, offer.session, until);
    // The giver's session is locked: what ends it comes before this, and is seen, or after it, and
    // then the lease names another session.
    if (!sessions_->state_of(db, offer.session, until).live) return std::nullopt;
    if (!changed_one(run(db, adopt_lease_, until, offer.name, session, offer.session, token,
                         offer.grant_id, as))) {
        sessions_->require_token_floor(db, until);
        return std::nullopt;
    }
    auto adopted = read_adopted(db, offer.name, session, as, until);
    transaction.commit(until);
    return adopted;
}

std::optional<adopted_lease> lease_protocol::find_adopted(sql::connection& db,
                                                          std::string_view name, session_id session,
                                                          rowlock::grant_id as,
                                                          sql::deadline until) const {
    if (!find_grant(db, name, session, as, until)) return std::nullopt;
    return read_adopted(db, name, session, as, until);
}

std::optional<adopted_lease> lease_protocol::read_adopted(sql::connection& db,
                                                          std::string_view name, session_id session,
                                                          rowlock::grant_id as,
                                                          sql::deadline until) const {
    const auto row = run(db, adopted_lease_, until, name, session, as);
    if (row.empty()) return std::nullopt;
    adopted_lease adopted{.token = row.integer(0, 0), .asked = read_request(row, 0, 3)};
    if (const auto left = row.maybe_integer(0, 1)) adopted.left = microseconds{*left};
    if (const auto whole = row.maybe_integer(0, 2)) adopted.whole = microseconds{*whole};
    return adopted;
}

std::optional<std::int64_t> lease_protocol::renew(sql::connection& db, std::string_view name,
                                                  session_id session, rowlock::grant_id grant_id,
                                                  microseconds duration, microseconds slack,
                                                  sql::deadline until) const {
    constexpr int most = 5;
    for (int tries = 0; tries < most; ++tries) {
        const auto seen = run(db, find_grant_, until, name, session, grant_id);
        if (seen.empty()) return std::nullopt;
        const auto token = seen.integer(0, 0);
        sql::transaction_scope transaction{db, until};
        // Another renewal, perhaps an earlier attempt of this one, has raised the token since.
        if (run(db, lock_lease_, until, name, token, session).empty()) continue;
        const auto left = run(db, lease_deadline_, until, name, session).maybe_integer(0, 0);
        const auto time = std::max(duration, microseconds{left.value_or(0) + 1});
        if (!sessions_->extend(db, session, time + slack, until)) return std::nullopt;
        // A request locks the lease before it raises the revision: it came before this, and is
        // seen, or comes after it, and then it shortens the new deadline.
        if (sessions_->state_of(db, session, until).revision != 0) return std::nullopt;
        if (!changed_one(run(db, renew_lease_, until, name, session, token, time.count()))) {
            sessions_->require_token_floor(db, until);
            return std::nullopt;
        }
        const auto renewed = run(db, find_grant_, until, name, session, grant_id);
        transaction.commit(until);
        if (renewed.empty()) return std::nullopt;
        return renewed.integer(0, 0);
    }
    throw error{errc::conflict, "other renewals of this lease came in between, again and again"};
}

extension lease_protocol::extend(sql::connection& db, const grant_to_extend& which, microseconds by,
                                 std::int64_t revision, sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    if (run(db, lock_lease_, until, which.name, which.token, which.session).empty()) {
        // The client's next step is a commit of its own, which makes what this reads durable.
        const auto row = run(db, find_grant_, until, which.name, which.session, which.grant_id);
        const bool done = !row.empty() && row.integer(0, 0) == which.new_token;
        return done ? extension::done_before : extension::over;
    }
    // A request locks the lease before it raises the revision: it came before this, and is seen, or
    // comes after it, and then it shortens the new deadline.
    const auto at = sessions_->state_of(db, which.session, until);
    if (!at.live) return extension::over;
    if (at.revision != revision) return extension::unseen_change;
    if (!changed_one(run(db, extend_lease_, until, which.name, which.session, which.token,
                         which.new_token, by.count()))) {
        const auto left = run(db, lease_deadline_, until, which.name, which.session);
        return left.maybe_integer(0, 0).value_or(0) > 0 ? extension::requested : extension::over;
    }
    transaction.commit(until);
    return extension::done;
}

std::optional<lease_info> lease_protocol::inspect(sql::connection& db, std::string_view name,
                                                  sql::deadline until) const {
    const auto row = run(db, inspect_, until, name);
    if (row.empty()) return std::nullopt;
    return read_info(row, 0);
}

std::vector<lease_info> lease_protocol::list(sql::connection& db, std::string_view prefix,
                                             const page& page, sql::deadline until) const {
    // U+10FFFF, which no name contains, sorts behind every continuation of the prefix.
    const std::string end = std::string{prefix} + "\xF4\x8F\xBF\xBF";
    const auto rows = run(db, list_, until, prefix, end, page.after, page.limit);
    std::vector<lease_info> leases;
    leases.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) leases.push_back(read_info(rows, row));
    return leases;
}

std::vector<waiter_info> lease_protocol::queue(sql::connection& db, std::string_view name,
                                               sql::deadline until) const {
    const auto rows = run(db, queue_, until, name);
    std::vector<waiter_info> waiters;
    waiters.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        waiters.push_back({.name = std::string{name},
                           .position = static_cast<std::int64_t>(row) + 1,
                           .ticket = ticket_no{sql::shown_integer(rows, row, 0)},
                           .session = session_id{sql::shown_integer(rows, row, 1)},
                           .owner = std::string{rows.text(row, 2)},
                           .host = std::string{rows.text(row, 3)},
                           .program = std::string{rows.text(row, 4)},
                           .thread = std::string{rows.text(row, 5)},
                           .note = std::string{rows.text(row, 6)},
                           .pid = sql::shown_integer(rows, row, 7),
                           .waited = in_milliseconds(sql::shown_integer(rows, row, 8)),
                           .locks = sql::shown_integer(rows, row, 9),
                           .priority = sql::shown_integer(rows, row, 10)});
    }
    return waiters;
}

std::unique_ptr<const lease_protocol> make_lease_protocol(const sql::statement_set& statements) {
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_leases(statements);
        case sql::dialect::mysql:
            return make_mysql_leases(statements);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_leases(statements);
}

}  // namespace rowlock::protocol

#include "coordination/lease/lease_protocol.hpp"

#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace rowlock::strategy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

attempt judge(const look& seen, bool barging) {
    if (!seen.session_live) return {attempt::outcome::session_dead, 0, seen};
    if (!seen.takeable(barging)) return {attempt::outcome::held, 0, seen};
    return {attempt::outcome::contested, 0, seen};
}

milliseconds in_milliseconds(std::optional<std::int64_t> count) {
    return std::chrono::floor<milliseconds>(microseconds{count.value_or(0)});
}

/// The columns of the fragment `info`.
lease_info read_info(const sql::result& rows, std::size_t row) {
    lease_info info;
    info.name = rows.text(row, 0);
    info.token = fencing_token{rows.integer(row, 1)};
    info.changed = in_milliseconds(rows.maybe_integer(row, 2));
    info.waiting = rows.integer(row, 14);
    info.longest_wait = in_milliseconds(rows.maybe_integer(row, 15));
    if (rows.integer(row, 3) != 0) return info;
    holder_info& holder = info.holder.emplace();
    holder.session = rows.integer(row, 4);
    holder.grant_id = rows.maybe_integer(row, 5).value_or(0);
    holder.owner = rows.text(row, 6);
    holder.host = rows.text(row, 7);
    holder.program = rows.text(row, 8);
    holder.thread = rows.text(row, 9);
    holder.note = rows.text(row, 10);
    holder.pid = rows.maybe_integer(row, 11).value_or(0);
    holder.held_for = in_milliseconds(rows.maybe_integer(row, 12));
    holder.remaining = in_milliseconds(rows.maybe_integer(row, 13));
    return info;
}

bool changed_one(const sql::result& done) {
    return done.affected() > 0;
}

/// Whether the server refused to identify itself: the functions are forbidden, or missing in a
/// product that only speaks like PostgreSQL.
bool does_not_tell(const sql::connection& db, const error& failure) {
    return db.alive() && !failure.retryable() && failure.kind() != errc::read_only;
}

/// Reads the answer of `server_identity` and the like.
std::optional<std::string> told(const sql::result& row) {
    if (row.empty() || row.is_null(0, 0)) return std::nullopt;
    return std::string{row.text(0, 0)};
}

void set_up_mysql(sql::connection& db, milliseconds statement_timeout, sql::deadline until) {
    const auto whole_seconds = [](milliseconds time) {
        return std::to_string(
            std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(time).count()));
    };
    const auto& facts = sql::facts_of(db, until);
    // The isolation level that the protocol is proved for; time zone for SYSDATE; strict mode so
    // that nothing is truncated silently; no chained transactions, or what follows a COMMIT would
    // never be committed. With innodb_snapshot_isolation (MariaDB's default from 11.6 on) a
    // statement that waited for a row and finds it changed fails, at READ COMMITTED too, where ours
    // re-read the row. On MySQL max_execution_time bounds only SELECT, so lock waits are bounded
    // there. All in one statement, one round trip.
    db.query(
        "set session time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, "
        "completion_type = 0, innodb_lock_wait_timeout = " +
            whole_seconds(statement_timeout) +
            (facts.isolates_snapshots ? ", innodb_snapshot_isolation = off" : "") +
            (facts.mariadb ? ", tx_isolation = 'READ-COMMITTED', max_statement_time = " +
                                 whole_seconds(statement_timeout) +
                                 ", idle_transaction_timeout = " + whole_seconds(statement_timeout)
                           : ", transaction_isolation = 'READ-COMMITTED', max_execution_time = " +
                                 std::to_string(statement_timeout.count())),
        until);
}

}  // namespace

look read_look(const sql::result& row) {
    look seen = read_lease(row, 0);
    seen.session_live = row.integer(0, 1) != 0;
    seen.present = row.integer(0, 2) != 0;
    return seen;
}

look read_lease(const sql::result& rows, std::size_t row) {
    look seen;
    seen.present = true;
    seen.token = rows.maybe_integer(row, 3).value_or(0);
    seen.free = rows.integer(row, 4) != 0;
    seen.grant_id = rows.maybe_integer(row, 5).value_or(0);
    seen.session = rows.maybe_integer(row, 6).value_or(0);
    seen.holder_expired = rows.integer(row, 7) != 0;
    seen.remaining = microseconds{rows.maybe_integer(row, 8).value_or(0)};
    seen.waited = rows.integer(row, 9) != 0;
    seen.promised = rows.integer(row, 9) == 2;
    return seen;
}

error leads_to_standby() {
    return {errc::read_only,
            "the connection leads to a standby: name the primary in the URL, or all hosts (the "
            "first that accepts writes is taken)"};
}

bool another_inserts(const error& failure) noexcept {
    return failure.kind() == errc::unique_violation || failure.kind() == errc::deadlock;
}

error no_token_floor() {
    return {errc::schema_outdated,
            "the token floor's row is missing, and nothing can be granted without it: "
            "docs/migrations.md, \"Going back\", says how to put it back"};
}

void lease_protocol::set_up(sql::connection& db, milliseconds statement_timeout,
                            sql::deadline until) const {
    if (!db.keeps_session_state()) return;
    if (db.speaks() == sql::dialect::mysql) {
        set_up_mysql(db, statement_timeout, until);
        sql::memory_of(db).server = sql::facts_of(db, until).server;  // already known
    }
    if (!sql_.session_setup) return;
    const auto timeout = std::to_string(statement_timeout.count());
    const auto set = [&](const sql::statement& what) {
        const auto row = run(db, what, until, timeout, timeout, sql_.lease_table);
        if (sql_.lease_table == sql_.prefix + "lease" && !row.is_null(0, 1)) {
            sql_.all.found_in().set(row.text(0, 1));
        }
        return told(row);
    };
    try {
        sql::memory_of(db).server = set(*sql_.session_setup);
    } catch (const error& failure) {
        if (!does_not_tell(db, failure)) throw;
        set(*sql_.session_setup_only);
    }
}

std::optional<std::string> lease_protocol::server_of(sql::connection& db,
                                                     sql::deadline until) const {
    const auto& known = sql::memory_of(db).server;
    // A pooler may lead the same connection to another server between two transactions.
    return known && db.keeps_session_state() ? known : server_of_again(db, until);
}

std::optional<std::string> lease_protocol::server_of_again(sql::connection& db,
                                                           sql::deadline until) const {
    const auto ask = [&]() -> std::optional<std::string> {
        if (db.speaks() == sql::dialect::mysql) return sql::ask_facts_again(db, until).server;
        for (const auto* question : {&sql_.server_identity, &sql_.server_timeline}) {
            if (!*question) continue;
            try {
                return told(run(db, **question, until));
            } catch (const error& failure) {
                if (!does_not_tell(db, failure)) throw;
            }
        }
        return "";
    };
    auto answer = ask();
    return sql::memory_of(db).server = std::move(answer);
}

/// Without its plugin, a member of a MySQL group looks like any other server, and would grant what
/// the group grants.
void lease_protocol::refuse_former_member(sql::connection& db, std::string_view server,
                                          sql::deadline until) const {
    const auto row = run(db, sql_.read_floor, until);
    if (row.empty() || !row.text(0, 1).starts_with("group:") || server.starts_with("group:")) {
        return;
    }
    db.discard();
    throw error{errc::database_unreachable,
                "the tables were last used in a MySQL group, and this server is in none: connect "
                "to a member. If it is to be alone from now on, say so once: update " +
                    sql_.prefix + "token_floor set server_identity = 'alone' (docs/operations.md)"};
}

std::string lease_protocol::open_session(sql::connection& db, const session_row& row,
                                         sql::deadline until) const {
    // A pooled connection may lead to a server that has left its group since.
    sql::require_membership(db, until);
    auto told_by = server_of(db, until);
    // Checked before the insertion: a standby promoted in between would accept the session as one
    // of no particular server, and not raise the floor.
    if (!told_by) throw leads_to_standby();
    std::string server = *std::move(told_by);
    const auto open = [&] {
        if (db.speaks() == sql::dialect::sqlite) {
            return run(db, sql_.open_session, until, row.id, row.owner, row.host, row.pid,
                       row.program, row.ttl.count(), row.wake.number, row.wake.secret,
                       row.wake.mailbox);
        }
        return run(db, sql_.open_session, until, row.id, row.owner, row.host, row.pid, row.program,
                   row.ttl.count(), row.wake.number, row.wake.secret, row.wake.mailbox, server);
    };
    if (changed_one(open())) return server;
    if (sql_.meet_server) {
        if (db.speaks() == sql::dialect::mysql) refuse_former_member(db, server, until);
        run(db, *sql_.meet_server, until, server);
    }
    if (!changed_one(open())) throw no_token_floor();
    return server;
}

bool lease_protocol::heartbeat(sql::connection& db, std::int64_t session, std::int64_t revision,
                               sql::deadline until) const {
    sql::require_membership(db, until);
    return changed_one(run(db, sql_.heartbeat, until, session, revision));
}

session_state lease_protocol::state_of(sql::connection& db, std::int64_t session,
                                       sql::deadline until) const {
    const auto row = run(db, sql_.session_state, until, session);
    if (row.empty()) return {false, 0};
    return {row.integer(0, 0) != 0, row.integer(0, 1)};
}

bool lease_protocol::end_expired_session(sql::connection& db, std::int64_t session,
                                         sql::deadline until) const {
    return changed_one(run(db, sql_.end_expired_session, until, session));
}

void lease_protocol::end_session(sql::connection& db, std::int64_t session,
                                 sql::deadline until) const {
    run(db, sql_.end_session, until, session);
}

void lease_protocol::delete_session(sql::connection& db, std::int64_t session,
                                    sql::deadline until) const {
    run(db, sql_.delete_session, until, session);
}

bool lease_protocol::extend_session(sql::connection& db, std::int64_t session, microseconds ttl,
                                    sql::deadline until) const {
    return changed_one(run(db, sql_.extend_session, until, session, ttl.count()));
}

attempt lease_protocol::acquire(sql::connection& db, const grant_request& request,
                                sql::deadline until) const {
    if (!sql_.acquire) {
        const look seen = probe(db, request.name, request.session, until);
        const attempt judged = judge(seen, request.barging);
        if (judged.what != attempt::outcome::contested) return judged;
        return take_probed(db, request, seen, until);
    }
    const auto row = run(db, *sql_.acquire, until, request.name, request.session, request.grant_id,
                         text_or_null(request.thread), text_or_null(request.note),
                         request.deadline_us, request.barging ? 1 : 0);
    if (!row.empty() && !row.is_null(0, 0)) {
        return {attempt::outcome::granted, row.integer(0, 0), {}};
    }
    if (row.empty()) {
        return judge(probe(db, request.name, request.session, until), request.barging);
    }
    return judge(read_look(row), request.barging);
}

attempt lease_protocol::take_probed(sql::connection& db, const grant_request& request,
                                    const look& seen, sql::deadline until) const {
    const auto thread = text_or_null(request.thread);
    const auto note = text_or_null(request.note);
    try {
        const auto done =
            seen.present
                ? run(db, *sql_.take, until, request.name, request.session, request.grant_id,
                      thread, note, request.deadline_us, seen.token, seen.next_token)
                : run(db, *sql_.insert_lease, until, request.name, request.session,
                      request.grant_id, thread, note, request.deadline_us, seen.next_token);
        if (changed_one(done)) return {attempt::outcome::granted, seen.next_token, {}};
    } catch (const error& failure) {
        if (!another_inserts(failure)) throw;
    }
    return {attempt::outcome::contested, 0, seen};
}

look lease_protocol::probe(sql::connection& db, std::string_view name, std::int64_t session,
                           sql::deadline until) const {
    const auto row = run(db, sql_.probe, until, name, session);
    if (row.empty()) throw no_token_floor();
    look seen = read_look(row);
    seen.next_token = row.maybe_integer(0, 0).value_or(0);
    return seen;
}

bool lease_protocol::release(sql::connection& db, std::string_view name, std::int64_t session,
                             std::int64_t grant_id, sql::deadline until) const {
    return changed_one(run(db, release_on(db), until, name, session, grant_id));
}

void lease_protocol::post_release(sql::connection& db, std::string_view name, std::int64_t session,
                                  std::int64_t grant_id, sql::deadline until,
                                  const sql::posted_answer& told) const {
    const std::array<sql::value, 3> parameters{name, session, grant_id};
    if (db.post(release_on(db), parameters, until, told)) return;
    const auto done = db.execute(release_on(db), parameters, until);
    told(&done, nullptr);
}

const sql::statement& lease_protocol::release_on(const sql::connection& db) const {
    const bool durably = sql_.release_durably && !db.keeps_session_state();
    return durably ? *sql_.release_durably : sql_.release;
}

std::optional<std::int64_t> lease_protocol::find_grant(sql::connection& db, std::string_view name,
                                                       std::int64_t session, std::int64_t grant_id,
                                                       sql::deadline until) const {
    const auto row = run(db, sql_.find_grant, until, name, session, grant_id);
    if (row.empty()) return std::nullopt;
    // The row seen need not be durable: the commit whose reply was lost may have been interrupted
    // while it waited for the disk or a standby. The next commit waits for both.
    const std::array found{granted_name{name, grant_id}};
    if (!make_durable(db, session, found, until).front()) return std::nullopt;
    return row.integer(0, 0);
}

void lease_protocol::lift_floor(sql::connection& db, std::int64_t token,
                                sql::deadline until) const {
    run(db, sql_.lift_floor, until, token);
}

void lease_protocol::require_token_floor(sql::connection& db, sql::deadline until) const {
    if (run(db, sql_.read_floor, until).empty()) throw no_token_floor();
}

std::vector<bool> lease_protocol::make_durable(sql::connection& db, std::int64_t session,
                                               std::span<const granted_name> grants,
                                               sql::deadline until) const {
    // Locks rows in name order, as every transaction that locks several of them.
    std::vector<std::size_t> order(grants.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return grants[i].name; });
    std::optional<transaction_scope> transaction;
    if (grants.size() > 1) transaction.emplace(db, until);
    std::vector<bool> ours(grants.size());
    for (const auto i : order) {
        ours[i] = changed_one(
            run(db, sql_.confirm_grant, until, grants[i].name, session, grants[i].grant_id));
    }
    if (transaction) transaction->commit(until);
    return ours;
}

std::vector<session_lease> lease_protocol::leases_of(sql::connection& db, std::int64_t session,
                                                     sql::deadline until) const {
    const auto rows = run(db, sql_.session_leases, until, session);
    std::vector<session_lease> leases;
    leases.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        leases.push_back({std::string{rows.text(row, 0)}, rows.maybe_integer(row, 1).value_or(0),
                          rows.integer(row, 2), rows.maybe_integer(row, 3)});
    }
    return leases;
}

bool lease_protocol::force_release(sql::connection& db, std::string_view name, victim& whom,
                                   sql::deadline until) const {
    for (;;) {
        const look seen = probe(db, name, 0, until);
        // An earlier attempt whose reply was lost has evicted that holder, or another client has:
        // the next holder is not the target.
        if (whom.token && seen.token != *whom.token) {
            if (is_durable(db, name, seen, until)) return true;
            continue;
        }
        if (seen.free) return false;
        whom = {.token = seen.token, .session = seen.session};
        if (evict(db, name, seen, until)) return true;
    }
}

bool lease_protocol::force_release_of(sql::connection& db, std::string_view name,
                                      std::int64_t token, victim& whom, sql::deadline until) const {
    look seen = probe(db, name, 0, until);
    // An earlier attempt whose reply was lost has evicted it, or it has ended by itself since.
    while (whom.token && seen.token != token && !is_durable(db, name, seen, until)) {
        seen = probe(db, name, 0, until);
    }
    if (seen.token != token) return whom.token.has_value();
    if (seen.free) return false;
    whom = {.token = token, .session = seen.session};
    const bool done = evict(db, name, seen, until);
    whom.token.reset();
    return done;
}

/// Whether the lease survives a server crash as it was seen. False if it has changed since.
bool lease_protocol::is_durable(sql::connection& db, std::string_view name, const look& seen,
                                sql::deadline until) const {
    if (!sql_.confirm_lease || !seen.present) return true;
    return changed_one(run(db, *sql_.confirm_lease, until, name, seen.token));
}

bool lease_protocol::evict(sql::connection& db, std::string_view name, const look& seen,
                           sql::deadline until) const {
    // Lease first: a wait for a fenced transaction must not hold the session's row, or its
    // heartbeats would wait too. reclaim() locks in the opposite order; the database detects a
    // cycle of the two, and the call is repeated.
    transaction_scope transaction{db, until};
    if (!changed_one(run(db, sql_.force_release, until, name, seen.token, seen.session))) {
        return false;
    }
    run(db, sql_.bump_revision, until, seen.session);
    transaction.commit(until);
    return true;
}

std::optional<release_request> lease_protocol::request_release(sql::connection& db,
                                                               std::string_view name,
                                                               std::int64_t token,
                                                               sql::deadline until) const {
    const look seen = probe(db, name, 0, until);
    if (seen.free || seen.token != token) return std::nullopt;
    {
        // Lease first, as in evict().
        transaction_scope transaction{db, until};
        if (run(db, sql_.lock_lease, until, name, token, seen.session).empty()) return std::nullopt;
        run(db, sql_.bump_revision, until, seen.session);
        run(db, sql_.shorten_lease, until, name, seen.session);
        transaction.commit(until);
    }
    const look after = probe(db, name, 0, until);
    const bool over = after.free || after.token != token;
    return release_request{
        .session = seen.session,
        .left = over ? microseconds{0} : std::max(after.remaining, microseconds{0})};
}

std::optional<change_to_tell> lease_protocol::change_of(sql::connection& db, std::int64_t session,
                                                        sql::deadline until) const {
    const auto row = run(db, sql_.wake_address, until, session);
    if (row.empty() || row.text(0, 1).empty()) return std::nullopt;
    return change_to_tell{.to = {.number = row.integer(0, 0),
                                 .secret = std::string{row.text(0, 1)},
                                 .mailbox = row.maybe_integer(0, 2)},
                          .revision = row.integer(0, 3)};
}

std::optional<std::vector<std::int64_t>> lease_protocol::reclaim(sql::connection& db,
                                                                 std::string_view owner,
                                                                 std::int64_t session,
                                                                 sql::deadline until) const {
    // One transaction: were the session ended in a commit of its own, a waiter could slip in before
    // the leases are moved.
    transaction_scope transaction{db, until};
    if (!state_of(db, session, until).live) return std::nullopt;
    const auto predecessors = run(db, sql_.predecessors, until, owner, session);
    std::vector<std::int64_t> ended;
    for (std::size_t i = 0; i < predecessors.rows(); ++i) {
        const std::int64_t old = predecessors.integer(i, 0);
        if (!changed_one(run(db, sql_.end_session, until, old))) continue;
        ended.push_back(old);
        for (const auto& lease : leases_of(db, old, until)) {
            run(db, sql_.reclaim_lease, until, lease.name, session, old, lease.token);
        }
    }
    transaction.commit(until);
    return ended;
}

std::optional<lease_info> lease_protocol::inspect(sql::connection& db, std::string_view name,
                                                  sql::deadline until) const {
    const auto row = run(db, sql_.inspect, until, name);
    if (row.empty()) return std::nullopt;
    return read_info(row, 0);
}

std::vector<lease_info> lease_protocol::list(sql::connection& db, std::string_view prefix,
                                             const page& page, sql::deadline until) const {
    // U+10FFFF, which no name contains, sorts behind every continuation of the prefix.
    const std::string end = std::string{prefix} + "\xF4\x8F\xBF\xBF";
    const auto rows = run(db, sql_.list, until, prefix, end, page.after, page.limit);
    std::vector<lease_info> leases;
    leases.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) leases.push_back(read_info(rows, row));
    return leases;
}

std::vector<waiter_info> lease_protocol::queue(sql::connection& db, std::string_view name,
                                               sql::deadline until) const {
    const auto rows = run(db, sql_.queue, until, name);
    std::vector<waiter_info> waiters;
    waiters.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        waiters.push_back({.name = std::string{name},
                           .position = static_cast<std::int64_t>(row) + 1,
                           .ticket = rows.integer(row, 0),
                           .session = rows.integer(row, 1),
                           .owner = std::string{rows.text(row, 2)},
                           .host = std::string{rows.text(row, 3)},
                           .program = std::string{rows.text(row, 4)},
                           .thread = std::string{rows.text(row, 5)},
                           .note = std::string{rows.text(row, 6)},
                           .pid = rows.integer(row, 7),
                           .waited = in_milliseconds(rows.maybe_integer(row, 8))});
    }
    return waiters;
}

}  // namespace rowlock::strategy

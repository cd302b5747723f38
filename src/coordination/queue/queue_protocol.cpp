#include "coordination/queue/queue_protocol.hpp"

#include "base/ablation.hpp"
#include "coordination/queue/wait_graph.hpp"
#include "coordination/wakeup/mailbox.hpp"
#include "coordination/wakeup/wake_up.hpp"
#include "sql/array_text.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace rowlock::strategy {
namespace {

using base::fast_path;
using sql::value;
using std::chrono::microseconds;

/// How many values a statement with a fixed list takes; a shorter list repeats its first value.
constexpr std::size_t list_size = 16;
/// No parameters before the list.
constexpr std::array<value, 0> alone{};

/// Runs `what` for every 16 of `items`, with `first` before them.
template <std::size_t Count, typename Item, typename Use>
void for_each_list(sql::connection& db, const sql::statement& what,
                   const std::array<value, Count>& first, std::span<const Item> items,
                   sql::deadline until, Use use) {
    for (std::size_t from = 0; from < items.size(); from += list_size) {
        const auto part = items.subspan(from, std::min(list_size, items.size() - from));
        std::array<value, Count + list_size> parameters{};
        std::ranges::copy(first, parameters.begin());
        for (std::size_t i = 0; i < list_size; ++i) {
            parameters[Count + i] = value{part[i < part.size() ? i : 0]};
        }
        use(db.execute(what, parameters, until));
    }
}

std::string array_of(std::span<const std::int64_t> numbers) {
    array_text array;
    for (const auto number : numbers) array.add(number);
    return array.close();
}

/// The first column of `what` for all `names`, each once.
template <std::size_t Count>
std::vector<std::string> distinct_names(sql::connection& db, const sql::statement& what,
                                        const std::array<value, Count>& first,
                                        std::span<const std::string> names, sql::deadline until) {
    std::set<std::string> found;
    for_each_list(db, what, first, names, until, [&](const sql::result& rows) {
        for (std::size_t row = 0; row < rows.rows(); ++row) found.emplace(rows.text(row, 0));
    });
    return {found.begin(), found.end()};
}

std::vector<std::int64_t> first_column(const sql::result& rows) {
    std::vector<std::int64_t> numbers;
    numbers.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) numbers.push_back(rows.integer(row, 0));
    return numbers;
}

/// Reads the columns of places: one row for each entry, or one with NULLs.
places read_places(const sql::result& rows) {
    places found{rows.integer(0, 0) != 0, {}};
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.is_null(row, 1)) continue;
        found.waiting.push_back(
            {.name = std::string{rows.text(row, 1)},
             .grant_id = rows.integer(row, 2),
             .ticket = rows.integer(row, 3),
             .position = rows.integer(row, 4),
             .free = rows.integer(row, 5) != 0,
             .holder_session = rows.maybe_integer(row, 6).value_or(0),
             .holder_expired = rows.integer(row, 7) != 0,
             .remaining = microseconds{rows.integer(row, 8)},
             .behind_watermark = rows.columns() > 9 && rows.integer(row, 9) != 0});
    }
    return found;
}

std::optional<handed_over> read_handed_over(const sql::result& row, std::size_t column) {
    if (row.is_null(0, column)) return std::nullopt;
    return handed_over{row.integer(0, column), row.integer(0, column + 1),
                       row.integer(0, column + 2)};
}

bool post(const wake_address& to, std::string_view said) noexcept {
    return wakeup::mail_to{to.number, to.mailbox}.post(said);
}

void notify(sql::connection& db, const wake_address& to, std::string_view said,
            sql::deadline until) {
    static const sql::statement statement{"select pg_notify($1, $2)"};
    run(db, statement, until, notification_channel(to), said);
}

/// Reads the three address columns of a session that is to be woken.
wake_address read_address(const sql::result& rows, std::size_t row, std::size_t column) {
    return {.number = rows.integer(row, column),
            .secret = std::string{rows.text(row, column + 1)},
            .mailbox = rows.maybe_integer(row, column + 2)};
}

/// How many tickets before the last served one a queue scan begins: fragment in_line.
constexpr std::int64_t looks_back = 256;

/// Reads the rows of settle. A waiter that is promised the next token comes first. If it overtook
/// the one behind it so far that no scan would find that one, the latter is promised nothing: no
/// client would serve it, and the promise would keep all others waiting.
std::optional<next_in_line> read_next_in_line(const sql::result& rows) {
    std::map<std::pair<bool, std::int64_t>, std::size_t> line;
    const auto promised = rows.maybe_integer(0, 3);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        if (rows.is_null(row, 4)) continue;
        line.try_emplace({rows.integer(row, 6) != promised, rows.integer(row, 4)}, row);
    }
    if (line.empty()) return std::nullopt;
    const std::size_t row = line.begin()->second;
    const auto text = [&](std::size_t column) {
        return rows.is_null(row, column) ? std::string{} : std::string{rows.text(row, column)};
    };
    next_in_line next{.ticket = rows.integer(row, 4),
                      .session = rows.integer(row, 5),
                      .grant_id = rows.integer(row, 6),
                      .thread = text(7),
                      .note = text(8),
                      .deadline_us = rows.maybe_integer(row, 9),
                      .to = read_address(rows, row, 11),
                      .alive = microseconds{rows.integer(row, 10)},
                      .promised = rows.integer(row, 6) == promised,
                      .after = {},
                      .looks_from = rows.maybe_integer(row, 2)};
    if (line.size() > 1) {
        const std::size_t behind = std::next(line.begin())->second;
        if (rows.integer(behind, 4) > next.ticket - looks_back)
            next.after = rows.integer(behind, 6);
    }
    return next;
}

/// InnoDB shows a commit before it is on disk, and a server crash may take back what was read.
/// PostgreSQL shows it afterwards, or keeps a promise that is on disk (docs/adr/0023); what a
/// SQLite file shows outlives every process that reads it.
bool shows_before_durable(const sql::connection& db) {
    return db.speaks() == sql::dialect::mysql;
}

/// The ticket was cancelled while pass_on waited for it, which rolled all of it back.
bool has_gone(const error& failure) {
    return failure.sqlstate() == "22P02" &&
           failure.server_message().find("rowlock: the waiter has gone") != std::string::npos;
}

/// A client that loses a race reads again; each time another client made progress. The deadline
/// bounds it.
void check_time(sql::deadline until) {
    if (std::chrono::steady_clock::now() < until) return;
    throw error{errc::timed_out,
                "the lease could not be handed over before the deadline: others were faster again "
                "and again"};
}

/// The row of the statement next_waiter.
class queue_look {
public:
    explicit queue_look(sql::result row) : row_{std::move(row)} {
        if (row_.empty()) throw no_token_floor();
    }

    [[nodiscard]] bool present() const { return row_.integer(0, 1) != 0; }
    [[nodiscard]] bool free() const { return row_.integer(0, 3) != 0; }
    [[nodiscard]] bool is_grant(std::int64_t session, std::int64_t grant_id) const {
        return row_.maybe_integer(0, 4) == session && row_.maybe_integer(0, 5) == grant_id;
    }
    [[nodiscard]] bool waited() const { return !row_.is_null(0, 6); }
    [[nodiscard]] std::int64_t token() const { return row_.integer(0, 2); }

    [[nodiscard]] next_in_line next() const {
        const auto text = [&](std::size_t column) {
            return row_.is_null(0, column) ? std::string{} : std::string{row_.text(0, column)};
        };
        return {.ticket = row_.integer(0, 6),
                .session = row_.integer(0, 7),
                .grant_id = row_.integer(0, 8),
                .thread = text(9),
                .note = text(10),
                .deadline_us = row_.maybe_integer(0, 11),
                .to = read_address(row_, 0, 12),
                .seen = row_.integer(0, 2),
                .token = row_.integer(0, 0)};
    }

private:
    sql::result row_;
};

/// How the waiter that is served learns of it.
struct telling {
    bool by_mail = false;    ///< the caller notifies waiters that have a mailbox here
    std::int64_t giver = 0;  ///< the caller's session, which needs no notification
};

/// Grants the lease to the waiter that was read: the lease's row by compare-and-set on the token
/// that was read, then the ticket by its key, both or neither. Lease first: a client that deletes a
/// ticket waits for nothing more. No session's row is touched, so no heartbeat waits. The read may
/// be old. At that token the lease is still the grant that was read, or has been freed and not
/// granted since; if the ticket is gone everything is rolled back.
std::optional<handed_over> give(sql::connection& db, const sql::statements& sql,
                                std::string_view name, const next_in_line& next, const telling& how,
                                sql::deadline until) {
    const std::array lease{value{name},
                           value{next.session},
                           value{next.grant_id},
                           text_or_null(next.thread),
                           text_or_null(next.note),
                           value{next.deadline_us},
                           value{next.seen},
                           value{next.token}};
    const std::array ticket{value{next.ticket}};
    const std::array steps{sql::step{*sql.take, lease}, sql::step{*sql.delete_waiter, ticket}};
    handed_over done{
        .session = next.session, .grant_id = next.grant_id, .token = next.token, .to = next.to};
    const bool wakes = db.speaks() == sql::dialect::mysql && next.session != how.giver &&
                       !(how.by_mail && is_near(next.to));
    const auto wake = wakes ? wake_up::as_text(db, next.session, next.grant_id) : std::string{};
    if (uses(fast_path::single_text)) {
        if (const auto committed = db.transact(steps, wake, until)) {
            if (!*committed) return std::nullopt;
            if (wakes) wake_up::note_told(db, next.grant_id);
            done.woken = wakes;
            return done;
        }
    }
    transaction_scope transaction{db, until};
    for (const auto& each : steps) {
        // Granted by another client, or cancelled meanwhile.
        if (db.execute(each.what, each.parameters, until).affected() != 1) return std::nullopt;
    }
    transaction.commit(until);
    return done;
}

void restore_lease(sql::connection& db, const sql::statements& sql, std::string_view name,
                   sql::deadline until) {
    try {
        run(db, sql.restore_lease, until, name);
    } catch (const error& failure) {
        if (!another_inserts(failure)) throw;
    }
}

}  // namespace

void queue_protocol::enqueue(sql::connection& db, const grant_request& request,
                             sql::deadline until) const {
    try {
        run(db, leases_.sql().enqueue, until, request.name, request.session, request.grant_id,
            text_or_null(request.thread), text_or_null(request.note), request.deadline_us);
    } catch (const error& failure) {
        // A repetition. A statement without a conflict clause reports it as an error.
        if (failure.kind() != errc::unique_violation) throw;
    }
}

std::vector<std::int64_t> queue_protocol::cancel(sql::connection& db,
                                                 std::span<const std::int64_t> grant_ids,
                                                 sql::deadline until) const {
    const auto& sql = leases_.sql();
    if (grant_ids.empty()) return {};
    if (db.speaks() == sql::dialect::postgresql) {
        return first_column(run(db, *sql.cancel, until, array_of(grant_ids)));
    }
    std::vector<std::int64_t> deleted;
    if (sql.cancel) {
        for_each_list(db, *sql.cancel, alone, grant_ids, until, [&](const sql::result& rows) {
            for (const auto grant_id : first_column(rows)) deleted.push_back(grant_id);
        });
        return deleted;
    }
    for_each_list(db, *sql.tickets, alone, grant_ids, until, [&](const sql::result& rows) {
        if (rows.empty()) return;
        // One commit for all; in ticket order, so two clients cannot wait in a cycle.
        std::optional<transaction_scope> transaction;
        if (rows.rows() > 1) transaction.emplace(db, until);
        std::vector<std::int64_t> gone;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (run(db, *sql.delete_waiter, until, rows.integer(row, 1)).affected() == 0) continue;
            gone.push_back(rows.integer(row, 0));
        }
        if (transaction) transaction->commit(until);
        deleted.insert(deleted.end(), gone.begin(), gone.end());
    });
    return deleted;
}

places queue_protocol::places_of(sql::connection& db, std::int64_t session,
                                 sql::deadline until) const {
    return read_places(run(db, leases_.sql().places, until, session));
}

places queue_protocol::places_at(sql::connection& db, std::int64_t session,
                                 std::span<const std::int64_t> grant_ids,
                                 sql::deadline until) const {
    const auto& sql = leases_.sql();
    if (!sql.places_at) return places_of(db, session, until);
    return read_places(run(db, *sql.places_at, until, session, array_of(grant_ids)));
}

void queue_protocol::reset_watermark(sql::connection& db, std::string_view name,
                                     std::int64_t ticket, sql::deadline until) const {
    const auto& sql = leases_.sql();
    if (sql.reset_watermark) run(db, *sql.reset_watermark, until, name, ticket);
}

std::optional<queue_grant> queue_protocol::served(sql::connection& db, std::string_view name,
                                                  std::int64_t session, std::int64_t grant_id,
                                                  sql::deadline until,
                                                  std::optional<std::int64_t> told) const {
    const auto granted = read_served(db, name, session, grant_id, until);
    if (!granted || granted->token == told || !shows_before_durable(db)) return granted;
    const std::array found{granted_name{name, grant_id}};
    if (!leases_.make_durable(db, session, found, until).front()) return std::nullopt;
    return granted;
}

std::vector<std::optional<queue_grant>> queue_protocol::served(sql::connection& db,
                                                               std::int64_t session,
                                                               std::span<const granted_name> places,
                                                               sql::deadline until) const {
    std::vector<std::optional<queue_grant>> all;
    std::vector<granted_name> found;
    for (const auto& each : places) {
        all.push_back(read_served(db, each.name, session, each.grant_id, until));
        if (all.back()) found.push_back(each);
    }
    if (found.empty() || !shows_before_durable(db)) return all;
    const auto ours = leases_.make_durable(db, session, found, until);
    auto next = ours.begin();
    for (auto& each : all) {
        if (each && !*next++) each.reset();
    }
    return all;
}

std::optional<queue_grant> queue_protocol::read_served(sql::connection& db, std::string_view name,
                                                       std::int64_t session, std::int64_t grant_id,
                                                       sql::deadline until) const {
    const auto row = run(db, leases_.sql().served, until, name, session, grant_id);
    if (row.empty()) return std::nullopt;
    return queue_grant{row.integer(0, 0), row.maybe_integer(0, 1)};
}

std::vector<served_place> queue_protocol::served_of(sql::connection& db, std::int64_t session,
                                                    std::span<const std::string> names,
                                                    sql::deadline until) const {
    const std::array first{value{session}};
    std::vector<served_place> found;
    for_each_list(db, *leases_.sql().woken_for, first, names, until, [&](const sql::result& rows) {
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            found.push_back({rows.integer(row, 0),
                             {rows.integer(row, 1), rows.maybe_integer(row, 2)},
                             rows.integer(row, 3) != 0});
        }
    });
    return found;
}

std::vector<served_place> queue_protocol::held_of(sql::connection& db, std::int64_t session,
                                                  std::span<const std::string> names,
                                                  sql::deadline until) const {
    const auto& sql = leases_.sql();
    std::vector<served_place> found;
    const auto add = [&](const sql::result& rows) {
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            found.push_back({rows.integer(row, 0), {rows.integer(row, 1), std::nullopt}});
        }
    };
    if (db.speaks() == sql::dialect::postgresql) {
        array_text all;
        for (const auto& name : names) all.add(name);
        add(run(db, sql.held_leases, until, session, all.close()));
    } else {
        for_each_list(db, sql.held_leases, std::array{value{session}}, names, until, add);
    }
    return found;
}

std::optional<handed_over> queue_protocol::grant_next(sql::connection& db, std::string_view name,
                                                      sql::deadline until) const {
    const auto& sql = leases_.sql();
    for (;; check_time(until)) {
        if (sql.grant_next) {
            const auto row = run(db, *sql.grant_next, until, name);
            if (auto next = read_handed_over(row, 2)) {
                next->woken = true;
                return next;
            }
            if (row.integer(0, 0) == 0) return std::nullopt;
            if (row.integer(0, 1) != 0) restore_lease(db, sql, name, until);
            continue;
        }
        const queue_look seen{run(db, *sql.next_waiter, until, name)};
        if (!seen.free() || !seen.waited()) return std::nullopt;
        if (!seen.present()) {
            restore_lease(db, sql, name, until);
        } else if (auto next = give(db, sql, name, seen.next(), {by_mail_}, until)) {
            return next;
        }
    }
}

release_outcome queue_protocol::release(sql::connection& db, std::string_view name,
                                        std::int64_t session, std::int64_t grant_id, bool contended,
                                        sql::deadline until) const {
    const auto& sql = leases_.sql();
    if (sql.hand_over) {
        const int may_be_asynchronous = db.keeps_session_state() ? 1 : 0;
        if (!contended &&
            run(db, *sql.release_unwaited, until, name, session, grant_id, may_be_asynchronous)
                    .affected() > 0) {
            return {true, std::nullopt};
        }
        const auto row =
            run(db, *sql.hand_over, until, name, session, grant_id, may_be_asynchronous);
        auto next = read_handed_over(row, 1);
        if (next) next->woken = true;
        return {row.integer(0, 0) != 0, next};
    }
    if (sql.release_unwaited && !contended) {
        if (run(db, *sql.release_unwaited, until, name, session, grant_id).affected() > 0) {
            return {true, std::nullopt, true};
        }
        contended = true;
    }
    for (; contended; check_time(until)) {
        const queue_look seen{run(db, *sql.next_waiter, until, name)};
        if (!seen.is_grant(session, grant_id) || !seen.waited()) break;
        if (auto next = give(db, sql, name, seen.next(), {by_mail_, session}, until))
            return {true, next};
    }
    return {leases_.release(db, name, session, grant_id, until), std::nullopt};
}

std::optional<settled_grant> queue_protocol::settle(sql::connection& db, std::string_view name,
                                                    std::int64_t session, std::int64_t grant_id,
                                                    bool durably, sql::deadline until) const {
    const auto& sql = leases_.sql();
    if (db.speaks() == sql::dialect::mysql) {
        // The waiter's session is not checked again before the release: it may die meanwhile.
        constexpr auto reliable = std::chrono::seconds{1};
        const queue_look seen{run(db, *sql.next_waiter, until, name)};
        if (!seen.is_grant(session, grant_id)) return std::nullopt;
        settled_grant settled{{seen.token(), std::nullopt}, std::nullopt};
        if (seen.waited()) (settled.next = seen.next())->alive = reliable;
        return settled;
    }
    if (!sql.settle) {
        const auto granted = served(db, name, session, grant_id, until);
        if (!granted) return std::nullopt;
        return settled_grant{*granted, std::nullopt};
    }
    const auto rows = run(db, *sql.settle, until, name, session, grant_id, durably ? 1 : 0);
    if (rows.empty()) return std::nullopt;
    return settled_grant{{rows.integer(0, 0), rows.maybe_integer(0, 1)}, read_next_in_line(rows)};
}

std::optional<handed_over> queue_protocol::pass_on(sql::connection& db, std::string_view name,
                                                   std::int64_t session, std::int64_t grant_id,
                                                   const next_in_line& next, const passing& how,
                                                   sql::deadline until) const {
    if (!leases_.sql().pass_on)
        return give(db, leases_.sql(), name, next, {by_mail_, session}, until);
    const bool reserves = uses(fast_path::reserved_token);
    const bool asynchronous =
        reserves && next.promised && how.may_be_asynchronous && db.keeps_session_state();
    try {
        const auto row =
            run(db, *leases_.sql().pass_on, until, name, session, grant_id, next.ticket,
                next.session, next.grant_id, text_or_null(next.thread), text_or_null(next.note),
                next.deadline_us, asynchronous ? 1 : 0, reserves ? next.after : std::nullopt,
                next.looks_from, how.notify ? 1 : 0, next.to.number, next.to.secret);
        if (row.empty()) return std::nullopt;
        return handed_over{next.session, next.grant_id, row.integer(0, 0),
                           how.notify,   asynchronous,  next.to};
    } catch (const error& failure) {
        if (!has_gone(failure)) throw;
        return std::nullopt;
    }
}

std::vector<std::string> queue_protocol::names_with_waiters(sql::connection& db,
                                                            std::span<const std::string> names,
                                                            sql::deadline until) const {
    return distinct_names(db, leases_.sql().names_with_waiters, alone, names, until);
}

std::vector<std::string> queue_protocol::leave(sql::connection& db, std::int64_t session,
                                               std::span<const std::string> names,
                                               sql::deadline until) const {
    const auto& sql = leases_.sql();
    if (sql.leave && !names.empty()) {
        return distinct_names(db, *sql.leave, std::array{value{session}}, names, until);
    }
    leases_.delete_session(db, session, until);
    return names_with_waiters(db, names, until);
}

std::vector<std::string> queue_protocol::queues_of_session(sql::connection& db,
                                                           std::int64_t session,
                                                           sql::deadline until) const {
    const auto rows = run(db, leases_.sql().queues_of_session, until, session);
    std::vector<std::string> names;
    names.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) names.emplace_back(rows.text(row, 0));
    return names;
}

std::vector<deadlock_found> queue_protocol::deadlocks(sql::connection& db, std::int64_t session,
                                                      sql::deadline until) const {
    return wait_graph{run(db, leases_.sql().deadlocks, until, session)}.cycles(session);
}

void queue_protocol::tell_served(sql::connection& db, const handed_over& next,
                                 sql::deadline until) const noexcept {
    if (next.woken) return;
    try {
        const auto said =
            encode_wakeup({next.grant_id, next.token, next.asynchronous}, next.to.secret);
        if (by_mail_ && post(next.to, said)) return;
        if (db.speaks() == sql::dialect::mysql) {
            wake_up::wake(db, next.session, next.grant_id, until);
        } else if (db.speaks() == sql::dialect::postgresql) {
            notify(db, next.to, said, until);
        }
    } catch (...) {
        // The connection broke, or there is no memory. The grant is committed.
    }
}

void queue_protocol::tell_to_look(sql::connection& db, std::int64_t session,
                                  sql::deadline until) const noexcept {
    try {
        const auto change = leases_.change_of(db, session, until);
        if (!change) return;
        const auto said = said_to_look(change->revision, change->to.secret);
        if (by_mail_ && post(change->to, said)) return;
        if (db.speaks() == sql::dialect::postgresql) notify(db, change->to, said, until);
    } catch (...) {
        // The connection broke, the secret may not be read, or there is no memory. The change is
        // committed.
    }
}

bool is_near(const wake_address& session) noexcept {
    return wakeup::mail_to{session.number, session.mailbox}.reachable();
}

}  // namespace rowlock::strategy

#include "lock/protocol/semaphore/semaphore_protocol.hpp"

#include "lock/protocol/semaphore/semaphore_dialects.hpp"
#include "sql/damaged.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::protocol {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using outcome = attempt::outcome;

error invalid(std::string_view name, const std::string& why) {
    return {errc::invalid_options, "semaphore \"" + std::string{name} + "\": " + why};
}

void require_permits(const grant_request& request) {
    if (request.permits.count < 1) throw invalid(request.name, "ask for one permit or more");
}

int number_of(counter_kind kind) {
    return static_cast<int>(kind);
}

void require_capacity(std::string_view name, std::int64_t capacity) {
    if (capacity < 0 || capacity > largest_capacity) {
        throw invalid(name, "its capacity must be from 0 to " + std::to_string(largest_capacity));
    }
}

/// Reads the columns of the fragment semaphore_info.
semaphore_info read_semaphore(const sql::result& rows, std::size_t row) {
    return {.name = std::string{rows.text(row, 0)},
            .capacity = sql::shown_integer(rows, row, 1),
            .used = sql::shown_integer(rows, row, 2),
            .waiting = sql::shown_integer(rows, row, 3),
            .wanted = sql::shown_integer(rows, row, 4)};
}

std::string text_of(const sql::result& rows, std::size_t row, std::size_t column) {
    return rows.is_null(row, column) ? std::string{} : std::string{rows.text(row, column)};
}

milliseconds time_of(const sql::result& rows, std::size_t row, std::size_t column) {
    return std::chrono::floor<milliseconds>(microseconds{sql::shown_integer(rows, row, column)});
}

}  // namespace

void require_obtainable(std::string_view name, const wanted_permits& wanted,
                        std::optional<std::int64_t> capacity) {
    if (!wanted.of_semaphore()) {
        if (capacity) throw name_of_semaphore(name);
        return;
    }
    if (!capacity) throw invalid(name, "it has no capacity yet: set one first");
    if (wanted.count > *capacity) {
        throw invalid(name, std::to_string(wanted.count) + " permits were asked for, and it has " +
                                std::to_string(*capacity) + " in all: this could never succeed");
    }
}

void semaphore_protocol::check_time(sql::deadline until) {
    if (std::chrono::steady_clock::now() < until) return;
    throw error{errc::timed_out,
                "permits could not be changed before the deadline: others were faster again and "
                "again"};
}

semaphore_protocol::semaphore_protocol(const sql::statement_set& statements)
    : set_capacity_{statements("set_capacity")},
      create_{statements("create_semaphore")},
      make_row_{statements("restore_lease")},
      state_{statements("semaphore_state")},
      find_{statements("find_permits")},
      holders_{statements("permit_holders")},
      expired_{statements("expired_holders")},
      permits_of_{statements("permits_of")},
      neglected_{statements("holds_to_tend")},
      lock_{statements("lock_semaphore")},
      correct_{statements("correct_counter")},
      exists_{statements("counter_exists")},
      inspect_{statements("inspect_semaphore")},
      list_{statements("list_semaphores")},
      holders_for_people_{statements("holders_of_permits")},
      queue_{statements("queue")},
      to_end_{statements("hold_to_end")},
      lock_hold_{statements("lock_permit")},
      shorten_{statements("shorten_permit")},
      end_{statements("end_permit")},
      bump_revision_{statements("bump_revision")},
      extend_{statements("extend_permit")},
      session_{statements("session_state")},
      raise_token_{statements("raise_counter_token")},
      reclaim_{statements("reclaim_permit")},
      upgrade_look_{statements("upgrade_look")},
      upgrade_lock_{statements("upgrade_lock")},
      drop_upgrade_{statements("drop_upgrade")} {}

attempt semaphore_protocol::acquire(sql::connection& db, const grant_request& request,
                                    sql::deadline until) const {
    require_permits(request);
    if (request.permits.is_upgrade()) return upgrade(db, request, until);
    if (const auto token = take(db, request, until)) return {outcome::granted, *token, {}};
    return judge(db, request, until);
}

std::vector<std::optional<attempt>> semaphore_protocol::acquire_together(
    sql::connection& db, std::span<const grant_request> requests, sql::deadline until) const {
    std::vector<std::optional<attempt>> found(requests.size());
    if (requests.empty()) return found;
    const auto tokens = take_together(db, requests, until);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] > 0) found[i] = {outcome::granted, tokens[i], {}};
    }
    if (tokens.size() == requests.size()) return found;
    // A failure of this read must not hide the grants: the others ask alone.
    const auto& first = requests.front();
    std::optional<state> seen;
    try {
        seen = state_of(db, first.name, first.session, until);
    } catch (const error&) {
        if (tokens.empty()) throw;
        return found;
    }
    if (!seen->present || seen->kind() != first.permits.of || !seen->session_live) return found;
    for (std::size_t i = tokens.size(); i < requests.size(); ++i) {
        const auto permits = requests[i].permits.count;
        if (seen->capacity && permits > *seen->capacity) continue;
        if (!seen->waited && seen->has(permits)) continue;
        found[i] = {outcome::held, 0, seen->seen()};
    }
    return found;
}

/// Why nothing could be taken, or what was taken after all.
attempt semaphore_protocol::judge(sql::connection& db, const grant_request& request,
                                  sql::deadline until) const {
    const auto& wanted = request.permits;
    const auto seen = state_of(db, request.name, request.session, until);
    require_obtainable(request.name, wanted, seen.capacity);
    if (!seen.present) {
        restore_row(db, make_row_, request.name, until);
        return {outcome::contested, 0, {.session_live = seen.session_live}};
    }
    attempt found{outcome::held, 0, seen.seen()};
    if (!seen.session_live) {
        found.what = outcome::session_dead;
    } else if (!seen.waited && seen.has(wanted.count)) {
        found.what = outcome::contested;  // given back meanwhile
    }
    return found;
}

/// A look, then a write that compares the token it found. So an attempt that comes late changes
/// nothing: by then its client may have gone back to the weaker mode.
attempt semaphore_protocol::upgrade(sql::connection& db, const grant_request& request,
                                    sql::deadline until) const {
    const auto seen =
        sql::run(db, upgrade_look_, until, request.name, request.session, request.permits.upgrades);
    if (seen.empty()) {
        if (!state_of(db, request.name, request.session, until).session_live) {
            return {outcome::session_dead, 0, {}};
        }
        throw error{errc::lock_lost, "the hold that was to be upgraded is over"};
    }
    if (seen.integer(0, 3) == 0) return {outcome::held, 0, {.session_live = true, .counted = true}};
    const auto next = seen.maybe_integer(0, 1);
    if (!next) throw no_token_floor();
    const auto token = *next;
    const auto done = sql::run(db, upgrade_lock_, until, request.name, request.grant_id,
                               seen.integer(0, 0), token, seen.integer(0, 2));
    if (done.affected() == 1) return {outcome::granted, token, {}};
    return {outcome::contested, 0, {.session_live = true}};
}

std::optional<std::int64_t> semaphore_protocol::find_grant(sql::connection& db,
                                                           std::string_view name,
                                                           session_id session, grant_id grant_id,
                                                           sql::deadline until) const {
    const auto found = served(db, name, session, grant_id, until);
    return found ? std::optional{found->token} : std::nullopt;
}

bool semaphore_protocol::release(sql::connection& db, std::string_view name, session_id session,
                                 grant_id grant_id, std::int64_t permits,
                                 sql::deadline until) const {
    return give(db, name, session, grant_id, permits, until) ||
           sql::run(db, drop_upgrade_, until, name, grant_id).affected() == 1;
}

void semaphore_protocol::set_capacity(sql::connection& db, std::string_view name,
                                      std::int64_t capacity, sql::deadline until) const {
    if (!create(db, name, capacity, until)) sql::run(db, set_capacity_, until, name, capacity);
}

bool semaphore_protocol::create(sql::connection& db, std::string_view name, std::int64_t capacity,
                                sql::deadline until) const {
    require_capacity(name, capacity);
    for (int looks = 0; looks < 16; ++looks) {
        if (sql::run(db, create_, until, name, capacity).affected() == 1) return true;
        const auto seen = state_of(db, name, {}, until);
        if (seen.capacity) return false;
        if (seen.sole || seen.used > 0 || seen.waited) break;
        // Free, at the floor; to become a semaphore raises the token. Another client may make it.
        if (!seen.present) restore_row(db, make_row_, name, until);
    }
    throw error{errc::invalid_options,
                "\"" + std::string{name} +
                    "\" is the name of a lock that is held or waited for: choose another for the "
                    "semaphore, or make it while that is free"};
}

/// The number that is lowered is the one that was read, or nothing happens: then it is read again.
bool semaphore_protocol::shrink(sql::connection& db, std::string_view name, session_id session,
                                grant_id grant_id, std::int64_t to, sql::deadline until) const {
    for (;;) {
        const auto seen = read(db, name, session, grant_id, until);
        if (!seen || seen->granted.deadline_us.value_or(1) <= 0) return false;
        if (seen->permits <= to) return true;
        if (shrink_now(db, name, session, grant_id, *seen, to, until)) return true;
        check_time(until);
    }
}

/// After a lost reply the hold is there already, and may not be on disk yet.
bool semaphore_protocol::lower(sql::connection& db, std::string_view name, session_id session,
                               grant_id grant_id, std::int64_t to, sql::deadline until) const {
    return lower_now(db, name, session, grant_id, to, until) ||
           (served(db, name, session, grant_id, until) &&
            shrink(db, name, session, grant_id, to, until));
}

std::int64_t semaphore_protocol::sweep(sql::connection& db, std::string_view name,
                                       sql::deadline until) const {
    std::int64_t permits = 0;
    for (;;) {
        const auto some = sweep_some(db, name, until);
        if (some == 0) return permits;
        permits += some;
    }
}

semaphore_protocol::state semaphore_protocol::state_of(sql::connection& db, std::string_view name,
                                                       session_id session,
                                                       sql::deadline until) const {
    const auto row = sql::run(db, state_, until, name, session);
    return {
        .present = !row.is_null(0, 1),
        .capacity = row.maybe_integer(0, 0),
        .used = row.maybe_integer(0, 1).value_or(0),
        .session_live = row.integer(0, 2) != 0,
        .waited = row.integer(0, 3) != 0,
        .sole = row.integer(0, 4) != 0,
        .holder = row.maybe_integer<session_id>(0, 5).value_or(session_id{}),
        .holders_grant = row.maybe_integer<rowlock::grant_id>(0, 6).value_or(rowlock::grant_id{})};
}

std::optional<semaphore_protocol::found_hold> semaphore_protocol::read(sql::connection& db,
                                                                       std::string_view name,
                                                                       session_id session,
                                                                       grant_id grant_id,
                                                                       sql::deadline until) const {
    const auto row = sql::run(db, find_, until, name, session, grant_id);
    if (row.empty()) return std::nullopt;
    return found_hold{{row.integer(0, 0), row.maybe_integer(0, 1)}, row.integer(0, 2)};
}

permit_holders semaphore_protocol::holders_of(sql::connection& db, std::string_view name,
                                              sql::deadline until) const {
    const auto row = sql::run(db, holders_, until, name);
    permit_holders found{.expired = row.integer(0, 0) != 0,
                         .over = row.integer(0, 1) != 0,
                         .free = row.maybe_integer(0, 3).value_or(0),
                         .remaining = microseconds{row.maybe_integer(0, 2).value_or(0)}};
    if (const auto session = row.maybe_integer<session_id>(0, 4)) {
        const bool gone = row.integer(0, 6) != 0;
        const bool expired = !gone && row.integer(0, 7) != 0;
        found.sole = {*session, row.integer(0, 5), gone, expired};
        const microseconds left{row.maybe_integer(0, 8).value_or(0)};
        if (!gone && !expired) found.remaining = left;  // nobody else holds anything
    }
    return found;
}

std::vector<session_id> semaphore_protocol::expired_holders(sql::connection& db,
                                                            std::string_view name,
                                                            sql::deadline until) const {
    const auto rows = sql::run(db, expired_, until, name);
    std::vector<session_id> found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.push_back(rows.integer<session_id>(row, 0));
    }
    return found;
}

std::vector<session_lease> semaphore_protocol::permits_of(sql::connection& db, session_id session,
                                                          sql::deadline until) const {
    const auto rows = sql::run(db, permits_of_, until, session);
    std::vector<session_lease> found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.push_back({std::string{rows.text(row, 0)}, rows.integer<grant_id>(row, 1),
                         rows.integer(row, 2), rows.maybe_integer(row, 3),
                         rows.integer(row, 4) != 0, rows.integer(row, 5), rows.integer(row, 6) != 0,
                         read_request(rows, row, 7),
                         rows.maybe_integer<grant_id>(row, 9).value_or(grant_id{}),
                         rows.maybe_integer(row, 10).value_or(0), rows.integer(row, 11) != 0});
    }
    return found;
}

/// All holds are locked before the first counter, as in a sweep.
void semaphore_protocol::reclaim(sql::connection& db, session_id predecessor, session_id session,
                                 sql::deadline until) const {
    auto holds = permits_of(db, predecessor, until);
    std::erase_if(holds, [](const auto& each) { return each.forced || each.requested; });
    std::ranges::sort(holds, {}, [](const auto& each) {
        return std::pair{each.name, each.grant_id};
    });
    std::erase_if(holds, [&](const auto& each) {
        return sql::run(db, lock_hold_, until, each.name, each.grant_id, predecessor).empty();
    });
    std::ranges::sort(holds, {}, [](const auto& each) { return std::pair{each.name, each.token}; });
    for (const auto& hold : holds) {
        sql::run(db, raise_token_, until, hold.name);
        sql::run(db, reclaim_, until, hold.name, hold.grant_id, predecessor, session);
    }
}

std::vector<neglected_semaphore> semaphore_protocol::neglected(sql::connection& db,
                                                               std::string_view after,
                                                               std::int64_t limit,
                                                               sql::deadline until) const {
    const auto rows = sql::run(db, neglected_, until, after, limit);
    std::vector<neglected_semaphore> found;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        found.push_back({std::string{rows.text(row, 0)}, rows.integer(row, 1)});
    }
    return found;
}

bool semaphore_protocol::correct(sql::connection& db, std::string_view name,
                                 sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    sql::run(db, lock_, until, name);
    const bool changed = sql::run(db, correct_, until, name).affected() == 1;
    transaction.commit(until);
    return changed;
}

std::optional<hold_id> semaphore_protocol::hold_to_end(sql::connection& db, std::string_view name,
                                                       std::int64_t token,
                                                       sql::deadline until) const {
    const auto row = sql::run(db, to_end_, until, name, token);
    if (row.empty()) return std::nullopt;
    return hold_id{row.integer<session_id>(0, 0), row.integer<grant_id>(0, 1)};
}

extension semaphore_protocol::extend(sql::connection& db, std::string_view name, session_id session,
                                     grant_id grant_id, microseconds by, std::int64_t revision,
                                     sql::deadline until) const {
    sql::transaction_scope transaction{db, until};
    const auto hold = sql::run(db, lock_hold_, until, name, grant_id, session);
    if (hold.empty()) return extension::over;
    const auto at = sql::run(db, session_, until, session);
    if (at.empty() || at.integer(0, 0) == 0) return extension::over;
    if (at.integer(0, 1) != revision) return extension::unseen_change;
    const auto seen = read(db, name, session, grant_id, until);
    if (seen.value_or(found_hold{}).granted.deadline_us.value_or(0) <= 0) return extension::over;
    if (hold.integer(0, 0) != 0) return extension::requested;
    if (sql::run(db, extend_, until, name, grant_id, session, by.count()).affected() != 1) {
        return extension::over;
    }
    transaction.commit(until);
    return extension::done;
}

/// The hold is locked first, then its session, as lease_protocol::request_release.
std::optional<requested_release> semaphore_protocol::request_release(sql::connection& db,
                                                                     std::string_view name,
                                                                     std::int64_t token,
                                                                     const release_terms& terms,
                                                                     sql::deadline until) const {
    const auto hold = hold_to_end(db, name, token, until);
    if (!hold) return std::nullopt;
    {
        sql::transaction_scope transaction{db, until};
        if (sql::run(db, lock_hold_, until, name, hold->grant_id, hold->session).empty()) {
            return std::nullopt;
        }
        sql::run(db, bump_revision_, until, hold->session);
        sql::run(db, shorten_, until, name, hold->grant_id, hold->session, terms.within.count(),
                 sql::text_or_null(terms.asked_by), sql::text_or_null(terms.reason));
        transaction.commit(until);
    }
    const auto seen = read(db, name, hold->session, hold->grant_id, until);
    const auto left = seen ? seen->granted.deadline_us.value_or(0) : 0;
    return requested_release{.session = hold->session,
                             .left = std::max(microseconds{left}, microseconds{0})};
}

/// After a lost reply the same hold is ended again, even if it is over by then: this commit is
/// durable, and with it those before it.
bool semaphore_protocol::force_release(sql::connection& db, std::string_view name,
                                       std::int64_t token, std::string_view by,
                                       std::optional<hold_id>& whom, sql::deadline until) const {
    const bool again = whom.has_value();
    if (!again) whom = hold_to_end(db, name, token, until);
    if (!whom) return false;
    sql::transaction_scope transaction{db, until};
    sql::run(db, lock_hold_, until, name, whom->grant_id, whom->session);
    const auto done =
        sql::run(db, end_, until, name, whom->grant_id, whom->session, sql::text_or_null(by));
    if (done.affected() == 0 && !again) {
        whom.reset();
        return false;
    }
    sql::run(db, bump_revision_, until, whom->session);
    transaction.commit(until);
    return true;
}

bool semaphore_protocol::exists(sql::connection& db, std::string_view name, counter_kind kind,
                                sql::deadline until) const {
    return sql::run(db, exists_, until, name, number_of(kind)).integer(0, 0) != 0;
}

std::optional<semaphore_info> semaphore_protocol::inspect(sql::connection& db,
                                                          std::string_view name, counter_kind kind,
                                                          sql::deadline until) const {
    const auto row = sql::run(db, inspect_, until, name, number_of(kind));
    if (row.empty()) return std::nullopt;
    return read_semaphore(row, 0);
}

std::vector<semaphore_info> semaphore_protocol::list(sql::connection& db, std::string_view prefix,
                                                     counter_kind kind, const page& page,
                                                     sql::deadline until) const {
    // As the list of leases.
    const std::string end = std::string{prefix} + "\xF4\x8F\xBF\xBF";
    const auto rows =
        sql::run(db, list_, until, prefix, end, page.after, page.limit, number_of(kind));
    std::vector<semaphore_info> all;
    for (std::size_t row = 0; row < rows.rows(); ++row) all.push_back(read_semaphore(rows, row));
    return all;
}

std::vector<held_permits> semaphore_protocol::holders(sql::connection& db, std::string_view name,
                                                      int limit, sql::deadline until) const {
    const auto rows = sql::run(db, holders_for_people_, until, name, limit);
    std::vector<held_permits> all;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        permit_holder shown = {.who = {.session = session_id{sql::shown_integer(rows, row, 0)},
                                       .grant_id = grant_id{sql::shown_integer(rows, row, 1)},
                                       .owner = std::string{rows.text(row, 2)},
                                       .host = std::string{rows.text(row, 3)},
                                       .program = std::string{rows.text(row, 4)},
                                       .thread = text_of(rows, row, 5),
                                       .note = text_of(rows, row, 6),
                                       .pid = sql::shown_integer(rows, row, 7),
                                       .held_for = time_of(rows, row, 8),
                                       .remaining = time_of(rows, row, 9)},
                               .token = fencing_token{sql::shown_integer(rows, row, 11)},
                               .permits = sql::shown_integer(rows, row, 10)};
        all.push_back({std::move(shown), fencing_token{sql::shown_integer(rows, row, 12)}});
    }
    return all;
}

std::vector<permit_waiter> semaphore_protocol::queue(sql::connection& db, std::string_view name,
                                                     sql::deadline until) const {
    const auto rows = sql::run(db, queue_, until, name);
    std::vector<permit_waiter> all;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        all.push_back({.who = {.name = std::string{name},
                               .position = static_cast<std::int64_t>(row) + 1,
                               .ticket = ticket_no{sql::shown_integer(rows, row, 0)},
                               .session = session_id{sql::shown_integer(rows, row, 1)},
                               .owner = std::string{rows.text(row, 2)},
                               .host = std::string{rows.text(row, 3)},
                               .program = std::string{rows.text(row, 4)},
                               .thread = text_of(rows, row, 5),
                               .note = text_of(rows, row, 6),
                               .pid = sql::shown_integer(rows, row, 7),
                               .waited = time_of(rows, row, 8)},
                       .permits = rows.is_null(row, 11) ? permits_for(lock_mode::exclusive)
                                                        : sql::shown_integer(rows, row, 11)});
    }
    return all;
}

std::unique_ptr<const semaphore_protocol> make_semaphore_protocol(
    const sql::statement_set& statements) {
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_semaphores(statements);
        case sql::dialect::mysql:
            return make_mysql_semaphores(statements);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_semaphores(statements);
}

}  // namespace rowlock::protocol

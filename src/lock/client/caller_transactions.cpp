// Leases in the caller's transactions; with the functions of transaction.hpp.

#include "lock/client/caller_transactions.hpp"

#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include "sql/in_transaction.hpp"
#include <rowlock/error.hpp>
#include <rowlock/transaction.hpp>

#include <mutex>
#include <string>
#include <vector>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

void validate(const fence_options& options) {
    require(options.statement_timeout > 0ms && options.statement_timeout <= 1min,
            "a fence's statement_timeout must be positive and at most one minute");
    require(options.max_idle >= 0ms && options.max_idle <= 24h,
            "a fence's max_idle must be from 0 (the ttl) to 1 day");
}

/// The same error with advice that applies to a caller's connection.
error with_advice(const error& failure) {
    const char* advice = nullptr;
    if (failure.kind() == errc::schema_outdated) {
        advice =
            "; the transaction's connection must see the client's tables: the same database and "
            "schema (or search_path)";
    } else if (failure.kind() == errc::access_denied) {
        advice =
            "; the transaction's user needs SELECT on the session table, SELECT and UPDATE on the "
            "lease table, or for permits and shared_mutexes on the permit table (SQLite: on both), "
            "and beside a "
            "quorum lock on the quorum table";
    } else if (failure.kind() == errc::read_only) {
        advice =
            "; it locks or writes a row: the transaction must not be read-only, nor on a standby";
    }
    if (advice == nullptr) return failure;
    return error{failure.kind(),
                 failure.what() + std::string{advice},
                 {failure.sqlstate(), failure.native_code(), failure.server_message()}};
}

}  // namespace

void caller_transactions::fence(sql::connection& db, grant& held, const fence_options& options) {
    const unsigned releases_before = [&] {
        const std::lock_guard lock{held.mutex};
        return held.releases_in;
    }();
    run(db, held, options, &detail::fencing::fence);
    hold_again(held, releases_before);
}

void caller_transactions::release_on_commit(sql::connection& db, grant& held,
                                            const fence_options& options) {
    require(held.is_whole(),
            "a part of a lock cannot be released by a transaction: only a whole lock");
    run(db, held, options, &detail::fencing::release_on_commit);
    const std::lock_guard lock{held.mutex};
    ++held.releases_in;
    // Unless it was declared lost meanwhile: the transaction frees the row all the same.
    auto expected = grant::state::held;
    held.now.compare_exchange_strong(expected, grant::state::released_in);
    waiting_.freed_soon(held.name);
}

void caller_transactions::fence_quorum_token(sql::connection& db, const std::string& name,
                                             std::int64_t token,
                                             const fence_options& options) const {
    const auto until = steady::now() + options.statement_timeout + 1s;
    const fence_limits limits{.statement = options.statement_timeout, .idle = context_.options.ttl};
    auto seen = verdict::current;
    try {
        seen = fencing_->fence_quorum_token(db, name, token, limits, until);
    } catch (const error& failure) {
        throw with_advice(failure);
    }
    if (seen == verdict::current) return;
    throw error{errc::lock_lost,
                "this member knows a later token of the quorum lock, a holder's or an attempt's: "
                "roll the transaction back, release the lock and acquire it again"};
}

void caller_transactions::run(sql::connection& db, grant& held, const fence_options& options,
                              step what) {
    context_.fork.require_same_process();
    validate(options);
    require(db.speaks() == context_.speaks(),
            "this connection is to another kind of database than the lease's client: lock and data "
            "must live in one database");
    held.fenced = true;
    require_fenceable(held);
    // The server, which may be busy, should time out first: its refusal leaves the connection
    // usable, ours does not.
    constexpr auto grace = 1s;
    const auto until = steady::now() + options.statement_timeout + grace;
    const fence_limits limits{
        .statement = options.statement_timeout,
        .idle = options.max_idle > 0ms ? options.max_idle : context_.options.ttl,
        .two_phase = options.two_phase};
    auto seen = verdict::current;
    std::int64_t token = 0;
    const bool part = held.is_part();
    try {
        sql::require_transaction(db, "a fence", until);
        token = held.row_token;
        const claim lease{.name = held.name,
                          .session = held.session_id,
                          .token = token,
                          .grant_id = held.grant_id,
                          .permits = part};
        seen = ((*fencing_).*what)(db, lease, limits, until);
    } catch (const error& failure) {
        throw with_advice(failure);
    }
    if (seen == verdict::current) return;
    // Set before the statement is sent that makes a part of the lock.
    if (!part && held.perhaps_lowered) {
        throw error{errc::conflict,
                    "the hold goes to a weaker mode at this moment, or its downgrade has failed: "
                    "downgrade it again if so, and run the whole transaction again"};
    }
    refuse(db, held, token, seen, until);
}

/// Checks what is known without a round trip.
void caller_transactions::require_fenceable(grant& held) {
    grants_.declare_if_over(held);
    const auto now = held.now.load();
    if (now == grant::state::held) return;
    if (now == grant::state::lost) throw lost_error(held);
    const auto time = context_.now();
    const bool in_time = held.session_trust->open(time) && held.in_time(time);
    if (now == grant::state::released_in && in_time) return;
    if (now == grant::state::offered) {
        throw error{errc::not_owner, "this lease was offered to another process"};
    }
    if (now == grant::state::released_in) {
        throw error{errc::lock_lost, "the lease was released in a transaction, and is over by now"};
    }
    throw error{errc::not_owner, "this lease has been released: acquire it anew"};
}

/// Reads the lease on a connection of our own, whose view is not the transaction's.
caller_transactions::standing caller_transactions::look_up(grant& held,
                                                           sql::deadline until) noexcept {
    try {
        const auto db = connections_.take_spare(until);
        const auto [session_live, token] = context_.holds.look_up(*db, held.key(), until);
        if (!session_live) return standing::session_over;
        if (!token) return standing::over;
        // An extension whose answer has not arrived.
        if (*token <= held.next_row_token) raise(held.row_token, *token);
        return standing::ours;
    } catch (const std::exception&) {
        return standing::unknown;
    }
}

/// Whether a transaction whose view does not show the grant reads tables of the same names in
/// another database.
bool caller_transactions::is_elsewhere(sql::connection& db, sql::deadline until) noexcept {
    try {
        const auto theirs = fencing_->database_of(db, until);
        if (!theirs) return false;
        const auto ours = connections_.take_spare(until);
        return fencing_->database_of(*ours, until) != theirs;
    } catch (const std::exception&) {
        return false;
    }
}

/// Throws, as the transaction did not find the grant: it is over, or not visible to the
/// transaction.
/// @param token of the row, as the transaction was to find it
void caller_transactions::refuse(sql::connection& db, grant& held, std::int64_t token, verdict seen,
                                 sql::deadline until) {
    const auto now = look_up(held, until);
    const bool released_in = held.now == grant::state::released_in;
    if (now == standing::ours && !released_in && held.row_token != token) {
        throw error{errc::conflict,
                    "the lease was extended at this moment: roll back and run the whole "
                    "transaction again"};
    }
    refuse_standing(db, now, released_in, seen, until);
    if (released_in) {
        throw error{errc::lock_lost, "the lease was released with an earlier transaction"};
    }
    // Watchers of lost() and the session's other leases are notified too.
    if (now == standing::session_over) {
        if (const auto session = sessions_.current(held.session_id)) {
            sessions_.lose(*session, sessions_.why_over(*session, connections_));
        }
    }
    if (now == standing::over) static_cast<void>(grants_.deny(held));
    keeper_.reconcile_now();
    if (held.now == grant::state::lost) throw lost_error(held);
    throw error{errc::lock_lost,
                "the database says that the lease is not held any more: roll the transaction back"};
}

/// Throws if the lease is, or may be, ours, though the transaction does not find it.
void caller_transactions::refuse_standing(sql::connection& db, standing now, bool released_in,
                                          verdict seen, sql::deadline until) {
    if (now == standing::ours && released_in) {
        throw error{errc::lock_lost, "this transaction has released the lease already"};
    }
    if (now == standing::ours && (seen == verdict::not_current || is_elsewhere(db, until))) {
        throw error{errc::invalid_options,
                    "the lease is held, but not in the tables that this connection sees: it must "
                    "be to the client's database, and find its schema (or search_path)"};
    }
    if (now == standing::ours || (now == standing::unknown && seen == verdict::not_in_view)) {
        throw error{errc::conflict,
                    "the transaction's snapshot is older than the lease, and what it reads is "
                    "stale: roll back and run the whole transaction again, the fence first"};
    }
}

/// A fence that finds the grant proves that the transactions which had released it by then were
/// rolled back. A transaction that releases it later waits for the fenced transaction, but not for
/// this thread to read the answer: the fenced transaction may have died meanwhile.
void caller_transactions::hold_again(grant& fenced, unsigned releases_before) {
    {
        const std::lock_guard lock{fenced.mutex};
        if (fenced.releases_in != releases_before) return;
        auto expected = grant::state::released_in;
        if (!fenced.now.compare_exchange_strong(expected, grant::state::held)) return;
    }
    // A thread that declared its session or its deadline over meanwhile skipped this grant.
    if (fenced.held()) return;
    const bool session_lives = fenced.session_trust->open(context_.now());
    context_.lose(fenced,
                  session_lives ? loss_reason::deadline_passed : loss_reason::trust_window_passed);
}

}  // namespace rowlock::detail

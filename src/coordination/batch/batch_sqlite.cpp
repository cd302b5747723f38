#include "coordination/batch/batch_dialects.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"

#include <algorithm>

namespace rowlock::strategy::on_sqlite {
namespace {

std::optional<std::int64_t> acquire(sql::connection& db, const sql::statements& sql,
                                    const grant_request& request, sql::deadline until) {
    const auto row = run(db, *sql.acquire, until, request.name, request.session, request.grant_id,
                         text_or_null(request.thread), text_or_null(request.note),
                         request.deadline_us, request.barging ? 1 : 0);
    if (row.empty()) return std::nullopt;
    return row.integer(0, 0);
}

}  // namespace

std::vector<look> probe_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                            std::span<const std::string_view> names, sql::deadline until) {
    std::vector<look> looks;
    looks.reserve(names.size());
    for (const auto name : names) {
        looks.push_back(read_look(run(db, sql.probe, until, name, session)));
    }
    return looks;
}

std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const sql::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until) {
    std::vector<std::optional<std::int64_t>> tokens(requests.size());
    if (requests.empty()) return tokens;
    // No other client writes between two statements of this transaction: each sees the current
    // state.
    transaction_scope transaction{db, until};
    std::ranges::transform(requests, tokens.begin(), [&](const grant_request& each) {
        return acquire(db, sql, each, until);
    });
    transaction.commit(until);
    return tokens;
}

std::vector<bool> release_all(sql::connection& db, const sql::statements& sql, std::int64_t session,
                              std::span<const granted_name> grants, sql::deadline until) {
    std::vector<bool> freed(grants.size());
    if (grants.empty()) return freed;
    transaction_scope transaction{db, until};
    for (std::size_t i = 0; i < grants.size(); ++i) {
        const auto& each = grants[i];
        const auto done = run(db, *sql.release_unwaited, until, each.name, session, each.grant_id);
        freed[i] = done.affected() > 0;
    }
    transaction.commit(until);
    return freed;
}

}  // namespace rowlock::strategy::on_sqlite

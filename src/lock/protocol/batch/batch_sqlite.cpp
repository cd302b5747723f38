#include "lock/protocol/batch/batch_dialects.hpp"
#include "sql/run_statement.hpp"
#include "sql/transaction_scope.hpp"

#include <algorithm>

namespace rowlock::protocol {
namespace {

/// Round trips cost nothing here; a batch is one transaction, and one fsync. There is one writer:
/// no client waits for a freed lease, and no search for waiters is needed.
class sqlite_batch_protocol final : public probing_batch_protocol {
public:
    sqlite_batch_protocol(const sql::statement_set& statements, const lease_protocol& leases)
        : probing_batch_protocol{statements, leases},
          acquire_{statements("acquire")},
          release_unwaited_{statements("release_unwaited")} {}

    [[nodiscard]] std::vector<lease_probe> probe_all(sql::connection& db, session_id session,
                                                     std::span<const std::string_view> names,
                                                     sql::deadline until) const override {
        std::vector<lease_probe> probes;
        probes.reserve(names.size());
        for (const auto name : names) {
            probes.push_back(leases_.probe(db, name, session, until));
        }
        return probes;
    }

    [[nodiscard]] std::vector<std::optional<std::int64_t>> acquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const override {
        std::vector<std::optional<std::int64_t>> tokens(requests.size());
        if (requests.empty()) return tokens;
        // No other client writes between two statements of this transaction: each sees the current
        // state.
        sql::transaction_scope transaction{db, until};
        std::ranges::transform(requests, tokens.begin(),
                               [&](const grant_request& each) { return acquire(db, each, until); });
        transaction.commit(until);
        return tokens;
    }

    [[nodiscard]] std::vector<bool> release_all(sql::connection& db, session_id session,
                                                std::span<const granted_name> grants,
                                                sql::deadline until) const override {
        std::vector<bool> freed(grants.size());
        if (grants.empty()) return freed;
        sql::transaction_scope transaction{db, until};
        for (std::size_t i = 0; i < grants.size(); ++i) {
            const auto& each = grants[i];
            const auto done = run(db, release_unwaited_, until, each.name, session, each.grant_id);
            freed[i] = done.affected() > 0;
        }
        transaction.commit(until);
        return freed;
    }

private:
    [[nodiscard]] std::optional<std::int64_t> acquire(sql::connection& db,
                                                      const grant_request& request,
                                                      sql::deadline until) const {
        const auto row = run(db, acquire_, until, request.name, request.session, request.grant_id,
                             sql::text_or_null(request.thread), sql::text_or_null(request.note),
                             request.deadline_us, request.barging ? 1 : 0);
        if (row.empty()) return std::nullopt;
        return row.integer(0, 0);
    }

    const sql::statement acquire_, release_unwaited_;
};

}  // namespace

std::unique_ptr<const batch_protocol> make_sqlite_batches(const sql::statement_set& statements,
                                                          const lease_protocol& leases) {
    return std::make_unique<const sqlite_batch_protocol>(statements, leases);
}

}  // namespace rowlock::protocol

#include "sql/run_statement.hpp"
#include "transaction/fencing/fencing_dialects.hpp"
#include <rowlock/error.hpp>

#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace rowlock::detail {
namespace {

/// True for the error that the statements fence and release_on_commit raise. Its text is ours and
/// holds no user data.
bool was_raised(const error& failure) {
    return failure.sqlstate() == "22P02" &&
           failure.server_message().find("rowlock: the lease is not held any more") !=
               std::string::npos;
}

verdict raised_verdict(const error& failure) {
    const bool latest = failure.server_message().find("isolation level read ") != std::string::npos;
    return latest ? verdict::not_current : verdict::not_in_view;
}

/// Both statements raise an error if the lease is not held.
class postgresql_fencing final : public fencing {
public:
    explicit postgresql_fencing(const sql::statement_set& statements)
        : statements_{statements},
          fence_{statements("fence")},
          fence_permits_{statements("fence_permits")},
          release_on_commit_{statements("release_on_commit")},
          fence_quorum_token_{statements("fence_quorum_token")} {}

    verdict fence(sql::connection& db, const claim& lease, const fence_limits& limits,
                  sql::deadline until) const override {
        const auto what =
            lease.permits ? located(fence_permits_, "fence_permits") : located(fence_, "fence");
        const auto number = lease.permits ? static_cast<std::int64_t>(lease.grant_id) : lease.token;
        return judged([&] {
            run(db, what, until, lease.name, lease.session, number, limits.idle.count(),
                limits.statement.count());
        });
    }

    verdict release_on_commit(sql::connection& db, const claim& lease, const fence_limits& limits,
                              sql::deadline until) const override {
        const auto what = located(release_on_commit_, "release_on_commit");
        return judged([&] {
            run(db, what, until, lease.name, lease.session, lease.token, limits.idle.count(),
                limits.statement.count(), lease.grant_id);
        });
    }

    verdict fence_quorum_token(sql::connection& db, std::string_view name, std::int64_t token,
                               const fence_limits& limits, sql::deadline until) const override {
        const auto what = located(fence_quorum_token_, "fence_quorum_token");
        return judged([&] { run(db, what, until, name, token, 0, 0, limits.statement.count()); });
    }

private:
    template <typename Action>
    static verdict judged(const Action& action) {
        try {
            action();
            return verdict::current;
        } catch (const error& failure) {
            if (!was_raised(failure)) throw;
            return raised_verdict(failure);
        }
    }

    /// The statement with our tables' schema, which the caller's search path may not have.
    [[nodiscard]] sql::statement located(const sql::statement& usual, std::string_view name) const {
        const auto schema = statements_.found_in().get();
        if (schema.empty()) return usual;
        const std::lock_guard lock{mutex_};
        const auto found = in_schema_.try_emplace(
            schema, sql::dialect::postgresql,
            sql::statement_options{.tables = {.prefix = statements_.options().tables.prefix},
                                   .found_in = schema});
        return found.first->second(name);
    }

    const sql::statement_set statements_;
    const sql::statement fence_, fence_permits_, release_on_commit_, fence_quorum_token_;
    mutable std::mutex mutex_;
    mutable std::map<std::string, sql::statement_set> in_schema_;
};

}  // namespace

std::unique_ptr<const fencing> make_postgresql_fencing(const sql::statement_set& statements) {
    return std::make_unique<const postgresql_fencing>(statements);
}

}  // namespace rowlock::detail

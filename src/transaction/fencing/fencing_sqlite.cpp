#include "sql/run_statement.hpp"
#include "transaction/fencing/fencing_dialects.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {
namespace {

/// A transaction that writes is the only writer until it ends: both are one conditional write.
class sqlite_fencing final : public fencing {
public:
    explicit sqlite_fencing(const sql::statement_set& statements)
        : fence_{statements("fence")},
          fence_permits_{statements("fence_permits")},
          release_on_commit_{statements("release_on_commit")} {}

    verdict fence(sql::connection& db, const claim& lease, const fence_limits& /*limits*/,
                  sql::deadline until) const override {
        const auto done =
            lease.permits
                ? run(db, fence_permits_, until, lease.name, lease.session, lease.grant_id)
                : run(db, fence_, until, lease.name, lease.session, lease.token);
        return done.affected() > 0 ? verdict::current : verdict::not_current;
    }

    verdict release_on_commit(sql::connection& db, const claim& lease,
                              const fence_limits& /*limits*/, sql::deadline until) const override {
        const auto done = run(db, release_on_commit_, until, lease.name, lease.session, lease.token,
                              lease.grant_id);
        return done.affected() > 0 ? verdict::current : verdict::not_current;
    }

    verdict fence_quorum_token(sql::connection& /*db*/, std::string_view /*name*/,
                               std::int64_t /*token*/, const fence_limits& /*limits*/,
                               sql::deadline /*until*/) const override {
        throw error{errc::unsupported, "SQLite is no member of a quorum"};
    }

private:
    const sql::statement fence_, fence_permits_, release_on_commit_;
};

}  // namespace

std::unique_ptr<const fencing> make_sqlite_fencing(const sql::statement_set& statements) {
    return std::make_unique<const sqlite_fencing>(statements);
}

}  // namespace rowlock::detail

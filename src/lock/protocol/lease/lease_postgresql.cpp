#include "lock/protocol/lease/lease_dialects.hpp"
#include "sql/run_statement.hpp"

namespace rowlock::protocol {
namespace {

/// Commits a release asynchronously where a crash of the server would be noticed.
class postgresql_lease_protocol final : public lease_protocol {
public:
    explicit postgresql_lease_protocol(const sql::statement_set& statements)
        : lease_protocol{statements},
          acquire_{statements("acquire")},
          release_asynchronously_{statements("release_asynchronously")} {}

    attempt acquire(sql::connection& db, const grant_request& request,
                    sql::deadline until) const override {
        return acquire_by(acquire_, db, request, until);
    }

private:
    [[nodiscard]] const sql::statement& release_on(const sql::connection& db) const override {
        return db.keeps_session_state() ? release_asynchronously_ : lease_protocol::release_on(db);
    }

    const sql::statement acquire_, release_asynchronously_;
};

}  // namespace

std::unique_ptr<const lease_protocol> make_postgresql_leases(const sql::statement_set& statements) {
    return std::make_unique<const postgresql_lease_protocol>(statements);
}

}  // namespace rowlock::protocol

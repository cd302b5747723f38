#include "lock/protocol/lease/lease_dialects.hpp"

namespace rowlock::protocol {
namespace {

class sqlite_lease_protocol final : public lease_protocol {
public:
    explicit sqlite_lease_protocol(const sql::statement_set& statements)
        : lease_protocol{statements}, acquire_{statements("acquire")} {}

    attempt acquire(sql::connection& db, const grant_request& request,
                    sql::deadline until) const override {
        return acquire_by(acquire_, db, request, until);
    }

private:
    const sql::statement acquire_;
};

}  // namespace

std::unique_ptr<const lease_protocol> make_sqlite_leases(const sql::statement_set& statements) {
    return std::make_unique<const sqlite_lease_protocol>(statements);
}

}  // namespace rowlock::protocol

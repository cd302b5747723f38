#include "lock/protocol/lease/lease_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

namespace rowlock::protocol {
namespace {

/// A file has no server that could be another one, and needs no settings for a session.
class sqlite_lease_protocol final : public common_lease_protocol {
public:
    explicit sqlite_lease_protocol(const sql::statement_set& statements)
        : common_lease_protocol{statements}, acquire_{statements("acquire")} {}

    void set_up(sql::connection& /*db*/, std::chrono::milliseconds /*statement_timeout*/,
                sql::deadline /*until*/) const override {}

    [[nodiscard]] std::optional<std::string> server_of_again(
        sql::connection& db, sql::deadline /*until*/) const override {
        return sql::memory_of(db).server = "";
    }

    std::string open_session(sql::connection& db, const session_row& row,
                             sql::deadline until) const override {
        for (int made = 0; made < 2; ++made) {
            if (changed_one(run(db, open_session_, until, row.id, row.owner, row.host, row.pid,
                                row.program, row.ttl.count(), row.wake.number, row.wake.secret,
                                row.wake.mailbox))) {
                return "";
            }
        }
        throw no_token_floor();
    }

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

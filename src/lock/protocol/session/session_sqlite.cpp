#include "lock/protocol/session/session_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"

namespace rowlock::protocol {
namespace {

/// A file has no server that could be another one, and needs no settings for a session.
class sqlite_session_protocol final : public session_protocol {
public:
    explicit sqlite_session_protocol(const sql::statement_set& statements)
        : session_protocol{statements} {}

    void set_up(sql::connection& /*db*/, std::chrono::milliseconds /*statement_timeout*/,
                sql::deadline /*until*/) const override {}

    [[nodiscard]] std::optional<std::string> server_of_again(
        sql::connection& db, sql::deadline /*until*/) const override {
        return sql::memory_of(db).server = "";
    }

    std::string open(sql::connection& db, const session_row& row,
                     sql::deadline until) const override {
        for (int made = 0; made < 2; ++made) {
            if (changed_one(run(db, open_, until, row.id, row.owner, row.host, row.pid, row.program,
                                row.ttl.count(), row.wake.number, row.wake.secret,
                                row.wake.mailbox))) {
                return "";
            }
        }
        throw no_token_floor();
    }
};

}  // namespace

std::unique_ptr<const session_protocol> make_sqlite_sessions(const sql::statement_set& statements) {
    return std::make_unique<const sqlite_session_protocol>(statements);
}

}  // namespace rowlock::protocol

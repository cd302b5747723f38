#include "lock/protocol/session/session_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/session_settings.hpp"
#include <rowlock/error.hpp>

#include <string>

namespace rowlock::protocol {
namespace {

using std::chrono::milliseconds;

class mysql_session_protocol final : public session_protocol {
public:
    explicit mysql_session_protocol(const sql::statement_set& statements)
        : session_protocol{statements},
          prefix_{statements.options().tables.prefix},
          meet_server_{statements("meet_server")} {}

    void set_up(sql::connection& db, milliseconds statement_timeout,
                sql::deadline until) const override {
        if (!db.keeps_session_state()) return;
        sql::state_settings(db, {.statement = statement_timeout}, until);
        sql::memory_of(db).server = sql::facts_of(db, until).server;  // already known
    }

    [[nodiscard]] std::optional<std::string> server_of_again(sql::connection& db,
                                                             sql::deadline until) const override {
        return sql::memory_of(db).server = sql::ask_facts_again(db, until).server;
    }

    std::string open(sql::connection& db, const session_row& row,
                     sql::deadline until) const override {
        // A pooled connection may lead to a server that has left its group since.
        sql::require_membership(db, until);
        std::string server = server_of(db, until).value();
        const auto opened = [&] {
            return changed_one(run(db, open_, until, row.id, row.owner, row.host, row.pid,
                                   row.program, row.ttl.count(), row.wake.number, row.wake.secret,
                                   row.wake.mailbox, server));
        };
        if (opened()) return server;
        refuse_former_member(db, server, until);
        run(db, meet_server_, until, server);
        if (!opened()) throw no_token_floor();
        return server;
    }

private:
    /// Without its plugin, a member of a MySQL group looks like any other server, and would grant
    /// what the group grants.
    void refuse_former_member(sql::connection& db, std::string_view server,
                              sql::deadline until) const {
        const auto row = run(db, read_floor_, until);
        if (row.empty() || !row.text(0, 1).starts_with("group:") || server.starts_with("group:")) {
            return;
        }
        db.discard();
        throw error{
            errc::database_unreachable,
            "the tables were last used in a MySQL group, and this server is in none: connect "
            "to a member. If it is to be alone from now on, say so once: update " +
                prefix_ + "token_floor set server_identity = 'alone' (docs/deploying.md)"};
    }

    const std::string prefix_;
    const sql::statement meet_server_;
};

}  // namespace

std::unique_ptr<const session_protocol> make_mysql_sessions(const sql::statement_set& statements) {
    return std::make_unique<const mysql_session_protocol>(statements);
}

}  // namespace rowlock::protocol

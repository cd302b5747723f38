#include "lock/protocol/session/session_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

#include <string>

namespace rowlock::protocol {
namespace {

using std::chrono::milliseconds;

/// Whether the server refused to identify itself: the functions are forbidden, or missing in a
/// product that only speaks like PostgreSQL.
bool does_not_tell(const sql::connection& db, const error& failure) {
    return db.alive() && !failure.retryable() && failure.kind() != errc::read_only;
}

/// Reads the answer of `server_identity` and the like.
std::optional<std::string> announced_by(const sql::result& row) {
    if (row.empty() || row.is_null(0, 0)) return std::nullopt;
    return std::string{row.text(0, 0)};
}

/// Opens a session and meets its server in one statement.
class postgresql_session_protocol final : public session_protocol {
public:
    explicit postgresql_session_protocol(const sql::statement_set& statements)
        : session_protocol{statements},
          statements_{statements},
          lock_table_{statements.qualified("rowlock_lock")},
          session_setup_{statements("session_setup")},
          session_setup_only_{statements("session_setup_only")},
          server_identity_{statements("server_identity")},
          server_timeline_{statements("server_timeline")} {}

    void set_up(sql::connection& db, milliseconds statement_timeout,
                sql::deadline until) const override {
        if (!db.keeps_session_state()) return;
        try {
            sql::memory_of(db).server = set_by(session_setup_, db, statement_timeout, until);
        } catch (const error& failure) {
            if (!does_not_tell(db, failure)) throw;
            set_by(session_setup_only_, db, statement_timeout, until);
        }
    }

    [[nodiscard]] std::optional<std::string> server_of_again(sql::connection& db,
                                                             sql::deadline until) const override {
        return sql::memory_of(db).server = ask_server(db, until);
    }

    std::string open(sql::connection& db, const session_row& row,
                     sql::deadline until) const override {
        // Checked before the insertion: a standby promoted in between would accept the session as
        // one of no particular server, and not raise the floor.
        const auto server = server_of(db, until);
        if (!server) throw leads_to_standby();
        for (int made = 0; made < 2; ++made) {
            if (changed_one(run(db, open_, until, row.id, row.owner, row.host, row.pid, row.program,
                                row.ttl.count(), row.wake.number, row.wake.secret, row.wake.mailbox,
                                *server))) {
                return *server;
            }
        }
        throw no_token_floor();
    }

private:
    /// Returns what the server says it is.
    std::optional<std::string> set_by(const sql::statement& what, sql::connection& db,
                                      milliseconds statement_timeout, sql::deadline until) const {
        const auto timeout = std::to_string(statement_timeout.count());
        const auto row = run(db, what, until, timeout, timeout, lock_table_);
        if (lock_table_ == statements_.options().tables.prefix + "lock" && !row.is_null(0, 1)) {
            statements_.found_in().set(row.text(0, 1));
        }
        return announced_by(row);
    }

    std::optional<std::string> ask_server(sql::connection& db, sql::deadline until) const {
        for (const auto* question : {&server_identity_, &server_timeline_}) {
            try {
                return announced_by(run(db, *question, until));
            } catch (const error& failure) {
                if (!does_not_tell(db, failure)) throw;
            }
        }
        return "";
    }

    const sql::statement_set statements_;
    const std::string lock_table_;
    const sql::statement session_setup_, session_setup_only_, server_identity_, server_timeline_;
};

}  // namespace

std::unique_ptr<const session_protocol> make_postgresql_sessions(
    const sql::statement_set& statements) {
    return std::make_unique<const postgresql_session_protocol>(statements);
}

}  // namespace rowlock::protocol

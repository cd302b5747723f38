#include "lock/protocol/session/session_protocol.hpp"

#include "lock/protocol/session/session_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"

namespace rowlock::protocol {

error leads_to_standby() {
    return {errc::read_only,
            "the connection leads to a standby: name the primary in the URL, or all hosts (the "
            "first that accepts writes is taken)"};
}

error no_token_floor() {
    return {errc::schema_outdated,
            "the token floor's row is missing, and nothing can be granted without it: "
            "docs/migrations.md, \"Going back\", says how to put it back"};
}

session_protocol::session_protocol(const sql::statement_set& statements)
    : open_{statements("open_session")},
      read_floor_{statements("read_floor")},
      heartbeat_{statements("heartbeat")},
      state_{statements("session_state")},
      end_expired_{statements("end_expired_session")},
      end_{statements("end_session")},
      remove_{statements("delete_session")},
      extend_{statements("extend_session")},
      bump_revision_{statements("bump_revision")},
      predecessors_{statements("predecessors")},
      wake_address_{statements("wake_address")},
      lift_floor_{statements("lift_floor")} {}

std::optional<std::string> session_protocol::server_of(sql::connection& db,
                                                       sql::deadline until) const {
    const auto& known = sql::memory_of(db).server;
    // A pooler may lead the same connection to another server between two transactions.
    return known && db.keeps_session_state() ? known : server_of_again(db, until);
}

bool session_protocol::heartbeat(sql::connection& db, session_id session, std::int64_t revision,
                                 sql::deadline until) const {
    sql::require_membership(db, until);
    return sql::changed_one(run(db, heartbeat_, until, session, revision));
}

session_state session_protocol::state_of(sql::connection& db, session_id session,
                                         sql::deadline until) const {
    const auto row = run(db, state_, until, session);
    if (row.empty()) return {false, 0};
    return {row.integer(0, 0) != 0, row.integer(0, 1)};
}

bool session_protocol::end_expired(sql::connection& db, session_id session,
                                   sql::deadline until) const {
    return sql::changed_one(run(db, end_expired_, until, session));
}

bool session_protocol::end(sql::connection& db, session_id session, sql::deadline until) const {
    return sql::changed_one(run(db, end_, until, session));
}

void session_protocol::remove(sql::connection& db, session_id session, sql::deadline until) const {
    run(db, remove_, until, session);
}

bool session_protocol::extend(sql::connection& db, session_id session,
                              std::chrono::microseconds ttl, sql::deadline until) const {
    return sql::changed_one(run(db, extend_, until, session, ttl.count()));
}

void session_protocol::bump_revision(sql::connection& db, session_id session,
                                     sql::deadline until) const {
    run(db, bump_revision_, until, session);
}

std::vector<session_id> session_protocol::predecessors(sql::connection& db, std::string_view owner,
                                                       session_id session,
                                                       sql::deadline until) const {
    const auto rows = run(db, predecessors_, until, owner, session);
    std::vector<session_id> all;
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        all.push_back(rows.integer<session_id>(row, 0));
    }
    return all;
}

std::optional<change_to_tell> session_protocol::change_of(sql::connection& db, session_id session,
                                                          sql::deadline until) const {
    const auto row = run(db, wake_address_, until, session);
    if (row.empty() || row.text(0, 1).empty()) return std::nullopt;
    return change_to_tell{.to = {.number = row.integer(0, 0),
                                 .secret = std::string{row.text(0, 1)},
                                 .mailbox = row.maybe_integer(0, 2)},
                          .revision = row.integer(0, 3)};
}

void session_protocol::lift_floor(sql::connection& db, std::int64_t token,
                                  sql::deadline until) const {
    run(db, lift_floor_, until, token);
}

void session_protocol::require_token_floor(sql::connection& db, sql::deadline until) const {
    if (run(db, read_floor_, until).empty()) throw no_token_floor();
}

std::unique_ptr<const session_protocol> make_session_protocol(
    const sql::statement_set& statements) {
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_sessions(statements);
        case sql::dialect::mysql:
            return make_mysql_sessions(statements);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_sessions(statements);
}

}  // namespace rowlock::protocol

#include "sql/session_settings.hpp"

#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/statements.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace rowlock::sql {
namespace {

using std::chrono::milliseconds;

/// As the servers' own default.
constexpr milliseconds usual_idle_limit = std::chrono::hours{8};
constexpr milliseconds usual_lock_wait = std::chrono::seconds{50};
constexpr milliseconds usual_metadata_wait = std::chrono::hours{24};

std::string whole_seconds(milliseconds time) {
    return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count());
}

void state_on_postgresql(connection& db, const server_limits& limits, deadline until) {
    static const auto state = load_statement(dialect::postgresql, "state_settings");
    run(db, state, until, std::to_string(limits.statement.count()),
        std::to_string(limits.idle.count()));
}

/// With innodb_snapshot_isolation (MariaDB's default from 11.6 on) a statement that waited for a
/// row and finds it changed fails, at READ COMMITTED too, where ours re-read the row.
void state_on_mysql(connection& db, const server_limits& limits, deadline until) {
    static const statement_set statements{dialect::mysql};
    const bool limited = limits.statement.count() != 0;
    const auto lock_wait = limited ? limits.statement : usual_lock_wait;
    const auto metadata_wait = limited ? limits.statement : usual_metadata_wait;
    const auto idle = limits.idle.count() == 0 ? usual_idle_limit : limits.idle;
    const bool isolates = facts_of(db, until).isolates_snapshots;
    db.query(
        statements.text_of("state_settings",
                           {{"lock_wait", whole_seconds(lock_wait)},
                            {"metadata_wait", whole_seconds(metadata_wait)},
                            {"seconds", whole_seconds(limits.statement)},
                            {"thousandths", std::to_string(limits.statement.count())},
                            {"idle", whole_seconds(idle)},
                            {"snapshots", isolates ? ", innodb_snapshot_isolation = off" : ""}}),
        until);
}

}  // namespace

void state_settings(connection& db, const server_limits& limits, deadline until) {
    if (!db.keeps_session_state()) return;
    switch (db.speaks()) {
        case dialect::postgresql:
            return state_on_postgresql(db, limits, until);
        case dialect::mysql:
            return state_on_mysql(db, limits, until);
        case dialect::sqlite:
            return;
    }
}

std::unique_ptr<connection> connect_stated(const connection_source& source, deadline until,
                                           const server_limits& limits) {
    auto made = source.connect(until);
    state_settings(*made, limits, until);
    return made;
}

}  // namespace rowlock::sql
